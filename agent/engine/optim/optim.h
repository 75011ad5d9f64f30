/*
 * optim — the optimizer over the pieces that a rank owns (param_store_pieces), learning-rate
 * schedules, the gradient's norm and its clipping.
 *
 *     AdamW    Loshchilov and Hutter, arXiv 1711.05101: two moments, m and v
 *     SGD      with momentum, PyTorch's form: one moment, m
 *
 * Weight decay is for the catalogue's decay parameters (matrices) alone. Another optimizer is a row
 * of the table in optim.c: its name, its moments, its call of an op; another schedule a row in
 * schedules.c.
 *
 * A moment is [param_store_owned] fp32; element piece.at + i of it belongs to piece.master[i]. With
 * offload.optimizer moments lie in a file without a name (base/spill.h), which the system may write
 * to disk and drop from memory; when the backend's memory is a device's, in the host's (away.h).
 *
 * An update sets the stored form of the parameters too, where that is another (param_store_stored_form).
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_OPTIM_H
#define MUSTER_AGENT_ENGINE_OPTIM_OPTIM_H

#include "agent/engine/parallel/store.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

enum { OPTIM_MOMENTS_MOST = 2 };

struct comm;
struct optim;

struct optim_options {
	struct backend *backend;
	struct param_store *store; /* borrowed, as all here; must be closed after the optimizer */
	const struct job *job;
	const char *spill_dir; /* for offload.optimizer, unless TMPDIR is set: the run folder */
};

/* Moments are zero. */
int optim_open(const struct optim_options *opt, struct optim **out, struct err *e);
/* Takes NULL. */
void optim_close(struct optim *o);

/* "adamw", "sgd": what a checkpoint says of its moments. */
const char *optim_name(enum job_optimizer kind);
/* "m", "v": the i-th moment's name in checkpoints, NULL when the optimizer has no such moment. */
const char *optim_moment_name(enum job_optimizer kind, int i);
/* [param_store_owned], in the backend's memory, or the host's when they are away; NULL when the
 * optimizer has no such moment. */
float *optim_moment(struct optim *o, int i);
/* Whether moments are the host's, and the backend's memory is not. */
bool optim_offloaded(const struct optim *o);
/* Until what lies away is as the last step left it. */
int optim_wait(struct optim *o, struct err *e);
enum job_optimizer optim_kind(const struct optim *o);

/* The rate of step `step` (from 0): linear warm-up to lr over `warmup` steps, then the job's
 * schedule:
 *
 *     constant, cosine, linear   down to min_lr at decay_steps (0: job.steps), and stays there
 *     inverse-sqrt               lr sqrt(warmup / step), no less than min_lr (warmup 0 counts as 1)
 *     wsd                        lr until the last `cooldown` steps of job.steps, then linear to
 *                                min_lr */
double optim_lr(const struct job *job, int64_t step);

/* Queues the sum of squares for the next optim_norm, which else does it itself: so that a device
 * that is behind has it to do before the host waits for it. After param_store_finish. */
void optim_square(struct optim *o);
/* Collective over world (every rank of the job; NULL: one). The norm of the whole model's gradient,
 * each element counted once, summed in double; the same bits on every rank. Gradients are
 * loss_scale times the true ones (1 unless fp16), the norm is that of the true ones. Not finite
 * when an element is not. After param_store_finish. */
int optim_norm(struct optim *o, struct comm *world, double loss_scale, double *norm, struct err *e);

/* Applies step number `step` (from 0) to the masters: gradients / loss_scale × min(1, clip /
 * norm). param_store_publish comes after it. */
void optim_step(struct optim *o, double norm, double loss_scale, int64_t step);
/* The same with one replica's gradient alone, for a parameter server (agent/server): the part that
 * its `share` of the global batch (0 to 1) has in the mean over it. norm: of the replica's own mean
 * gradient, which is the part / share, and which is clipped by itself. It counts as that share of a
 * step: rate × share, and moments decay by the share'th power, so that what all replicas bring in a
 * step amounts to one. before: parts that were applied before. */
void optim_step_part(struct optim *o, double norm, double share, int64_t step, int64_t before);

#endif
