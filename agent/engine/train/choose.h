/*
 * choose — which checkpoint of which tier a run resumes from.
 *
 * The tiers are the folders of the nodes (checkpoint.local), the folder that all ranks see
 * (checkpoint.dir), and the place of the copies (checkpoint.remote). The valid checkpoint of the
 * highest step wins, whichever tier has it; of one step, the tier that comes first in this list.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_CHOOSE_H
#define MUSTER_AGENT_ENGINE_TRAIN_CHOOSE_H

#include "agent/engine/ckpt/places/local.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"

#include <jansson.h>

struct train_tiers {
	const char *dir;
	const struct ckpt_local *local; /* NULL: none */
	const char *remote;             /* NULL or "": none */
	/* the run has copied checkpoints there: without access to them it does not start over */
	bool copied;
	const char *owner; /* the run, whose copies `remote` must hold; NULL: not checked */
	/* a list of struct msg_skip, the same on all ranks: checkpoints of local and remote that a
	 * rollback goes back beyond are not used. Those of dir are set aside before (set_aside.h).
	 * NULL: none */
	const json_t *rollbacks;
};

/* The prefix of the name of a checkpoint that proved damaged. */
#define TRAIN_DAMAGED "damaged-"

enum train_tier {
	TRAIN_LOCAL,
	TRAIN_DIR,
	TRAIN_REMOTE,
	TRAIN_NAMED,
	TRAIN_MEMORY, /* of the ranks; resume.h chooses it */
	TRAIN_TIER_COUNT
};
const char *train_tier_word(enum train_tier tier); /* "local" */

enum { TRAIN_REFUSED_MAX = 64 };

/* Checkpoints that a search leaves out, because they proved damaged and could not be renamed. */
struct train_refused {
	int64_t steps[TRAIN_REFUSED_MAX]; /* of remote */
	int n;
};

struct train_choice {
	char path[JOB_PATH]; /* "": there is none. Of TRAIN_LOCAL: in the folder of this node. */
	enum train_tier tier;
	int64_t step;
	struct ckpt_local_found *local; /* of TRAIN_LOCAL, otherwise NULL */
};

/* Collective; all ranks get the same choice, or an error. `requested` is as for train_resume. */
int train_choose(struct comm *world, const char *requested, const struct train_tiers *tiers,
		 const struct train_refused *refused, json_t *model, struct train_choice *out,
		 struct err *e);
void train_choice_fini(struct train_choice *c);

#endif
