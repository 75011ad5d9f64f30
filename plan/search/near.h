/*
 * near — the configurations nearest to an asked one that fit: what to change when it does not.
 */
#ifndef MUSTER_PLAN_SEARCH_NEAR_H
#define MUSTER_PLAN_SEARCH_NEAR_H

#include "plan/search/eval.h"

enum { NEAR_MOST = 3 };

/* The nearest ones, each with other keys changed and none with more than another needs, nearest
 * first: how many there are. A distance is in doublings of degrees, where replicas are the easiest
 * to change, and in ways of saving memory, the cheaper the nearer. */
int search_nearest(const struct job *job, const struct cluster *c, const struct layout *asked,
		   struct eval_leaf out[NEAR_MOST]);

#endif
