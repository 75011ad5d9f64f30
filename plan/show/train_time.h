/*
 * train_time — shows the predicted time to train to people and to programs: steps, checkpoints, and
 * failures (plan/cost/train_time.h). For plan/show only.
 */
#ifndef MUSTER_PLAN_SHOW_TRAIN_TIME_H
#define MUSTER_PLAN_SHOW_TRAIN_TIME_H

#include "plan/plan.h"

void show_train_time_print(const struct job *job, const struct cluster *c, const struct plan *p,
			   struct buf *out);
/* A new reference; figures that are not finite are null. */
json_t *show_train_time_json(const struct job *job, const struct cluster *c, const struct plan *p);

#endif
