/*
 * nearest — finds the configurations that fit and differ least from one that does not fit.
 */
#ifndef MUSTER_PLAN_SEARCH_NEAREST_H
#define MUSTER_PLAN_SEARCH_NEAREST_H

#include "plan/search/eval.h"

enum { NEAREST_MAX = 3 };

/* Stores the nearest configurations, nearest first, and returns how many there are. Each changes
 * other keys, and none changes all the keys of another one and more. The distance counts doublings
 * of degrees, where replicas are the easiest to change, and ways to save memory, where cheap ways
 * are nearer. */
int search_nearest(const struct job *job, const struct cluster *c, const struct layout *asked,
		   struct eval_leaf out[NEAREST_MAX]);

#endif
