/*
 * time_parts — the parts that the time of a run is split into.
 *
 * Each second of each rank belongs to exactly one row of this table, from the start of `muster run` to
 * its end, and so does each second of a device that no rank uses. The supervisor keeps the sums
 * (launcher/supervise/account.h), and time.jsonl holds them (launcher/rundir/time.h). The parts of a
 * step are those of base/step_parts.h.
 *
 * To add a part of a step, add its row there. To add another part, add its row here, and book it in
 * launcher/supervise/account.c.
 */
#ifndef MUSTER_BASE_TIME_PARTS_H
#define MUSTER_BASE_TIME_PARTS_H

#include "base/err.h"
#include "base/step_parts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* clang-format off */

/* The columns are those of STEP_PARTS. The rows from DATA to UNREPORTED are the time of training, and those of a step come first. */
#define TIME_PARTS(X, with) \
	X(with, START,      start,      "start",            false, "from the start of muster, with the checks of nodes, until the rank is ready for the first time") \
	STEP_PARTS(X, with) \
	X(with, EVALUATION, evaluation, "evaluation",       false, "seconds in evaluations") \
	X(with, SLOWEST,    slowest,    "slower ranks",     false, "the part of the communication in which the rank waited for a slower rank of its pipeline stage; the other parts do not contain it") \
	X(with, UNREPORTED, unreported, "not reported",     false, "seconds of training of which the rank's report has not come: up to some seconds before now, and before the death of a rank") \
	X(with, LOST,       lost,       "lost steps",       false, "seconds of training that was repeated after a restart, and of the steps that a loss or a stop at once interrupted") \
	X(with, RESTART,    restart,    "restarts",         false, "from a loss, or from the last step before a change of nodes, until the rank is ready again, with the wait for nodes and the back-off") \
	X(with, STOP,       stop,       "stop",             false, "from the rank's last step and its checkpoint until muster ends") \
	X(with, IDLE,       idle,       "idle devices",     false, "seconds of devices of the allocation that no rank uses: spares, and those that a shrunk run left")

enum time_part {
#define TIME_PART_ENUM(with, ENUM, member, name, transfers, doc) TIME_##ENUM,
	TIME_PARTS(TIME_PART_ENUM, )
#undef TIME_PART_ENUM
	TIME_PART_COUNT
};

enum {
	TIME_STEP = TIME_DATA, /* + enum step_part: a part of a step */
	/* how many parts a rank reports, and how many a restart may turn into TIME_LOST: all from TIME_STEP on */
	TIME_REPORTED = TIME_EVALUATION - TIME_DATA + 1,
	TIME_TRAINED = TIME_UNREPORTED - TIME_DATA + 1
};

/* clang-format on */

/* For people, such as "data parallel". */
const char *time_part_name(enum time_part part);
/* Whether it is communication of a step. */
bool time_part_transfers(enum time_part part);
/* Whether it is time of steps that count: goodput is the share of these parts. */
bool time_part_counts(enum time_part part);

/* The sum of all parts. */
int64_t time_parts_sum(const int64_t parts[TIME_PART_COUNT]);
/* The share of the parts that count, 0 to 1; 0: no time has passed. */
double time_parts_goodput(const int64_t parts[TIME_PART_COUNT]);

/* The parts that a rank reports as a list, in the order of TIME_PARTS from TIME_STEP on: large runs send
 * many, and names would cost more than the numbers. A new reference; NULL: no memory. */
json_t *time_reported_json(const int64_t us[TIME_REPORTED]);
/* Whether they can be times of a rank. */
bool time_reported_valid(const int64_t us[TIME_REPORTED]);
/* ERR_PROTO: it is no such list. */
int time_reported_read(const json_t *list, int64_t us[TIME_REPORTED], struct err *e);

#endif
