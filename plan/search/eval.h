/*
 * eval — predicts the step time of a configuration and the memory of its largest rank, in a
 * microsecond or less.
 *
 * The time is the closed form of cost_step (plan/cost/step.h). The memory is exactly that of
 * plan_memory_rank (plan/plan.h). Both are computed in the order in which a search visits a space,
 * outermost level first. Each level keeps what the levels below it share:
 *
 *     grid      tp, cp, ep, pp, dp          links of each group, devices
 *     stream    micro, sp, recomputation    a layer's passes and bytes
 *     line      schedule, chunks, offloaded activations: the pipeline's ranks and its time
 *     leaf      ZeRO, offloaded optimizer   everything
 *
 * The level above must be set before each call.
 */
#ifndef MUSTER_PLAN_SEARCH_EVAL_H
#define MUSTER_PLAN_SEARCH_EVAL_H

#include "plan/plan.h"
#include "plan/search/space.h"

#include <stdbool.h>

struct eval;

/* Returns NULL if memory is lacking or the cluster's links are unknown (*e has the cause). */
struct eval *search_eval_open(const struct space *s, struct err *e);
void search_eval_close(struct eval *v);

/* Each returns false if there is no such configuration. */
bool search_eval_grid(struct eval *v, int tp, int cp, int ep, int pp, int dp);
bool search_eval_stream(struct eval *v, int micro, bool sp, const struct space_recompute *again);
bool search_eval_line(struct eval *v, enum job_schedule schedule, int chunks, bool activations);
bool search_eval_zero(const struct eval *v, const struct space_zero *z);

/* Seconds; no configuration below this level is faster. */
double search_eval_stream_bound(const struct eval *v);
double search_eval_line_bound(const struct eval *v);

/* A configuration that needs more than so many times the memory is not reported as a misfit. */
#define EVAL_NEARLY 1.5

struct eval_leaf {
	struct search_config config;
	struct plan_time time;
	/* The rank that needs the most memory: its bytes, and tp and pp of `at`. Logits are in the
	 * largest chunk that fits; in the smallest one if none fits, and in the job's if even that
	 * would need more than EVAL_NEARLY times the limit. */
	struct plan_rank rank;
	double limit; /* bytes that a rank may use; 0: unknown */
	/* bytes of a node's memory that each of its ranks needs in the mean, on the fullest node,
	 * and may use */
	double host, host_limit;
	bool fits;
};
void search_eval_leaf(struct eval *v, const struct space_zero *z, bool optimizer,
		      struct eval_leaf *out);

/* Evaluates all levels of one configuration. Returns false if there is no such configuration. */
bool search_eval_config(struct eval *v, const struct search_config *c, struct eval_leaf *out);

#endif
