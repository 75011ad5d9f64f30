/*
 * find — the run folder that a person means by a word.
 *
 * A word is the path of a run folder, or a run's name below one of the folders in which runs are
 * looked for: $MUSTER_RUNS, if it is set, and the default of [job] run_dir, which is runs/ of the
 * current folder. A path wins over a name.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_FIND_H
#define MUSTER_LAUNCHER_RUNDIR_FIND_H

#include "base/err.h"
#include "base/run_paths.h"

#include <stdbool.h>

/* out: the folder's path, as the word or the folder of runs begins it, without a `/` at its end.
 * ERR_NOTFOUND: no run has this name; the text has the nearest one. ERR_DENIED: the folder may not
 * be read; the text says whose it is. */
int rundir_find(const char *word, char out[RUN_PATH], struct err *e);

/* Whether the folder holds a file that only a run or a submission writes. */
bool rundir_is_run(const char *folder);

/* The folder in which runs are looked for first. */
void rundir_find_folder(char out[RUN_PATH]);

#endif
