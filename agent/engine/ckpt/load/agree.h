/*
 * agree — the ranks of a group learn whether all of them have succeeded.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_AGREE_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_AGREE_H

#include "base/err.h"
#include "libcomm/comm.h"

#include <stdint.h>

/* Collective. rc and *mine: this rank's result, and its error if rc is not 0. 0: every rank has
 * succeeded. Otherwise each rank gets the same error in *e, the one of the highest code, and in
 * *culprit the first rank that has it; -1: the group itself has failed. */
int ckpt_agree(struct comm *group, int rc, const struct err *mine, int *culprit, struct err *e);
/* Does the same for a caller that does not need the culprit. */
int ckpt_agree_result(struct comm *group, int rc, const struct err *mine, struct err *e);
/* The same, and sets *most to its maximum over the ranks. */
int ckpt_agree_most(struct comm *group, int rc, const struct err *mine, int64_t *most, int *culprit,
		    struct err *e);
/* The same, and gathers the number of each rank, which is not negative: all[rank]. */
int ckpt_agree_all(struct comm *group, int rc, const struct err *mine, int64_t number, int64_t *all,
		   int *culprit, struct err *e);

#endif
