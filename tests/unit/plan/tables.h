/* tables — pipeline schedules for the tests. */
#ifndef MUSTER_TESTS_UNIT_PLAN_TABLES_H
#define MUSTER_TESTS_UNIT_PLAN_TABLES_H

#include "plan/spec/schedule/schedule.h"

#include <stddef.h>

/* Every schedule: with its least number of chunks, and with one more chunk if it takes more. */
struct table_form {
	enum job_schedule kind;
	int chunks;
};
enum { RANKS_MAX = 9, STAGES_MAX = RANKS_MAX * 4 };
extern struct table_form forms[2 * SCHEDULES];
extern int n_forms;

struct layout table_layout(enum job_schedule kind, int pp, int chunks);
/* The table with the least number of chunks of the schedule, or with the given number. The caller
 * frees it. The test fails if there is no such table. */
struct schedule table(enum job_schedule kind, int pp, int micros);
struct schedule table_of(enum job_schedule kind, int pp, int chunks, int micros);

/* must_pass: the checker must accept the schedule. must_refuse: the checker must refuse it with the
 * text `what`; frees the schedule. */
void must_pass(const struct schedule *s);
void must_refuse(struct schedule *s, const char *what);
/* A rank's row must be this one. */
void must_be(const struct schedule *s, int rank, const struct sched_step *steps, size_t n);

/* The time if every pass of every stage takes equally long. A rank's stages together take one
 * forward, one input, one weight. */
double simulate(const struct schedule *s, double forward, double input, double weight, double hop,
		double *bubble);
/* The two are equal except for rounding. */
void near(double a, double b);

#endif
