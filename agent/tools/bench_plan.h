/*
 * bench_plan — the parts of `muster bench plan`.
 *
 *     bench_plan.c        the command line; predicts, measures
 *     bench_plan_jobs.c   what is run where nothing is asked for
 *     bench_plan_print.c  tables, JSON
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_PLAN_H
#define MUSTER_AGENT_TOOLS_BENCH_PLAN_H

#include "agent/tools/bench_train.h"

#include <jansson.h>
#include <stdbool.h>

struct bench_plan_job {
	/* what it is called; forms of one name compute the same and are held against one another */
	const char *model;
	const char *words;  /* that all forms of it share */
	const char *layout; /* and those of this one */
};
extern const struct bench_plan_job bench_plan_jobs[];
extern const int bench_plan_n_jobs;

enum { BENCH_PLAN_STEPS = 4096 };

/* One form, predicted and measured. */
struct bench_plan_form {
	const struct bench_plan_job *job;
	int world;
	/* measured.total: the median step; its other parts: means */
	struct plan_time predicted, measured;
	double predicted_bytes, measured_bytes; /* of the rank with most */
	/* of matrix products just before its turns, over the calibration's: mean; 0: not known */
	double speed;
	double seconds[BENCH_PLAN_STEPS];
	int n;
};

double bench_plan_time_error(const struct bench_plan_form *f); /* relative */
/* The same with measured times brought to the speed that the machine was calibrated at: virtual
 * ones change theirs from minute to minute. */
double bench_plan_paired_error(const struct bench_plan_form *f);
double bench_plan_memory_error(const struct bench_plan_form *f);

void bench_plan_print(const struct bench_plan_form *forms, int n, bool parts);
/* A new reference. */
json_t *bench_plan_json(const struct bench_plan_form *forms, int n);

#endif
