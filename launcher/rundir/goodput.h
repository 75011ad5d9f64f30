/*
 * goodput — the time of each generation of a run, from time.jsonl.
 *
 * A line of the file has the sums of the whole run (launcher/rundir/time.h). What happened between two
 * lines belongs to
 *   - the generation of both;
 *   - the earlier one if the later line is the first of another generation: a generation lasts until
 *     the next one starts, so the wait after a loss is time of the generation that was lost;
 *   - the later one if a `muster run` began in between: only the start has taken time then.
 * What comes before the first line is the first generation's. A generation without a readable line
 * is part of the one before it.
 *
 * Steps that a restart repeats are found out when the next generation is ready, and they are lost time
 * of the generation that trained them. The supervisor writes a line at that moment. If that line is
 * gone, the steps are lost time of the generation that repeated them.
 *
 * All sums are whole microseconds. The rows add up to `all` exactly, and the parts of `all` are those of
 * the last line.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_GOODPUT_H
#define MUSTER_LAUNCHER_RUNDIR_GOODPUT_H

#include "base/err.h"
#include "launcher/rundir/time.h"

#include <stddef.h>

/* Later generations are added to the last row. */
enum { RUNDIR_GOODPUT_MOST = 1 << 16 };

struct rundir_goodput_row {
	int64_t generation;
	double since;                /* its first line, in seconds since 1970 */
	int64_t ranks, devices;      /* of its last line */
	int64_t wall;                /* microseconds in which muster ran */
	int64_t us[TIME_PART_COUNT]; /* of all ranks and idle devices */
	int64_t effective;           /* of `wall`: the goodput's share */
};

struct rundir_goodput {
	struct rundir_goodput_row *rows;
	size_t n;
	struct rundir_goodput_row all; /* generation, since and ranks are those of the last row */
};

/* Reads all of the file of this run folder. last: a line that may not be in the file yet, such as that
 * of state.json; it counts if the file has none that is later. NULL: none. Without any line there are no
 * rows. The file is read quickly, because most lines within a generation need not be parsed. */
int rundir_goodput_read(const char *run, const struct rundir_time_line *last,
			struct rundir_goodput *out, struct err *e);
void rundir_goodput_fini(struct rundir_goodput *g);

/* The share of the time that went into steps that count, 0 to 1. */
double rundir_goodput_share(const struct rundir_goodput_row *row);
/* The seconds of all ranks and idle devices. */
double rundir_goodput_total_s(const struct rundir_goodput_row *row);

/* For rundir_goodput_read(), tests and the fuzzer: a line of the file without its newline, in their
 * order; then the end. */
struct rundir_goodput_reader;
struct rundir_goodput_reader *rundir_goodput_open(struct err *e);
void rundir_goodput_feed(void *reader, const char *text, size_t len);
/* Closes the reader. out may be NULL. */
int rundir_goodput_close(struct rundir_goodput_reader *r, const struct rundir_time_line *last,
			 struct rundir_goodput *out, struct err *e);

#endif
