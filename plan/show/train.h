/*
 * train — the predicted time to train, for people and for programs: steps, checkpoints, failures
 * (plan/cost/train.h). For plan/show only.
 */
#ifndef MUSTER_PLAN_SHOW_TRAIN_H
#define MUSTER_PLAN_SHOW_TRAIN_H

#include "plan/plan.h"

void show_train_print(const struct job *job, const struct cluster *c, const struct plan *p,
		      struct buf *out);
/* A new reference; figures that are not finite are null. */
json_t *show_train_json(const struct job *job, const struct cluster *c, const struct plan *p);

#endif
