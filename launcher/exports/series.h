/*
 * series — the steps, evaluations and checkpoints of a run that count, from its files.
 *
 * After a restart steps are repeated, and the later ones count: those of a generation count up to
 * the step before the first one of any later generation. So the files are read twice, first for
 * those steps. A line that a running muster has not completed yet is left out.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_SERIES_H
#define MUSTER_LAUNCHER_EXPORTS_SERIES_H

#include "base/err.h"
#include "launcher/rundir/follow.h"

#include <stdint.h>

/* Each is called in the order of its file, and all calls of `event` come first. */
struct exports_series_reader {
	/* eval, ckpt and the events without a step; step: -1 */
	void (*event)(void *arg, const struct rundir_line *l, int64_t step);
	void (*metrics)(void *arg, const struct rundir_line *l, int64_t step);
	void *arg;
};

/* damaged: lines that cannot be read. ERR_NOTFOUND: the run has no metrics. */
int exports_series_read(const char *run, const struct exports_series_reader *r, int64_t *damaged,
			struct err *e);

#endif
