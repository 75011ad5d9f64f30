/* cmd_plan — the parts of `muster plan`. */
#ifndef MUSTER_LAUNCHER_CLI_CMD_PLAN_H
#define MUSTER_LAUNCHER_CLI_CMD_PLAN_H

#include "plan/plan.h"
#include "plan/search/search.h"

#include <jansson.h>
#include <stdbool.h>

/* What to do with the schedule. */
struct plan_schedule_options {
	const char *svg;      /* file to write; NULL: none */
	const char *measured; /* run folder whose last step is drawn next to it; NULL: none */
	bool json;
};

/* Draws the plan's schedule. Returns the exit status. */
int cmd_plan_schedule(const struct job *job, const struct plan *plan,
		      const struct plan_schedule_options *o);

/* Searches the keys that the job leaves to muster, and prints the result. spares: the names of the
 * nodes that are not in the cluster because they are spare. Returns the exit status. */
int cmd_plan_auto(const struct job *job, const struct cluster *cluster, json_t *spares, bool json);
/* Searches them for other sizes of the cluster that spec names. range: numbers of devices;
 * "64..4096" doubles from 64 to 4096. svg: file to draw into; NULL: none. */
int cmd_plan_scaling(const struct job *job, const char *spec, const char *range, const char *svg,
		     bool json);

#endif
