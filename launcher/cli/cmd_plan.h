/* cmd_plan — the parts of `muster plan`. */
#ifndef MUSTER_LAUNCHER_CLI_CMD_PLAN_H
#define MUSTER_LAUNCHER_CLI_CMD_PLAN_H

#include "plan/plan.h"
#include "plan/search/search.h"

#include <stdbool.h>

/* What of the schedule is asked for. */
struct plan_schedule_options {
	const char *svg;      /* file to write, or NULL */
	const char *measured; /* run folder whose last step is drawn beside it, or NULL */
	bool json;
};

/* Draws the plan's schedule; the exit status. */
int cmd_plan_schedule(const struct job *job, const struct plan *plan,
		      const struct plan_schedule_options *o);

/* Searches what the job leaves open, and prints what was found; the exit status. */
int cmd_plan_auto(const struct job *job, const struct cluster *cluster, bool json);
/* The same on other sizes of the cluster that spec names: range "64..4096" counts devices,
 * doubling. svg: file to draw into, or NULL. */
int cmd_plan_scaling(const struct job *job, const char *spec, const char *range, const char *svg,
		     bool json);

#endif
