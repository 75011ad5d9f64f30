/*
 * run_time — the time of a run and of each generation, as `muster status` shows it.
 */
#ifndef MUSTER_LAUNCHER_CLI_RUN_TIME_H
#define MUSTER_LAUNCHER_CLI_RUN_TIME_H

#include "launcher/console/look.h"
#include "launcher/rundir/goodput.h"

#include <jansson.h>
#include <stdio.h>

/* Reads time.jsonl and the account of the run's state. No rows: no time is known. */
void command_run_time_read(const struct look *l, struct rundir_goodput *out);
/* A new object; JSON null: no time is known. NULL: no memory. */
json_t *command_run_time_json(const struct rundir_goodput *g);
/* Prints the sums, and those of the last generations if there are several. run: the run folder. */
void command_run_time_print(const char *run, const struct rundir_goodput *g, FILE *out);

#endif
