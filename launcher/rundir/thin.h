/*
 * thin — keeps the files of JSON lines of a run below a bound, however long it goes on.
 *
 * Each file has a share of the bound. It is split at an eighth of its share, at most at 64 MiB
 * (launcher/rundir/output.h). Segments have levels: level 0 is complete, and each thinning raises
 * the level by one. All segments of level n, with level 0 the file itself, may take a share of
 * 1/2^(n+1) of what the file may take. If they take more, the oldest one of them is thinned. So old
 * history becomes coarser and coarser, recent history is complete, and the sum stays below the bound.
 *
 * What a thinning to level n keeps:
 *   metrics.jsonl   steps that are multiples of 8^n
 *   events.jsonl    level 1: all but hello, log and refused. Above that 1 of 8 of each event, except
 *                   that those which tell the story of the run (RUNDIR_THIN_STORY in thin_lines.c)
 *                   are complete up to level 3. hello and ready of the last two generations stay:
 *                   a later supervisor reads from them which agents may still run
 *   other files     1 of 8 lines
 * The first and the last line of each generation of a segment stay in all files but events.jsonl, and so
 * does the second one of time.jsonl, which may say what was lost (goodput.h). At the last level the
 * oldest segment is removed.
 *
 * A thinned segment replaces the old one by one rename, after it was synced, so after a crash one of
 * the two is there. A segment is locked while it is thinned, so two processes never thin the same
 * one. If the disk is full, the segment stays as it is, and the next split tries again.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_THIN_H
#define MUSTER_LAUNCHER_RUNDIR_THIN_H

#include "base/err.h"
#include "base/run_paths.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* clang-format off */

/* ENUM, name, 1/share of the bound. The shares sum to at most 1. */
#define RUNDIR_FILES(X) \
	X(METRICS, RUN_METRICS, 2) \
	X(EVENTS,  RUN_EVENTS,  4) \
	X(HEALTH,  RUN_HEALTH,  8) \
	X(TIME,    RUN_TIME,    8)

enum rundir_file {
#define RUNDIR_FILE_ENUM(ENUM, name, share) RUNDIR_##ENUM,
	RUNDIR_FILES(RUNDIR_FILE_ENUM)
#undef RUNDIR_FILE_ENUM
	RUNDIR_FILE_COUNT
};

/* clang-format on */

/* The bound unless rundir_set_keep() sets another one, and the highest level. */
#define RUNDIR_KEEP ((int64_t)1 << 30)
enum { RUNDIR_THIN_LEVELS = 8 };

const char *rundir_thin_name(enum rundir_file file);
/* The size at which the file is split. */
off_t rundir_thin_split(enum rundir_file file, int64_t keep);

struct rundir_thinning {
	char folder[RUN_PATH];
	int64_t keep;
	uint32_t generation;  /* the current one */
	atomic_bool stop;     /* set by another thread: rundir_thin() returns soon */
	int thinned, removed; /* segments */
	struct err why;       /* of a segment that could not be thinned; code ERR_NONE: none */
};

/* Thins what is to be thinned. May run on any thread while the run writes; needs the lock of the
 * run folder, which the process holds. */
void rundir_thin(struct rundir_thinning *t);

/* For rundir_thin(): writes the segment anew at this level. Returns 1; 0 if another process thins
 * it or t->stop was set. ERR_FULL and others: the old segment is there still. */
int rundir_thin_segment(struct rundir_thinning *t, enum rundir_file file, uint32_t number,
			int level, struct err *e);

/* Decides which lines stay. */
struct rundir_thin_filter;
int rundir_thin_filter_open(enum rundir_file file, int level, uint32_t generation,
			    struct rundir_thin_filter **out, struct err *e);
void rundir_thin_filter_close(struct rundir_thin_filter *f);
/* Whether the line stays. next: the line after it, NULL at the end. */
bool rundir_thin_keeps(struct rundir_thin_filter *f, const char *line, size_t n, const char *next,
		       size_t next_n);

#endif
