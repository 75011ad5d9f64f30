/*
 * eval — a configuration's predicted step time and the memory of its largest rank, in a microsecond
 * or less.
 *
 * The time is cost_step's closed form (plan/cost/step.h), the memory plan_memory_rank's
 * (plan/memory.h), to the last byte. Both are computed in the order of the walk through a space,
 * outermost first, and each level keeps what the ones below it share:
 *
 *     grid      tp, cp, ep, pp, dp          links of each group, devices
 *     stream    micro, sp, recomputation    a layer's passes, its bytes
 *     line      schedule, chunks, offloaded activations: the pipeline's ranks and its time
 *     leaf      ZeRO, offloaded optimizer   all
 *
 * Each call wants the level above it to be set.
 */
#ifndef MUSTER_PLAN_SEARCH_EVAL_H
#define MUSTER_PLAN_SEARCH_EVAL_H

#include "plan/plan.h"
#include "plan/search/space.h"

#include <stdbool.h>

struct eval;

/* NULL: no memory, or a cluster whose links cannot be told (*e says). */
struct eval *search_eval_open(const struct space *s, struct err *e);
void search_eval_close(struct eval *v);

/* Each returns false where there is no such configuration. */
bool search_eval_grid(struct eval *v, int tp, int cp, int ep, int pp, int dp);
bool search_eval_stream(struct eval *v, int micro, bool sp, const struct space_recompute *again);
bool search_eval_line(struct eval *v, enum job_schedule schedule, int chunks, bool activations);
bool search_eval_zero(const struct eval *v, const struct space_zero *z);

/* No configuration below this level is faster (seconds). */
double search_eval_stream_bound(const struct eval *v);
double search_eval_line_bound(const struct eval *v);

struct eval_leaf {
	struct search_config config;
	struct plan_time time;
	struct plan_rank rank; /* the one that needs most memory: its bytes, `at`'s tp and pp */
	double limit;          /* bytes that a rank may use; 0: unknown */
	bool fits;
};
void search_eval_leaf(struct eval *v, const struct space_zero *z, bool optimizer,
		      struct eval_leaf *out);

/* All levels at once, of one configuration; false where there is none such. */
bool search_eval_config(struct eval *v, const struct search_config *c, struct eval_leaf *out);

#endif
