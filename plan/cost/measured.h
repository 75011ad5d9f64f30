/*
 * cost_measured — predictions from what was measured on this host (topo/measured.h).
 */
#ifndef MUSTER_PLAN_COST_MEASURED_H
#define MUSTER_PLAN_COST_MEASURED_H

#include "plan/cost/machine.h"
#include "topo/measured.h"

#include <stdbool.h>

/* A machine with these rates. Its other members are 0. */
void cost_measured_rates(const struct machine_rates *rates, struct cost_machine *out);
/* An agent with `threads` threads, one of `agents` on the host, as fast as it is while it has its
 * cores. (If agents × threads exceeds the cores, everything takes longer by place_exchange_share.)
 * Returns false if nothing was measured in that storage type. */
bool cost_measured_machine(const struct measured *m, int agents, int threads, bool low_precision,
			   struct cost_machine *out);

/* The measured time of one operation. Rates are fitted to many of them. */
struct measured_point {
	enum rate_class class;
	double x; /* on the class's curve */
	double work, seconds;
	double weights; /* bytes of a product's weights, 0 for other classes */
};
/* Fits the curves and the packing to the points. Products of similar size, which come in many
 * shapes, count by their mean. Returns false if a class that every model needs has no point. */
bool cost_measured_fit(const struct measured_point *points, int n, struct machine_rates *out);

#endif
