/*
 * engine — one rank's part of the model and of a step.
 *
 * It builds the groups from the world, the store of the rank's parameters and gradients, the model,
 * and walks its row of the schedule table: receives, forwards, backwards, sends, and the reduction
 * of gradients that overlaps the last backward pass. After pipeline_step the store's pieces have
 * the gradients of the mean loss over the global batch (times the loss scale); engine_norm and the
 * optimizer come next, then param_store_publish.
 */
#ifndef MUSTER_AGENT_ENGINE_PIPELINE_ENGINE_H
#define MUSTER_AGENT_ENGINE_PIPELINE_ENGINE_H

#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"
#include "plan/spec/schedule/timeline.h"

#include <stdint.h>

struct engine;

struct engine_options {
	const struct job *job;
	struct layout layout;
	struct coords at;
	struct comm *world;       /* rank order as in plan/spec/layout.h; borrowed */
	const char *backend_name; /* "cpu", "plain", "cuda"; the storage type is the job's */
	int device;               /* which of those that this process sees; 0 on the host */
	const char *transport; /* of tensors on devices, as comm_on_device takes it: NULL chooses */
	int threads;
	int node; /* this rank's: ZeRO may shard inside nodes */
	/* where what is offloaded may lie, unless TMPDIR is set: the run folder */
	const char *spill_dir;
	/* Called at each schedule step with a literal ("forward", "backward",
	 * "receive-activations", …: the table in walk.c, then "share-loss"); may be NULL. */
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Collective. Parameters are not set yet: train_state_init or a checkpoint does that. */
int pipeline_open(const struct engine_options *opt, struct engine **out, struct err *e);
/* Before the world is closed. After a step that failed it does not wait: that aborted the world.
 * Takes NULL. */
void pipeline_close(struct engine *g);

const struct model_shape *pipeline_shape(const struct engine *g);
const struct catalogue *pipeline_catalogue(const struct engine *g);
struct param_store *pipeline_store(struct engine *g);
struct backend *pipeline_backend(struct engine *g);

/* This dp rank's part of a global batch (ranks of one dp index pass the same). */
struct engine_batch {
	const int32_t *inputs, *targets; /* [micros, micro, seq] */
	const int32_t *starts;           /* the same; NULL: attention sees over documents */
	int64_t sample;                  /* global number of the first sequence */
	double loss_scale;               /* multiplies the gradients, not the loss */
};

/* One step's forward and backward. *loss: mean over the global batch's tokens, the same bits on
 * every rank. With parallel.sync = server no replica waits for another: gradients and *loss are
 * this one's part of the means (agent/server). */
int pipeline_step(struct engine *g, const struct engine_batch *b, double *loss, struct err *e);
/* The same in two halves: on a device the first one queues the work, the second waits for it, so
 * that more can be queued before. */
int pipeline_passes(struct engine *g, const struct engine_batch *b, struct err *e);
int pipeline_loss(struct engine *g, double *loss, struct err *e);

/* What the last pipeline_loss is the sum of. */
struct engine_losses {
	/* the model has routers, and all replicas' parts are summed (parallel.sync = all-reduce) */
	bool known;
	double cross_entropy, balance, z;
};
void pipeline_losses(const struct engine *g, struct engine_losses *out);
/* The same without backward, leaving gradients alone. */
int pipeline_eval(struct engine *g, const struct engine_batch *b, double *loss, struct err *e);

/* Seconds of the last step by part, for the report: none counts twice. What overlaps compute is
 * compute; what is computed again is recompute, with its transfers; the wait for the others' loss
 * is the pipeline's where there is one, else data parallelism's. */
struct engine_times {
	double compute, recompute, tp, cp, ep, pp, dp;
};
void pipeline_times(const struct engine *g, struct engine_times *out);
/* When this rank did which pass in the last pipeline_step; valid until the next. */
const struct timeline *pipeline_timeline(const struct engine *g);
/* Peak bytes of this rank's device memory. */
int64_t pipeline_peak_bytes(const struct engine *g);

#endif
