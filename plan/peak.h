/*
 * peak — the data sheet's rate of the devices that a plan uses.
 */
#ifndef MUSTER_PLAN_PEAK_H
#define MUSTER_PLAN_PEAK_H

#include "plan/plan.h"

struct plan_peak {
	/* of all ranks' devices together, FLOP/s; 0: unknown, or they are CPUs */
	double flops;
	/* "H100-SXM5-80GB"; of several kinds "32 A100-SXM4-80GB + 64 H100-SXM5-80GB" */
	char devices[160];
	int kinds; /* of devices */
};
void plan_peak_of(const struct cluster *c, const struct plan *p, struct plan_peak *out);

#endif
