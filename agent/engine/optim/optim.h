/*
 * optim — the optimizer over the pieces that a rank owns (param_store_pieces), the learning-rate
 * schedules, and the gradient's norm and its clipping.
 *
 * plan/spec/optimizers.h has the table of optimizers and the recipe for a new one. To add a
 * learning-rate schedule, add a row to the table in schedules.c. Weight decay applies to matrices
 * only (param.decay).
 *
 * A state of size OPTIMIZER_ELEMENT is [param_store_owned] fp32, and its element piece.at + i
 * belongs to piece.master[i]. With offload.optimizer the states are in a file without a name
 * (base/spill.h), which the system may write to disk and drop from memory. If the backend is a
 * device they are in the host's memory instead (offload.h).
 *
 * An elementwise optimizer also sets the stored form of the parameters if it differs from the
 * masters (param_store_stored_form).
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_OPTIM_H
#define MUSTER_AGENT_ENGINE_OPTIM_OPTIM_H

#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

struct comm;
struct optim;

/* All members are borrowed. The store must be closed after the optimizer. */
struct optim_options {
	struct backend *backend;
	struct param_store *store;
	const struct job *job;
	const char *spill_dir; /* for offload.optimizer, unless TMPDIR is set: the run folder */
	/* The world's ranks, as a group on memory of the backend: optim_grad_norm adds there,
	 * and only the result comes to the host. NULL: it adds on the host. */
	struct comm *device_world;
	/* In the backend's memory: what the step has in common (pipeline_numbers). NULL: the
	 * optimizer has its own. */
	struct step_numbers *numbers;
};

/* Collective over the store's groups. The states are zero. */
int optim_open(const struct optim_options *opt, struct optim **out, struct err *e);
/* Accepts NULL. */
void optim_close(struct optim *o);

enum job_optimizer optim_kind(const struct optim *o);
/* State `i` of the piece's elements: [piece->count]. NULL if the parameter has no such state, or
 * its size is not that of the parameter. The memory is the backend's, or the host's if
 * optim_offloaded. */
float *optim_state(struct optim *o, int i, const struct param_piece *piece);
/* State `i` of a parameter, of size OPTIMIZER_ROW or OPTIMIZER_COLUMN. NULL: it has none. */
float *optim_factor(struct optim *o, int i, const struct param *p);
/* Whether the states are in the host's memory while the backend's memory is not. */
bool optim_offloaded(const struct optim *o);
/* Waits until offloaded states are as the last step left them. */
int optim_wait(struct optim *o, struct err *e);

/* The learning rate of step `step` (from 0): a linear warm-up to lr over `warmup` steps, then the
 * job's schedule:
 *
 *     constant, cosine, linear   falls to min_lr at decay_steps (0: job.steps) and stays there
 *     inverse-sqrt               lr sqrt(warmup / step), at least min_lr (warmup 0 counts as 1)
 *     wsd                        lr until the last `cooldown` steps of job.steps, then linear to
 *                                min_lr */
double optim_lr(const struct job *job, int64_t step);

/* Queues the sum of squares for the next optim_grad_norm, which computes it otherwise. A device
 * that lags behind the host can then compute it before the host waits for it. Called after
 * param_store_finish. */
void optim_grad_norm_start(struct optim *o);
/* Collective over world (every rank of the job; NULL: one rank). Sets *norm to the norm of the
 * whole model's gradient. Each element counts once, the sum is in double, and all ranks get the
 * same bits. The stored gradients are loss_scale times the true ones (1 unless fp16); the norm is
 * that of the true ones. It is not finite if an element is not. Called after param_store_finish. */
int optim_grad_norm(struct optim *o, struct comm *world, double loss_scale, double *norm,
		    struct err *e);

/* Collective over the store's groups unless the optimizer is elementwise. Applies step number
 * `step` (from 0) to the masters, with the gradients / loss_scale × min(1, clip / norm). Called
 * between param_store_finish and param_store_sync_params. An elementwise optimizer cannot fail. */
int optim_step(struct optim *o, double norm, double loss_scale, int64_t step, struct err *e);

/* --- Steps that the host does not wait for (queue.c) --- */

struct scaler; /* scaler.h */

/* The device adds the norm and the losses over the ranks, decides whether to skip the step, and
 * updates (step_judge in kernels/ops_table.h). For an elementwise optimizer with
 * optim_options.numbers, where device_world is set or there is one rank; on the host, where each
 * call does its work at once, only tests use it. The scaler's state and the tokens of a global
 * batch become those of the device. counts: this rank's losses are part of the sums. read: memory
 * of backend_host_alloc, or on the host any, that outlives the queued work. */
void optim_queue_open(struct optim *o, const struct scaler *s, int64_t tokens, bool counts,
		      struct step_numbers *read);
/* A larger loss or norm is a spike, and the step is skipped; INFINITY: none is. */
struct optim_limits {
	double loss, norm;
};
/* Collective. Queues optim_grad_norm and optim_step. With job.graphs the steps from the second
 * one on are a CUDA graph, with the sum over the ranks in it, if all of it is on the device:
 * without offload.optimizer and stochastic rounding, whose keys the host sets. All ranks do the
 * same. losses: [3] the sums of this rank's losses, in the backend's memory. optim_queue_read of
 * the step before must have returned. */
int optim_queue_step(struct optim *o, const double *losses, const struct optim_limits *limits,
		     int64_t step, struct err *e);
/* Waits for the numbers of the last optim_queue_step, but not for what was queued after it. */
int optim_queue_read(struct optim *o, struct step_numbers *out, struct err *e);

/* Applies the gradient of one replica, for a parameter server (agent/engine/server); elementwise
 * optimizers only. The stored gradient is the part that the replica's `share` of the global batch
 * (0 to 1) has in the mean over the batch. norm: of the replica's own mean gradient, which is the
 * part / share, and which is clipped by itself. The call counts as that share of a step: the rate
 * is multiplied by the share and the states decay by its power, so that the parts of all replicas
 * amount to one step. before: how many parts have been applied. */
void optim_step_part(struct optim *o, double norm, double share, int64_t step, int64_t before);

#endif
