/*
 * run_diff — compares two runs: their resolved jobs, the plans of their last generations, and the
 * losses and gradient norms of their steps.
 */
#ifndef MUSTER_LAUNCHER_CLI_RUN_DIFF_H
#define MUSTER_LAUNCHER_CLI_RUN_DIFF_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum run_diff_column { DIFF_LOSS, DIFF_NORM, DIFF_COLUMNS };

/* A step, with the values of both runs. relative: their difference over the larger one of them; 0: the
 * same bits, or both are not finite. */
struct run_diff_step {
	int64_t step; /* -1: none */
	double a, b, relative;
};

struct run_diff_series {
	struct run_diff_step first;   /* the first step that differs by more than the tolerance */
	struct run_diff_step largest; /* the one that differs most */
	bool in_a, in_b; /* whether the run has a value; a program need not report any */
};

struct run_diff_losses {
	int64_t common, only_a, only_b; /* steps */
	int64_t first, last;            /* of the common ones; -1: none */
	int64_t damaged;                /* lines of both files */
	struct run_diff_series of[DIFF_COLUMNS];
};

/* The last line of a step counts. */
int command_diff_losses(const char *a, const char *b, double tolerance, struct run_diff_losses *out,
			struct err *e);

/* What differs between the jobs or the plans. If a run has none, the list is empty. */
struct run_diff_keys {
	json_t *list; /* of {"key", "a", "b"}, with null for what a run lacks; new */
	bool has_a, has_b;
};

/* Both name and run_dir of the jobs are left out. */
int command_diff_jobs(const char *a, const char *b, struct run_diff_keys *out, struct err *e);
int command_diff_plans(const char *a, const char *b, struct run_diff_keys *out, struct err *e);

#endif
