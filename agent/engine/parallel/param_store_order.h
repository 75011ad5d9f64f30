/*
 * store_order — the order in which units are asked for, learned from the first step and followed
 * after.
 *
 * The schedule is the same in every step, so one is enough. A demand that is not the next one (an
 * evaluation's) moves to the next place that has it; so the place depends on the demands alone, and
 * is the same on all ranks that make the same ones.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_STORE_ORDER_H
#define MUSTER_AGENT_ENGINE_PARALLEL_STORE_ORDER_H

#include <stdbool.h>

struct demand_order {
	int *units;
	int n, room;
	int at; /* the next demand's place */
	bool learned;
};

/* A unit is asked for. Where there is no memory to note it the order ends there. */
void param_store_order_note(struct demand_order *o, int unit);
/* The step is over: what was noted is the order. */
void param_store_order_learn(struct demand_order *o);
/* The next demand is a step's first; while nothing is learned, what was noted before it is not
 * the step's. */
void param_store_order_rewind(struct demand_order *o);
/* The unit that is asked for `ahead` demands after the next (0), -1 when the step is over before
 * it, or nothing is learned. */
int param_store_order_peek(const struct demand_order *o, int ahead);
void param_store_order_fini(struct demand_order *o);

#endif
