/*
 * resume — finds the checkpoint that a run resumes from, and loads it.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_RESUME_H
#define MUSTER_AGENT_ENGINE_TRAIN_RESUME_H

#include "agent/engine/train/choose.h"
#include "agent/engine/train/state.h"

/* Sets the DIR of the job's checkpoints: checkpoint.dir, or ckpt in the run folder. */
int train_resume_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e);

struct ckpt_store;

/* Where a state was loaded from. */
struct train_origin {
	enum train_tier tier;
	char path[JOB_PATH]; /* "memory" with TRAIN_MEMORY; "": it is the initial one */
	int64_t saved; /* the step of the last checkpoint in dir, if it is known; otherwise -1 */
};

/* Collective. Loads the state to resume from into the state's masters and moments, publishes the
 * parameters and sets *at: 1; or 0 if the run is at its beginning (the caller then calls
 * train_state_init).
 *
 * The last valid checkpoint of the tiers comes first (choose.h), so that the same command continues
 * after a stop. Without one, `requested` decides (base/msg.h, welcome.resume): the path of a
 * checkpoint, or none ("auto", "none"). ERR_USAGE if that would train past a checkpoint of the run:
 * "none" although there is one, or an earlier one of the run. A checkpoint that proves damaged
 * while it is read is renamed to damaged-… with a warning, and the next one is used, which may be
 * of the same step in another tier; ERR_CORRUPT if none is left. Nodes then drop their checkpoints
 * of later steps.
 *
 * memory: this rank's copies, on all ranks or on none (NULL). If the ranks have the whole of a state in
 * memory that no checkpoint is newer than, it is loaded from there. Then all other copies are dropped. */
int train_resume(struct comm *world, const char *requested, const struct train_tiers *tiers,
		 struct ckpt_store *memory, json_t *model, const struct train_state *state,
		 struct ckpt_state *at, struct train_origin *from, struct err *e);

#endif
