/*
 * set_aside — keeps a run from the checkpoints that a rollback goes back beyond.
 *
 * With health.skip_before the cause of a bad step may lie before the last checkpoint. The rollback
 * then names the last step that is good (struct msg_skip, resume). Checkpoints of later steps that
 * its generation or an earlier one wrote are renamed to undone-…: nothing uses them any more, but
 * they stay on the disk. If no checkpoint of that step or an earlier one is left, the oldest one
 * stays.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_SET_ASIDE_H
#define MUSTER_AGENT_ENGINE_TRAIN_SET_ASIDE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* For world rank 0, before train_resume. dir: of the checkpoints. rollbacks: a list of struct
 * msg_skip; NULL: none. If a checkpoint cannot be renamed, the run continues from it, and skips
 * only samples that come after it. */
int train_set_aside(const char *dir, const json_t *rollbacks, struct err *e);

/* Whether a rollback goes back beyond a checkpoint of this step by this generation. */
bool train_is_undone(const json_t *rollbacks, int64_t step, uint32_t generation);

#endif
