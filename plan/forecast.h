/*
 * forecast — predicts a job on this host's processors, for tools that measure the same job.
 */
#ifndef MUSTER_PLAN_FORECAST_H
#define MUSTER_PLAN_FORECAST_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/step_time.h"

struct forecast {
	int world;
	struct plan_time time;
	double bytes; /* of the largest rank, without a checkpoint's snapshot */
	double flops; /* of matrix products on all cores, as measured */
};

/* calibration: a file; NULL: the one of [launch] calibration. Fails with ERR_USAGE if this host was
 * not calibrated, and if plan_build fails. */
int plan_forecast_here(const struct job *job, const char *calibration, struct forecast *out,
		       struct err *e);

#endif
