/* scratch — the folder run_dir/drill-<name>, in which the runs of a drill are. */
#ifndef MUSTER_LAUNCHER_DRILL_SCRATCH_H
#define MUSTER_LAUNCHER_DRILL_SCRATCH_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <limits.h>

struct drill_scratch {
	char path[PATH_MAX];
	int lock;
};

/* Creates the folder, or empties the one that another drill left. Its file `drill` marks it: a
 * folder without that file is not touched. ERR_ABORTED: another drill runs there. */
int drill_scratch_open(const struct job *job, struct drill_scratch *s, struct err *e);
/* Removes the run of this name, also if permissions were taken from its ckpt/. */
void drill_scratch_remove(const struct drill_scratch *s, const char *run);
/* Removes the folder unless a run is left in it. Returns whether it remains. */
int drill_scratch_close(struct drill_scratch *s);

#endif
