/*
 * engine — one rank's part of the model and of a step.
 *
 * It owns the stage's parameters and gradients (one flat fp32 buffer each, laid out by
 * the catalogue), builds the tp, pp and dp groups from the world, and walks its row of the
 * schedule table: receives, forwards, backwards, sends, and the bucketed reduction of gradients over dp that
 * overlaps the last backward pass. After engine_step the gradients are those of the mean loss over the
 * global batch, equal on all dp ranks.
 */
#ifndef MUSTER_AGENT_PIPELINE_ENGINE_H
#define MUSTER_AGENT_PIPELINE_ENGINE_H

#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"
#include "plan/job.h"
#include "plan/layout.h"
#include "plan/model.h"

#include <stdint.h>

struct engine;

struct engine_options {
	const struct job *job;
	struct layout layout;
	struct coords at;
	struct comm *world;   /* rank order as in plan/layout.h; borrowed */
	const char *backend;  /* "cpu", "plain" */
	int threads;
	/* Called at each schedule step with a literal ("forward", "backward", "receive-activations", …: the table in
	 * walk.c, then "share-loss"); may be NULL. */
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Collective. Parameters are not set yet: engine_init or a checkpoint does that. */
int engine_open(const struct engine_options *opt, struct engine **out, struct err *e);
/* Before the world is closed. After a step that failed it does not wait: the world is aborted then. Takes NULL. */
void engine_close(struct engine *g);

/* The initial parameters: a function of (seed, name, global index), whatever the layout. */
void engine_init(struct engine *g);

const struct catalogue *engine_catalogue(const struct engine *g);
float *engine_params(struct engine *g);  /* [catalogue.elements] */
float *engine_grads(struct engine *g);   /* [catalogue.elements] */
struct kern *engine_kern(struct engine *g);

/* One step's forward and backward over this dp rank's micro-batches: inputs, targets [micros, micro, seq] (ranks of
 * one dp index pass the same). *loss: mean over the global batch's tokens, the same bits on every rank. */
int engine_step(struct engine *g, const int32_t *inputs, const int32_t *targets, double *loss, struct err *e);
/* The same without backward, leaving gradients alone. */
int engine_eval(struct engine *g, const int32_t *inputs, const int32_t *targets, double *loss, struct err *e);
/* Global norm of the gradients, each parameter counted once. Collective; the same bits on every rank. */
int engine_grad_norm(struct engine *g, double *norm, struct err *e);

/* Seconds of the last step by part, for the report. */
struct engine_times {
	double compute, tp, pp, dp_exposed;
};
void engine_times(const struct engine *g, struct engine_times *out);
/* Peak bytes of this rank's device memory. */
int64_t engine_peak_bytes(const struct engine *g);

#endif
