/*
 * engine — one rank's part of the model and of a training step.
 *
 * It splits the groups from the world, opens the param_store and the model, and executes its row of
 * the schedule table: receives, forward and backward passes, sends, and the reduction of gradients,
 * which overlaps the last backward pass. After pipeline_step the pieces of the param_store have the
 * gradients of the mean loss over the global batch (times the loss scale). Then come
 * optim_grad_norm, optim_step and param_store_sync_params.
 */
#ifndef MUSTER_AGENT_ENGINE_PIPELINE_ENGINE_H
#define MUSTER_AGENT_ENGINE_PIPELINE_ENGINE_H

#include "agent/engine/model/model.h"
#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"
#include "plan/spec/schedule/timeline.h"

#include <stdint.h>

struct engine;

struct engine_options {
	const struct rank_view *view; /* borrowed */
	struct comm *world;           /* its ranks are in the layout's order; borrowed */
	const char *backend_name; /* "cpu", "reference", "cuda"; the storage type is the job's */
	int device;               /* index among those that this process sees; 0 on the host */
	const char *transport;    /* for tensors on devices (comm_on_device); NULL: automatic */
	int threads;
	int node; /* this rank's node; ZeRO may shard inside nodes */
	/* the folder for offloaded tensors, unless TMPDIR is set: the run folder */
	const char *spill_dir;
	/* Called at each step of the schedule with a string literal ("forward", "backward",
	 * "receive-activations", …: the table in run_row.c, "start-messages", and at the end
	 * "share-loss"). May be NULL. */
	void (*phase)(const char *what, void *arg);
	void *phase_arg;
};

/* Collective. Does not set the parameters: train_state_init or a checkpoint does. */
int pipeline_open(const struct engine_options *opt, struct engine **out, struct err *e);
/* Call before the world is closed. After a failed step, which has aborted the world, it does not
 * wait for other ranks. Accepts NULL. */
void pipeline_close(struct engine *g);

const struct model_shape *pipeline_shape(const struct engine *g);
const struct catalogue *pipeline_catalogue(const struct engine *g);
struct param_store *pipeline_store(struct engine *g);
struct backend *pipeline_backend(struct engine *g);

/* This dp rank's part of a global batch. Ranks with the same dp index pass the same data. */
struct engine_batch {
	const int32_t *inputs, *targets; /* [micros, micro, seq] */
	const int32_t *starts;           /* the same shape; NULL: attention crosses documents */
	int64_t sample;                  /* global number of the first sequence */
	double loss_scale;               /* multiplies the gradients, not the loss */
	/* pipeline_numbers has the scale, and loss_scale is not used */
	bool scaled;
};

/* Forward and backward pass of one step. Sets *loss to the mean over the global batch's tokens,
 * with the same bits on every rank. With parallel.sync = server no replica waits for another:
 * gradients and *loss are this replica's part of the means (agent/engine/server). */
int pipeline_step(struct engine *g, const struct engine_batch *b, double *loss, struct err *e);
/* pipeline_step in two parts. On a device, the first queues the work and the second waits for it,
 * so that the caller can queue more work in between. */
int pipeline_passes(struct engine *g, const struct engine_batch *b, struct err *e);
int pipeline_loss(struct engine *g, double *loss, struct err *e);

/* In place of pipeline_loss, when the sums of all ranks were added in pipeline_numbers
 * (agent/engine/optim/queue.c) and *n is a copy. */
void pipeline_loss_added(struct engine *g, const struct step_numbers *n, double *loss);
/* The losses of this rank's passes, [LOSSES] in the backend's memory, and whether they are part of
 * the sums. All tp ranks have the same losses, and those of the first one count. */
const double *pipeline_losses_there(const struct engine *g);
bool pipeline_losses_count(const struct engine *g);

/* Computes the last step again, with the same batch, in check mode (agent/engine/model/model.h),
 * and sets *found. All other results are those of pipeline_step. Each micro-batch gets the slot
 * that it had before. */
int pipeline_check(struct engine *g, const struct engine_batch *b, double *loss,
		   struct model_finding *found, struct err *e);
struct model *pipeline_model(struct engine *g);
/* The numbers of the step, in the backend's memory, for optim_options. */
struct step_numbers *pipeline_numbers(struct engine *g);
/* Pinned memory for a copy of them. NULL on the host. */
struct step_numbers *pipeline_numbers_read(struct engine *g);
/* The world's ranks, as a group on the backend's memory whose operations are the device's
 * library's. NULL: there is no such group, and the host's is as good. */
struct comm *pipeline_device_world(const struct engine *g);
/* This rank's part of the last step's loss: a sum over its tokens. */
double pipeline_local_loss(const struct engine *g);

/* The terms of the last pipeline_loss. */
struct engine_losses {
	/* the model has routers, and the parts of all replicas were summed (parallel.sync =
	 * all-reduce) */
	bool known;
	double cross_entropy, balance, z;
};
void pipeline_losses(const struct engine *g, struct engine_losses *out);
/* Forward pass only; sets *loss like pipeline_step and does not change gradients. */
int pipeline_eval(struct engine *g, const struct engine_batch *b, double *loss, struct err *e);

/* Seconds of the last step by part, for the report. No second counts twice. Transfers that overlap
 * computation count as compute. Recomputation with its transfers counts as recompute. The wait for
 * the all-reduce of the loss counts as pp if there is a pipeline, and as dp otherwise. */
struct engine_times {
	double compute, recompute, tp, cp, ep, pp, dp;
};
void pipeline_times(const struct engine *g, struct engine_times *out);
/* The begin and end of each pass of this rank in the last pipeline_step. Valid until the next. */
const struct timeline *pipeline_timeline(const struct engine *g);
/* Peak bytes of this rank's device memory. */
int64_t pipeline_peak_bytes(const struct engine *g);

#endif
