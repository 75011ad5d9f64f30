/*
 * show_plan — a plan for people and for programs.
 */
#ifndef MUSTER_PLAN_SHOW_PLAN_H
#define MUSTER_PLAN_SHOW_PLAN_H

#include "plan/plan.h"

#include <jansson.h>

/* The content of plan-<generation>.json and of `muster plan --json`; a new reference. */
json_t *show_plan_json(const struct job *job, const struct cluster *cluster, const struct plan *p);
/* A step's time: an object with the seconds of each part and `total`; a new reference. */
json_t *show_step_time_json(const struct plan_time *t);
/* The layout, the rank map, the memory of each rank and the predicted step, as text. */
void show_plan_text(const struct job *job, const struct cluster *cluster, const struct plan *p,
		    struct buf *out);

#endif
