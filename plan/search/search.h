/*
 * search — the best configuration of what a job leaves open, on a cluster.
 *
 * Exact: branch and bound over the whole space (space.h), whose bounds no configuration below
 * undercuts, finds the FINALISTS fastest layouts (degrees and schedule, each with its best ways) by
 * the closed forms of time and memory (eval.h). These are built as whole plans, placed and with
 * their schedules simulated, and ordered by what that says; of the largest clusters fewer, since
 * placing them takes longest. Where two take equally long the simpler one is better; the same job
 * and cluster always give the same answer.
 *
 * On processors whose agents share cores, what they lose by waiting for their turn is less sure
 * than the rest of a prediction. So of the finalists that are predicted to take at most
 * SEARCH_DOUBT longer than the fastest those come first whose threads ask for no more cores than
 * their node has, then those that ask for the fewest, of these the simpler ones: the first may be
 * predicted that much slower than the next. Where no agents share cores, on GPUs always, this
 * changes nothing.
 */
#ifndef MUSTER_PLAN_SEARCH_SEARCH_H
#define MUSTER_PLAN_SEARCH_SEARCH_H

#include "base/err.h"
#include "plan/plan.h"
#include "plan/search/eval.h"

enum { SEARCH_FINALISTS = 32, SEARCH_MISFITS = 3, SEARCH_FRONT = 12 };

struct search_found {
	struct eval_leaf leaf;
	/* of the whole plan; of a finalist that could not be built and of others the leaf's */
	struct plan_time time;
	double memory; /* bytes of the plan's largest rank */
	int nodes;     /* that it uses */
	/* threads of a node's agents over its cores, where these are processors (struct cost_machine) */
	double crowd;
};

struct search {
	struct search_found found[SEARCH_FINALISTS]; /* the best first */
	int n;
	/* faster than the best but for somewhat too much memory, the fastest first, one a layout */
	struct eval_leaf misfits[SEARCH_MISFITS];
	int n_misfits;
	/* no other configuration is both faster and smaller; ascending in memory */
	struct eval_leaf front[SEARCH_FRONT];
	int n_front;
	int64_t considered, fitting; /* configurations looked at; that fit */
};

/* What to look for besides the best. */
struct search_ask {
	bool exhaustive; /* every configuration, without bounds */
	bool front;      /* memory against time, up to SEARCH_SLOWEST times the best */
	int finalists;   /* SEARCH_FINALISTS at most */
};
#define SEARCH_SLOWEST 1.3
/* The mean error of predictions on calibrated processors (muster bench plan) is 3 to 4 %. */
#define SEARCH_DOUBT 0.03

/* ERR_NOFIT, with the least that is missing, when nothing fits. */
int search_run(const struct job *job, const struct cluster *c, const struct search_ask *ask,
	       struct search *out, struct err *e);

/* Closes the job's open keys with the best that a search finds; nothing to do where none is
 * open. */
int search_resolve(struct job *job, const struct cluster *c, struct err *e);

#endif
