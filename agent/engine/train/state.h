/*
 * state — the part of a training run that a checkpoint holds: its tensors by name, saved from and
 * loaded into a rank's memory (view.h).
 *
 * Tensors: every parameter under its global name (fp32 masters), and the optimizer's moments of it
 * as optim.m.NAME and optim.v.NAME. A rank saves the counted range of each of its pieces (store.h).
 * Such a range of a row-major box is at most three boxes: the rest of a row, whole rows, and the
 * beginning of a row. Loading requests exactly the pieces that a rank holds, so that any layout and
 * any ZeRO stage loads the checkpoints of all others.
 *
 * A checkpoint names the optimizer of its moments. Moments of another optimizer are refused
 * (ERR_USAGE), because moments that start at zero in the middle of a run would make its first steps
 * far too long. A checkpoint of step 0 may hold no moments (CKPT_NO_OPTIMIZER), as imported ones
 * do. The moments then start at zero, under any optimizer.
 *
 * The other files: state_model.c describes the model, state_check.c compares a checkpoint with the
 * model that it names, and resume.h chooses the checkpoint.
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

/* The part of a model that a checkpoint must agree with to be loaded: family and sizes. A new
 * reference. */
json_t *train_state_model(const struct model_shape *s);
/* The inverse: returns a job with defaults that has this [model] section. ERR_UNSUPPORTED: this
 * version of muster does not have such a model; ERR_CORRUPT: a field is missing. */
int train_state_model_job(json_t *model, struct job *out, struct err *e);

/* Compares the tensors of a proven manifest with the model and the optimizer that it names.
 * ERR_CORRUPT names the first tensor that is missing, has another shape, or belongs to neither. */
int train_state_check(const struct manifest *m, struct err *e);

/* The tensors of a whole checkpoint of the model under this optimizer: names and shapes. The caller
 * frees the list. */
int train_state_whole(const struct model_shape *s, enum job_optimizer kind,
		      struct ckpt_tensor **list, int *n, struct err *e);

/* Loads the checkpoint `path` into the view and sets *at. Not collective. The view may be partly
 * filled after a failure. */
int train_state_load(const char *path, json_t *model, const struct state_view *view,
		     struct ckpt_state *at, struct err *e);
/* Collective. Starts the checkpoint of *at, whose optimizer is set from the view. Fails if the
 * previous save failed; that failure is returned once, and another call starts this save. */
int train_state_save(struct ckpt_writer *w, const struct ckpt_state *at,
		     const struct state_view *view, struct err *e);

#endif
