/*
 * param_store_order — the order in which a step demands units. It is learned in the first step and
 * followed in the later ones.
 *
 * The schedule is the same in every step, so one order is enough. A demand that is not the expected
 * one (an evaluation makes such demands) moves the position to the next place that has it. The
 * position thus depends on the demands alone, and is the same on all ranks that make the same ones.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_ORDER_H
#define MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_ORDER_H

#include <stdbool.h>

struct demand_order {
	int *units;
	int n, room;
	int at; /* the place of the next demand */
	bool learned;
};

/* Notes a demand. Without memory the order ends here. */
void param_store_order_note(struct demand_order *o, int unit);
/* The step is over: the noted demands are the order. */
void param_store_order_learn(struct demand_order *o);
/* The next demand is the first of a step. Drops noted demands if nothing is learned. */
void param_store_order_rewind(struct demand_order *o);
/* The unit that is demanded `ahead` demands after the next one (0). -1: the step ends before that, or
 * nothing is learned. */
int param_store_order_peek(const struct demand_order *o, int ahead);
void param_store_order_fini(struct demand_order *o);

#endif
