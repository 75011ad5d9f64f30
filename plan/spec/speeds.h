/*
 * speeds — unequal devices: the job's lists with one number for each device, in the order of the
 * ranks, and the pipeline's stages that follow from them.
 *
 *     launch.speeds = 2,1,1,1     the speed of each rank's device relative to the others
 *     launch.threads = 2,1        threads of each rank's agent; if they differ, they are the speeds
 *                                 unless launch.speeds is given
 *     launch.speeds = 4*32,11*64  32 devices of speed 4, then 64 of speed 11
 *
 * Launcher and agents compute all of this from the job's text alone, so they agree. All functions
 * except speeds_read require a job that has passed the checks. batch.h has the replicas' unequal
 * shares of the global batch.
 */
#ifndef MUSTER_PLAN_SPEC_SPEEDS_H
#define MUSTER_PLAN_SPEC_SPEEDS_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

/* The most devices of a list, and the most items that a text of a job has room for. */
enum { SPEEDS_MAX = 1 << 20, SPEEDS_ITEMS = JOB_TEXT / 2 };

/* A list as its items: the ranks before `end` that no earlier item has. */
struct speeds_list {
	struct speeds_item {
		double number;
		int end;
	} items[SPEEDS_ITEMS];
	int n;
};

/* Reads a list and returns the number of devices that it names; 0 for "". Returns -1 and sets *bad
 * to the first place that is neither a number in [least, most] nor such a number and its count. */
int speeds_read(const char *text, double least, double most, bool whole, struct speeds_list *out,
		const char **bad);
/* Writes a list of n numbers that occur so many times each. Returns false if it does not fit. */
bool speeds_write(const int *numbers, const int *counts, int n, char out[JOB_TEXT]);
/* The number of devices that the job's lists name; 0: it has no list. */
int speeds_devices(const struct job *job);
/* The speed of a rank's device; 1 if the job names no speeds. */
double speeds_rank(const struct job *job, int rank);
/* The speed of the fastest device; 1 if the job names no speeds. */
double speeds_fastest(const struct job *job);
/* Threads of a rank's agent; 0: its share of the machine's cores. */
int speeds_threads(const struct job *job, int rank);

/* The speed of pipeline rank pp of replica dp (-1: of the slowest replica), which is the speed of
 * the slowest of its tp × cp devices. */
double speeds_holder(const struct job *job, const struct layout *l, int dp, int pp);
/* The model's stages, [layout_n_stages]: by hand (parallel.stages), otherwise balanced by cost and
 * speed. Fails as layout_stages does. */
int speeds_stages(const struct job *job, const struct model_shape *m, const struct layout *l,
		  struct stage *stages, struct err *e);

#endif
