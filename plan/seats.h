/*
 * seats — the ranks' places: which device each gets, who shares its node, how many threads.
 *
 * For plan.c. The map is plan/place/'s, of the job's own traffic. Block order stays where devices
 * are named one by one (launch.speeds, launch.threads), where ZeRO's shards are to lie in nodes,
 * and on one host whose CPU slots are all alike.
 */
#ifndef MUSTER_PLAN_SEATS_H
#define MUSTER_PLAN_SEATS_H

#include "plan/plan.h"

/* Sets p->ranks and p->place, and p->threads. p's shape, layout, stages, shares and micros are
 * given. */
int plan_seats_take(const struct job *job, const struct cluster *c, struct plan *p, struct err *e);

/* The ranks node by node, in rising order on each: order[first[n]] … order[first[n + 1] - 1] are
 * node n's. [n_nodes + 1], [world]. */
void plan_seats_by_node(const struct cluster *c, const struct plan *p, int *first, int *order);

#endif
