/*
 * from_run — an event file of TensorBoard from the files of a run.
 *
 * It holds what metrics.tensorboard writes while a run goes on, but for the text of the plan, which
 * is the JSON of the last generation's.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_FROM_RUN_H
#define MUSTER_LAUNCHER_EXPORTS_FROM_RUN_H

#include "base/err.h"
#include "base/run_paths.h"

#include <stdbool.h>
#include <stdint.h>

/* path: of the new file in `folder`, which is created if it is missing. damaged: as
 * exports_series_read(). *unwritable: whether an error is of the folder or the new file, and not of
 * the run. */
int exports_tb_from_run(const char *run, const char *folder, char path[RUN_PATH], int64_t *damaged,
			bool *unwritable, struct err *e);

#endif
