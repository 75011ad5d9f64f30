/*
 * rollbacks — what a run skips because its numbers became bad: rollbacks.jsonl in its folder.
 *
 * A line is an object with the fields of RUNDIR_ROLLBACK_FIELDS, one for each rollback. The
 * supervisor adds a line before it starts the generation that continues without these samples, and
 * each generation of the run gets all lines, also after another `muster run`, a requeue, or on
 * another layout. So the file is replaced as a whole and synced, and a damaged one is an error: to
 * lose a line would change the order of the samples.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_ROLLBACKS_H
#define MUSTER_LAUNCHER_RUNDIR_ROLLBACKS_H

#include "base/err.h"
#include "base/fields.h"

/* clang-format off */

/* The first five are those of struct msg_skip. */
#define RUNDIR_ROLLBACK_FIELDS(F) \
	F(first,      COUNT,  REQUIRED, "position in the order of the data of the first sample that is skipped") \
	F(count,      COUNT,  REQUIRED, "how many samples are skipped") \
	F(reason,     LINE,   REQUIRED, "what was bad, for people") \
	F(generation, COUNT,  REQUIRED, "the generation that met the bad step") \
	F(resume,     COUNT,  OPTIONAL, "with health.skip_before: checkpoints of later steps by this generation or an earlier one are not used") \
	F(step,       COUNT,  REQUIRED, "the bad step") \
	F(what,       TEXT,   REQUIRED, "loss or gradient norm") \
	F(value,      NUMBER, REQUIRED, "its value; null: not finite") \
	F(usual,      NUMBER, REQUIRED, "of a spike: the median of the steps before it; otherwise null")

/* clang-format on */

struct rundir_rollback {
	RUNDIR_ROLLBACK_FIELDS(FIELDS_MEMBER)
};

/* Reads the rollbacks of a run folder into a new list, empty if there is no file. ERR_CORRUPT: the
 * file is damaged. */
int rundir_rollbacks_read(const char *run, json_t **out, struct err *e);
/* Adds a rollback to the list, and to the file durably; on failure to neither. */
int rundir_rollbacks_add(const char *run, json_t *list, const struct rundir_rollback *r,
			 struct err *e);

/* For rundir_rollbacks_read(): `text` is the content of the file. */
int rundir_rollbacks_parse(const char *text, size_t len, json_t **out, struct err *e);

#endif
