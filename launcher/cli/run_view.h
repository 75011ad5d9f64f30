/*
 * run_view — a run as `muster status` and `muster ls` show it.
 */
#ifndef MUSTER_LAUNCHER_CLI_RUN_VIEW_H
#define MUSTER_LAUNCHER_CLI_RUN_VIEW_H

#include "launcher/console/look.h"

#include <jansson.h>
#include <stdio.h>

enum { RUN_VIEW_AGE = 24 };

/* The exit status of `muster status`: as `muster run` has ended, STATUS_LOST, or STATUS_DONE. */
int command_run_exit(const struct look *l);
/* A new object: what state.json has, and how it is known. NULL: no memory. */
json_t *command_run_json(const struct look *l);
/* Prints all that is known, for people. */
void command_run_print(const struct look *l, FILE *out);
/* "12 s", "5 min", "3 h", "8 d" */
const char *command_run_age(double seconds, char out[RUN_VIEW_AGE]);

#endif
