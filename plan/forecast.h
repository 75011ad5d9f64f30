/*
 * forecast — what a plan says of a job on this host's processors, for tools that measure the same.
 */
#ifndef MUSTER_PLAN_FORECAST_H
#define MUSTER_PLAN_FORECAST_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/time.h"

struct forecast {
	int world;
	struct plan_time time;
	double bytes; /* of the rank with most, without a checkpoint's copy */
	double flops; /* of matrix products on all cores, as measured */
};

/* calibration: a file, NULL: [launch] calibration's. ERR_USAGE when this host was not
 * calibrated; all that plan_build refuses. */
int plan_forecast_here(const struct job *job, const char *calibration, struct forecast *out,
		       struct err *e);

#endif
