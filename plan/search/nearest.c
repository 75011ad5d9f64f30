#include "plan/search/nearest.h"

#include "plan/parts.h"
#include "plan/search/visit.h"

#include <math.h>
#include <stdlib.h>

enum {
	WAYS = OPEN_ZERO | OPEN_ZERO_SHARD | OPEN_MODE | OPEN_EVERY | OPEN_ACTIVATIONS |
	       OPEN_OPTIMIZER | OPEN_SP | OPEN_MICRO,
	DEGREES = OPEN_TP | OPEN_PP | OPEN_DP | OPEN_CP
};

struct ranking {
	struct search_config asked;
	struct eval_leaf *leaves;
	double distances[NEAREST_MAX];
	unsigned changes[NEAREST_MAX];
	int n;
};

static double doublings(int a, int b)
{
	return fabs(log2((double)a / b));
}

static double distance(const struct search_config *a, const struct search_config *b)
{
	static const double modes[] = {
		[RECOMPUTE_NONE] = 0, [RECOMPUTE_SELECTIVE] = 0.4, [RECOMPUTE_FULL] = 1.2
	};
	double again = fabs(modes[a->mode] - modes[b->mode]) +
		       (a->mode == b->mode || b->every > 1 ? 0.3 * doublings(a->every, b->every)
							   : 0);
	double ways = 0.6 * abs(a->zero - b->zero) + 0.3 * (a->shard != b->shard) +
		      0.3 * (a->sp != b->sp) + again + 2.5 * (a->activations != b->activations) +
		      2 * (a->optimizer != b->optimizer) + 0.7 * doublings(a->micro, b->micro);
	bool odd = b->pp != a->pp && (b->pp & (b->pp - 1)); /* people prefer powers of two */
	return 0.6 * odd + doublings(a->tp, b->tp) + doublings(a->pp, b->pp) +
	       2 * doublings(a->cp, b->cp) + 0.5 * doublings(a->dp, b->dp) + ways;
}

/* The keys that differ, one bit for each kind of key. */
static unsigned changed(const struct search_config *a, const struct search_config *b)
{
	return (unsigned)(a->tp != b->tp) | (unsigned)(a->pp != b->pp) << 7 |
	       (unsigned)(a->dp != b->dp) << 8 | (unsigned)(a->cp != b->cp) << 9 |
	       (unsigned)(a->zero != b->zero || a->shard != b->shard) << 1 |
	       (unsigned)(a->mode != b->mode || a->every != b->every) << 2 |
	       (unsigned)(a->activations != b->activations) << 3 |
	       (unsigned)(a->optimizer != b->optimizer) << 4 | (unsigned)(a->sp != b->sp) << 5 |
	       (unsigned)(a->micro != b->micro) << 6;
}

/* Whether it is nearer, or equally near and faster. */
static bool before(const struct ranking *r, double d, const struct eval_leaf *leaf, int i)
{
	if (fabs(d - r->distances[i]) > 1e-9)
		return d < r->distances[i];
	return leaf->time.total < r->leaves[i].time.total;
}

static void insert_leaf(struct ranking *r, int at, double d, unsigned mask,
			const struct eval_leaf *leaf)
{
	r->distances[at] = d;
	r->changes[at] = mask;
	r->leaves[at] = *leaf;
}

static void drop(struct ranking *r, int at)
{
	r->n--;
	for (; at < r->n; at++)
		insert_leaf(r, at, r->distances[at + 1], r->changes[at + 1], &r->leaves[at + 1]);
}

/* Adds a configuration that fits to the ranking. If it changes more keys than another one and is
 * not nearer, it is left out; others are dropped for the same reason. */
static void look(void *arg, const struct eval_leaf *leaf)
{
	struct ranking *r = arg;
	unsigned mask = changed(&r->asked, &leaf->config);
	double d = distance(&r->asked, &leaf->config);
	if (!leaf->fits || !mask)
		return;
	for (int i = 0; i < r->n; i++)
		if ((r->changes[i] & mask) == r->changes[i] && !before(r, d, leaf, i))
			return;
	for (int i = r->n - 1; i >= 0; i--)
		if ((r->changes[i] & mask) == mask && before(r, d, leaf, i))
			drop(r, i);
	if (r->n == NEAREST_MAX && !before(r, d, leaf, r->n - 1))
		return;
	int at = r->n < NEAREST_MAX ? r->n++ : r->n - 1;
	for (; at > 0 && before(r, d, leaf, at - 1); at--)
		insert_leaf(r, at, r->distances[at - 1], r->changes[at - 1], &r->leaves[at - 1]);
	insert_leaf(r, at, d, mask, leaf);
}

/* Visits all configurations of a job's open keys on a part of the cluster. */
static void visit_part(const struct job *job, const struct plan_parts *parts, int i,
		       struct ranking *r)
{
	struct plan_part part;
	struct space *s = calloc(1, sizeof *s);
	if (s && !plan_part_open(parts, i, &part, NULL)) {
		struct eval *v = search_space_open(job, &part.cluster, s, NULL)
					 ? NULL
					 : search_eval_open(s, NULL);
		if (v)
			search_visit_space(s, v, &(struct space_visitor){ .arg = r, .leaf = look },
					   NULL);
		search_eval_close(v);
		plan_part_close(&part);
	}
	free(s);
}

/* Visits all configurations with these keys open, on each part of the cluster. The other keys are
 * the job's own, and dp is the layout's. */
static void try_changes(const struct job *job, const struct plan_parts *parts,
			const struct layout *asked, uint32_t open, struct ranking *r)
{
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	if (mine) {
		*mine = *job;
		mine->parallel.dp = asked->dp;
		mine->open = open;
	}
	for (int i = 0; mine && i < parts->n; i++)
		visit_part(mine, parts, i, r);
	free(mine);
}

int search_nearest(const struct job *job, const struct cluster *c, const struct layout *asked,
		   struct eval_leaf out[NEAREST_MAX])
{
	struct ranking r = { .asked = search_config_of(job, asked->dp), .leaves = out };
	struct plan_parts parts;
	if (job->parallel.sync == SYNC_SERVER || plan_parts_open(job, c, &parts, NULL))
		return 0;
	try_changes(job, &parts, asked, WAYS, &r);
	try_changes(job, &parts, asked, DEGREES, &r);
	if (r.n < NEAREST_MAX)
		try_changes(job, &parts, asked, OPEN_PP | OPEN_DP | OPEN_ZERO | OPEN_MODE | OPEN_SP,
			    &r);
	if (!r.n)
		try_changes(job, &parts, asked,
			    DEGREES | OPEN_ZERO | OPEN_MODE | OPEN_SP | OPEN_MICRO, &r);
	plan_parts_close(&parts);
	return r.n;
}
