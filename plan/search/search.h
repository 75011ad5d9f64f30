/*
 * search — finds the best configuration of the keys that a job leaves open, on a cluster.
 *
 * The search is exact: branch and bound over the whole space (space.h), with bounds that no
 * configuration below them undercuts. It finds the FINALISTS fastest layouts (degrees and schedule)
 * by the closed forms of time and memory (eval.h), each with its best remaining keys; and once more
 * with its best ones that leave room in memory (SEARCH_TIGHT), if these are others. The finalists are
 * built as whole plans: placed, with their schedules simulated, and ordered by the result. On the
 * largest clusters there are fewer, since placing them takes the longest. Configurations that leave
 * hardly any room (SPACE_ROOMY) count only if there are no others, or if no other finalist can be
 * built as a whole plan. If two take equally long, the simpler one is better. The same job and cluster
 * always give the same answer.
 * Each part of a mixed cluster (plan/parts.h) has a space of its own, and what one part has found
 * bounds the search of the others.
 *
 * The finalists that are predicted to take at most SEARCH_DOUBT longer than the fastest are ordered
 * by what is less certain than that difference, so the first one may be predicted slower than the
 * next by that much:
 *   - On processors whose agents share cores, the time that agents lose by waiting for a core is
 *     uncertain. Those whose threads ask for no more cores than their node has come first, then
 *     those that ask for the fewest, and among these the simpler ones.
 *   - Those that leave more of a device's memory free than the prediction of memory may be off come
 *     before those that do not (SEARCH_TIGHT).
 *   - Those that use fewer kinds of devices come first: how unlike devices share the work depends on
 *     the ratio of their speeds.
 */
#ifndef MUSTER_PLAN_SEARCH_SEARCH_H
#define MUSTER_PLAN_SEARCH_SEARCH_H

#include "base/err.h"
#include "plan/peak.h"
#include "plan/plan.h"
#include "plan/search/eval.h"

enum { SEARCH_FINALISTS = 32, SEARCH_MISFITS = 3, SEARCH_FRONT = 12 };

struct search_found {
	struct eval_leaf leaf;
	/* of the whole plan; the leaf's time if it is not a finalist or could not be built */
	struct plan_time time;
	double memory; /* bytes of the plan's largest rank */
	double limit;  /* bytes that a device leaves a rank; 0: unknown */
	struct plan_peak peak;
	int nodes; /* used */
	/* on processors: threads of a node's agents over its cores (struct cost_machine) */
	double crowd;
	/* of plan_warn_machines: the search has weighed what a plan says of its layout */
	char warning[PLAN_WARNING];
};

struct search {
	struct search_found found[SEARCH_FINALISTS]; /* the best first */
	int n;
	/* faster than the best, but they need somewhat too much memory; the fastest first, one per
	 * layout */
	struct eval_leaf misfits[SEARCH_MISFITS];
	int n_misfits;
	/* those for which no other configuration is both faster and smaller; by rising memory */
	struct eval_leaf front[SEARCH_FRONT];
	int n_front;
	int64_t considered, fitting; /* configurations evaluated; of them those that fit */
};

/* Options of a search. */
struct search_options {
	bool exhaustive; /* evaluate every configuration, without bounds */
	bool front;    /* find the front of memory and time, up to SEARCH_SLOWEST times the best */
	int finalists; /* at most SEARCH_FINALISTS */
};
#define SEARCH_SLOWEST 1.3
/* The mean error of predictions on calibrated processors (muster bench plan) is 3 to 4 %. */
#define SEARCH_DOUBT 0.03
/* Share of a device's memory. The largest published peak was 1.17 times its prediction
 * (tests/unit/plan/rows), so a plan below this share fits even then. */
#define SEARCH_TIGHT 0.85

/* ERR_NOFIT if nothing fits; the message names the smallest amount that is missing. */
int search_run(const struct job *job, const struct cluster *c, const struct search_options *ask,
	       struct search *out, struct err *e);

/* Sets the job's open keys to the best configuration that a search finds. Does nothing if no key is
 * open. */
int search_resolve(struct job *job, const struct cluster *c, struct err *e);

#endif
