/*
 * bench_plan — the files of `muster bench plan`.
 *
 *     bench_plan.c        the command line; predicts and measures
 *     bench_plan_jobs.c   the jobs that run if none are given
 *     bench_plan_print.c  tables, JSON
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_PLAN_H
#define MUSTER_AGENT_TOOLS_BENCH_PLAN_H

#include "agent/tools/bench_train.h"

#include <jansson.h>
#include <stdbool.h>

struct bench_plan_job {
	/* the model's name; forms with the same name compute the same and are compared */
	const char *model;
	const char *words;  /* that all forms of the model share */
	const char *layout; /* of this form */
};
extern const struct bench_plan_job bench_plan_jobs[];
extern const int bench_plan_n_jobs;

enum { BENCH_PLAN_STEPS = 4096 };

/* A form: its prediction and its measurement. */
struct bench_plan_form {
	const struct bench_plan_job *job;
	int world;
	/* measured.total: the median step; its other parts: means */
	struct plan_time predicted, measured;
	double predicted_bytes, measured_bytes; /* of the rank with the most memory */
	/* speed of matrix products just before the form's turns, relative to the calibration: mean;
	 * 0: unknown */
	double speed;
	double seconds[BENCH_PLAN_STEPS];
	int n;
};

double bench_plan_time_error(const struct bench_plan_form *f); /* relative */
/* Like bench_plan_time_error, with measured times scaled to the machine's speed during the
 * calibration. The speed of virtual machines changes from minute to minute. */
double bench_plan_paired_error(const struct bench_plan_form *f);
double bench_plan_memory_error(const struct bench_plan_form *f);

void bench_plan_print(const struct bench_plan_form *forms, int n, bool parts);
/* A new reference. */
json_t *bench_plan_json(const struct bench_plan_form *forms, int n);

#endif
