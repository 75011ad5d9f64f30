/*
 * columns — metrics.jsonl as columns of numbers, one row per step.
 *
 * After a restart a step may appear again, and its last line counts: a row whose step is not above
 * those before it replaces them. A number that a line lacks or that is not finite is NAN. A run of
 * 500,000 steps takes about 100 MB.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_COLUMNS_H
#define MUSTER_LAUNCHER_RUNDIR_COLUMNS_H

#include "base/err.h"
#include "base/step_parts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */

/* ENUM, key in metrics.jsonl */
#define RUNDIR_COLUMNS(X) \
	X(STEP,        "step") \
	X(TIME,        "time") \
	X(GENERATION,  "generation") \
	X(LOSS,        "loss") \
	X(GRAD_NORM,   "grad_norm") \
	X(LR,          "lr") \
	X(TOKENS,      "tokens") \
	X(PEAK_BYTES,  "peak_bytes") \
	X(PREDICTED_S, "predicted_s") \
	X(STEP_S,      "step_s")

enum rundir_column {
#define RUNDIR_COLUMN_ENUM(ENUM, key) COLUMN_##ENUM,
	RUNDIR_COLUMNS(RUNDIR_COLUMN_ENUM)
#undef RUNDIR_COLUMN_ENUM
	COLUMN_PARTS, /* the first of STEP_PARTS, in their order */
	COLUMN_COUNT = COLUMN_PARTS + STEP_PART_COUNT
};

/* clang-format on */

struct rundir_columns {
	double *of[COLUMN_COUNT]; /* [n] each */
	size_t n, room;
	int64_t lines;   /* steps in the file, with those that were repeated */
	int64_t damaged; /* lines that are not whole */
};

/* Adds a row. Returns false, and changes nothing, if the row has no step, or memory is lacking. */
bool rundir_columns_add(struct rundir_columns *c, const double row[COLUMN_COUNT]);

/* Called for each line in the order of the file. */
typedef void (*rundir_columns_line)(void *arg, const double row[COLUMN_COUNT]);

/* Reads the run's metrics.jsonl; without the file there are no rows. each may be NULL. */
int rundir_columns_read(const char *run, struct rundir_columns *out, rundir_columns_line each,
			void *arg, struct err *e);
void rundir_columns_fini(struct rundir_columns *c);

/* The key of a column in metrics.jsonl. */
const char *rundir_column_key(enum rundir_column column);

#endif
