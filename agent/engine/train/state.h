/*
 * state — what a checkpoint holds of a training run, and finding one to go on from.
 *
 * Tensors: every parameter under its global name (fp32 masters), and the optimizer's moments of it
 * as optim.m.NAME and optim.v.NAME. A rank saves the counted part of each of its pieces (store.h):
 * a run of a row-major box, which is at most three boxes: the rest of a row, whole rows, the begin
 * of a row. Loading asks for exactly the pieces that a rank holds, so that any layout and any ZeRO
 * stage loads any other's.
 *
 * A checkpoint says which optimizer its moments are of. Another one's are refused (ERR_USAGE):
 * moments that begin at zero in the middle of a run would make its first steps far too long. One of
 * step 0 may hold none (CKPT_NO_OPTIMIZER), as imported ones do: then they begin at zero, under any
 * optimizer.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STATE_H
#define MUSTER_AGENT_ENGINE_TRAIN_STATE_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/train/view.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"

#include <jansson.h>

struct manifest; /* agent/engine/ckpt/manifest.h */

/* What must be equal for a checkpoint to be loaded: family and sizes. A new reference. */
json_t *train_state_model(const struct model_shape *s);
/* The job, of defaults but for [model], whose model it is. ERR_UNSUPPORTED: this muster has no
 * such model; ERR_CORRUPT: a field is missing. */
int train_state_model_job(json_t *model, struct job *out, struct err *e);

/* Holds the tensors of a manifest, whose coverage has been proven, against the model and the
 * optimizer that it says it is of: ERR_CORRUPT names the first that is missing, has another shape,
 * or is none of theirs. */
int train_state_check(const struct manifest *m, struct err *e);

/* Where the job's checkpoints are: checkpoint.dir, or ckpt in the run folder. */
int train_resume_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e);

/* Collective. Finds the state to go on from, fills the view's masters and moments, publishes the
 * parameters, sets *at: 1; or 0 when the run is at its beginning (then train_state_init). The
 * newest good checkpoint in `dir` comes first, so that the same command goes on after a stop;
 * without one it is what `wish` says (base/msg.h, welcome.resume): the folder of a checkpoint, or
 * nothing ("auto", "none"). ERR_USAGE when that would train past what `dir` holds: "none" with a
 * checkpoint there, or an older one of its own. A checkpoint in `dir` that proves damaged while it
 * is read is renamed to damaged-… with a warning, and the one before it is used; ERR_CORRUPT when
 * none is left. */
int train_resume(struct comm *world, const char *wish, const char *dir, json_t *model,
		       const struct state_view *view, struct ckpt_state *at, struct err *e);

/* What a whole checkpoint of the model under this optimizer holds: names and shapes, to be
 * freed. */
int train_state_whole(const struct model_shape *s, enum job_optimizer kind,
		      struct ckpt_tensor **list, int *n, struct err *e);

/* Collective. Starts the checkpoint of *at, whose optimizer is filled in from the view. Fails when
 * the one before it failed, which is told once: another call starts this one. */
int train_state_save(struct ckpt_writer *w, const struct ckpt_state *at,
		     const struct state_view *view, struct err *e);

#endif
