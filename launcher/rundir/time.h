/*
 * time — where the time of all ranks of a run went: time.jsonl in its folder.
 *
 * A line has time, mono and generation as an event does, and the fields of RUNDIR_TIME_FIELDS. All sums
 * are of the whole run, over every `muster run` in the folder, up to the line: only the last line counts
 * for totals, and the difference of two lines is what happened in between. Time in which no muster ran
 * is in no line. total_s is the sum of all parts: the seconds of all ranks and of idle devices, which
 * is wall_s × ranks if ranks and devices have not changed and no device is idle.
 *
 * A line is written when a generation starts, when it is ready if steps were lost, when a checkpoint is
 * committed, after a loss, at the end, and otherwise every minute. Readers skip lines that are damaged.
 * goodput.h has the sums of each generation.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_TIME_H
#define MUSTER_LAUNCHER_RUNDIR_TIME_H

#include "base/err.h"
#include "base/fields.h"
#include "base/time_parts.h"
#include "launcher/rundir/rundir.h"

#include <stddef.h>

/* clang-format off */

#define RUNDIR_TIME_PART(F, ENUM, member, name, transfers, doc) F(member##_s, NUMBER, REQUIRED, doc)

#define RUNDIR_TIME_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "the last step of which every rank has reported its times") \
	F(ranks,   COUNT,  REQUIRED, "ranks of the generation") \
	F(devices, COUNT,  REQUIRED, "devices of the allocation, or of the first generation; a rank without one counts as another one") \
	F(wall_s,  NUMBER, REQUIRED, "seconds in which muster ran so far") \
	F(total_s, NUMBER, REQUIRED, "seconds of all ranks and idle devices: the sum of the parts") \
	F(goodput, NUMBER, REQUIRED, "0 to 1: the share of total_s in steps that count, without checkpoints, and in evaluations") \
	TIME_PARTS(RUNDIR_TIME_PART, F)

#define RUNDIR_TIME_LINE_FIELDS(F) \
	F(time,       NUMBER, REQUIRED, "seconds since 1970") \
	F(mono,       NUMBER, REQUIRED, "seconds of the monotonic clock") \
	F(generation, COUNT,  REQUIRED, "the generation") \
	RUNDIR_TIME_FIELDS(F)

/* clang-format on */

struct rundir_time {
	RUNDIR_TIME_FIELDS(FIELDS_MEMBER)
};

/* A line of the file. */
struct rundir_time_line {
	RUNDIR_TIME_LINE_FIELDS(FIELDS_MEMBER)
};

/* Appends a line, as rundir_event_*() does to events.jsonl. */
void rundir_time(struct rundir *r, uint32_t generation, const struct rundir_time *t);

/* The microseconds of each part, which add up exactly; and the reverse, with total_s and goodput. */
void rundir_time_parts(const struct rundir_time_line *l, int64_t us[TIME_PART_COUNT]);
void rundir_time_set_parts(struct rundir_time *t, const int64_t us[TIME_PART_COUNT]);

/* Calls each() for every line among the last `most` bytes of the file of this run folder; 0: of all of
 * it. Without the file it is never called. ERR_IO, or ERR_CORRUPT if it is no regular file. */
int rundir_time_each(const char *run, size_t most,
		     void (*each)(void *arg, const struct rundir_time_line *l), void *arg,
		     struct err *e);
/* The same for the text of each line, which may be damaged, without its newline. */
int rundir_time_texts(const char *run, size_t most,
		      void (*each)(void *arg, const char *text, size_t len), void *arg,
		      struct err *e);
/* The last line, in a time that does not depend on the size of the file. ERR_NOTFOUND: there is none. */
int rundir_time_last(const char *run, struct rundir_time_line *out, struct err *e);

/* For rundir_time_each(): one line without its newline. False: it is damaged, or not of this table. */
bool rundir_time_parse(const char *text, size_t len, struct rundir_time_line *out);
/* A line as an object, for state.json, and the reverse. A new reference; NULL: no memory. False: as
 * above, also if `o` is NULL. */
json_t *rundir_time_json(const struct rundir_time *t, double time, double mono,
			 uint32_t generation);
bool rundir_time_read(const json_t *o, struct rundir_time_line *out);

#endif
