/*
 * speeds — unequal devices: the job's lists of one number a device, in the order of the ranks, and
 * the pipeline's stages that follow from them.
 *
 *     launch.speeds = 2,1,1,1     how fast each rank's device is, relative to the others
 *     launch.threads = 2,1        threads of each rank's agent; where they differ, they are the
 *                                 speeds unless launch.speeds is given
 *
 * Launcher and agents take all of this from the job's text alone, so that they agree. All but
 * speeds_read want a job that check.c has let pass. See batch.h for the replicas' unequal shares of
 * the global batch.
 */
#ifndef MUSTER_PLAN_SPEC_SPEEDS_H
#define MUSTER_PLAN_SPEC_SPEEDS_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

/* A job's text has room for no more numbers. */
enum { SPEEDS_MOST = JOB_TEXT / 2 };

/* The numbers of a list; how many, or -1 with *bad at the place that is none or lies outside
 * [least, most]. "" has none. */
int speeds_read(const char *list, double least, double most, bool whole, double out[SPEEDS_MOST],
		const char **bad);
/* Devices that the job's lists name: 0 when it has none. */
int speeds_devices(const struct job *job);
/* Of a rank's device; 1 when the job does not tell them apart. */
double speeds_rank(const struct job *job, int rank);
/* Threads of a rank's agent; 0: what the machine has for it. */
int speeds_threads(const struct job *job, int rank);

/* How fast pipeline rank pp of replica dp is, dp -1: of the slowest one: as fast as the slowest
 * of its tp × cp devices. */
double speeds_holder(const struct job *job, const struct layout *l, int dp, int pp);
/* The model's stages, [layout_n_stages]: by hand (parallel.stages), else balanced by cost and
 * speed. Fails as layout_stages does. */
int speeds_stages(const struct job *job, const struct model_shape *m, const struct layout *l,
		  struct stage *stages, struct err *e);

#endif
