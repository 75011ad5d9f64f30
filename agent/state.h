/*
 * state — what a checkpoint holds of a training run, and finding one to go on from.
 *
 * Tensors: every parameter under its global name, and AdamW's moments of it as
 * optim.m.NAME and optim.v.NAME. Each slice is saved by one rank only: copies
 * on other dp ranks are spread over them for balance, parameters that are
 * whole on each tp rank are saved by tp 0, the last stage's copy of a tied
 * embedding is not saved at all. Loading asks for every box that a rank holds.
 */
#ifndef MUSTER_AGENT_STATE_H
#define MUSTER_AGENT_STATE_H

#include "agent/ckpt/ckpt.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/job.h"
#include "plan/layout.h"
#include "plan/model.h"

#include <jansson.h>

/* A rank's training state in memory. */
struct state_view {
	const struct catalogue *catalogue;
	float *params, *m, *v; /* [catalogue.elements] */
	const struct ckpt_watch *watch; /* hears of each piece that is loaded into it; NULL: nobody */
};

/* What must be equal for a checkpoint to be loaded: family and sizes. A new reference. */
json_t *state_model(const struct model_shape *s);

/* Where the job's checkpoints are: checkpoint.dir, or ckpt in the run folder. */
int state_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e);

/* Collective. Finds the state to go on from, fills the view and *at, 1; or 0 when the run is at its beginning. The newest
 * good checkpoint in `dir` comes first, so that the same command goes on after a stop; without one it is what `wish`
 * says (base/msg.h, welcome.resume): the folder of a checkpoint, or nothing ("auto", "none"). ERR_USAGE when that would train
 * past what `dir` holds: "none" with a checkpoint there, or an older one of its own. A checkpoint in `dir` that proves damaged
 * while it is read is renamed to damaged-… with a warning, and the one before it is used; ERR_CORRUPT when none is left. */
int state_resume(struct comm *world, const char *wish, const char *dir, json_t *model,
		 const struct state_view *view, struct ckpt_state *at, struct err *e);

/* What a whole checkpoint of the model holds: names and shapes, to be freed. */
int state_whole(const struct model_shape *s, struct ckpt_tensor **list, int *n, struct err *e);

/* Collective. Starts the checkpoint of *at. Fails when the one before it failed, which is told once: another call
 * starts this one. */
int state_save(struct ckpt_writer *w, const struct ckpt_state *at, const struct state_view *view,
	       const struct layout *layout, const struct coords *me, struct err *e);

#endif
