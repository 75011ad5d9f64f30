/*
 * policy — where the next generation runs. It decides after a loss of nodes or devices, and when
 * nodes are back. It plans, and does nothing else.
 *
 * After a loss the first possibility of this list is taken that [restart] shrink permits:
 *
 *     same     everything that the generation used is still there: the same plan
 *     spare    the same layout on other nodes: spares, or nodes that were not used
 *     dp       the same layout with a lower data-parallel degree      shrink = dp, any
 *     replan   the layout that the planner finds for what is left     shrink = any
 *     requeue  the job begins again in the queue without the lost nodes; a job with GPUs waits for
 *              [restart] patience until Slurm counts them as down, or would lose its GPUs
 *     wait     until a lost node returns, for [restart] patience
 *     give up
 *
 * shrink.h chooses between dp and replan. The global batch never changes: fewer replicas accumulate
 * more micro-batches, so the losses are those of the old layout up to rounding.
 *
 * If nodes are back, the run grows to the layout that it began with, otherwise to the same with a
 * lower dp, otherwise, with shrink = any, to the one that the planner finds. The step must be
 * predicted to become at least 5 % faster. Of a program no step is predicted: it grows if it gets more
 * ranks (recovery.h says when). If the run should leave a node that is slow (exclude.h),
 * the first possibility of spare, dp and replan is taken. With regrow = requeue the job is
 * otherwise requeued if nodes that have left it are free.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_POLICY_H
#define MUSTER_LAUNCHER_SUPERVISE_POLICY_H

#include "launcher/deployment.h"
#include "launcher/supervise/pool.h"

enum recovery {
	RECOVERY_SAME,
	RECOVERY_SPARE,
	RECOVERY_DP,
	RECOVERY_REPLAN,
	RECOVERY_REQUEUE,
	RECOVERY_WAIT,
	RECOVERY_GIVE_UP,
	RECOVERY_GROW,
	RECOVERIES
};

/* Its word in the list above, such as "replan"; "grow". */
const char *supervise_recovery_word(enum recovery how);

struct policy_request {
	const struct job *job;          /* as it was asked for: keys may be open */
	const struct deployment *first; /* what the first generation ran */
	const struct deployment *now;   /* what the lost generation ran */
	const struct pool *pool;
	bool can_requeue;
	double waited; /* seconds, for lost nodes */
	int free;      /* nodes that have left the job and could be had again */
};

struct policy_option {
	enum recovery how;
	bool possible;
	double step_s;  /* predicted seconds of a step; 0: none is predicted */
	char text[240]; /* the layout, or why it is impossible */
};

/* Growing costs a checkpoint and a start, so it must make the step this much faster. */
#define POLICY_GAIN_MIN 1.05

enum { POLICY_OPTIONS = RECOVERIES };

struct policy_decision {
	enum recovery how;
	struct policy_option options[POLICY_OPTIONS]; /* those that were examined, in order */
	int n;
	struct deployment *next; /* what runs next; NULL: nothing else than before */
};

/* Decides after a loss. The caller owns out->next. */
void supervise_policy_recover(const struct policy_request *r, struct policy_decision *out);
/* Decides whether to grow: how is RECOVERY_GROW with `next`, RECOVERY_REQUEUE, or RECOVERY_SAME. */
void supervise_policy_grow(const struct policy_request *r, struct policy_decision *out);

/* Decides whether to leave nodes that the pool does not permit although they are there: how is
 * RECOVERY_SPARE, RECOVERY_DP or RECOVERY_REPLAN with `next`, or RECOVERY_SAME. step_most:
 * predicted seconds of a step above which the run stays. */
void supervise_policy_leave(const struct policy_request *r, double step_most,
			    struct policy_decision *out);

/* The option that was chosen; NULL with give up. */
const struct policy_option *supervise_policy_chosen(const struct policy_decision *d);
/* A line for people, such as "dp: tp 2 × dp 1 × pp 2 on 4 of 6 devices, 12.1 ms a step
 * predicted". */
void supervise_policy_print(const struct policy_option *o, struct buf *out);
/* [{"how", "possible", "step_s", "text"}, …]; a new reference. */
json_t *supervise_policy_json(const struct policy_decision *d);

#endif
