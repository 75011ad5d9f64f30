#include "launcher/supervise/paces.h"

#include "base/numbers.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_groups(const struct pace *x, const struct pace *y)
{
	return (x->group > y->group) - (x->group < y->group);
}

/* The longest delay of a group first. */
static int compare_delays(const void *a, const void *b)
{
	const struct pace *x = *(struct pace *const *)a, *y = *(struct pace *const *)b;
	int groups = compare_groups(x, y);
	return groups ? groups : (x->delay < y->delay) - (x->delay > y->delay);
}

/* The shortest pace of a group first. */
static int compare_paces(const void *a, const void *b)
{
	const struct pace *x = *(struct pace *const *)a, *y = *(struct pace *const *)b;
	int groups = compare_groups(x, y);
	return groups ? groups : (x->pace > y->pace) - (x->pace < y->pace);
}

/* Calls `visit` for the ranks of each group, in the order of `compare`. */
static void visit_groups(struct supervisor *s, int (*compare)(const void *a, const void *b),
			 void (*visit)(const struct supervisor *s, struct pace **group, int n,
				       double window),
			 double window)
{
	struct pace **order = s->stragglers.order;
	qsort(order, (size_t)s->world, sizeof *order, compare);
	for (int first = 0, end; first < s->world; first = end) {
		for (end = first + 1; end < s->world && order[end]->group == order[first]->group;)
			end++;
		visit(s, order + first, end - first, window);
	}
}

/* The longest delay of the peers of `p`, of those on other nodes if there are any: the ranks of a
 * busy node all wait. group: the longest delay first. */
static double longest_delay(const struct supervisor *s, struct pace **group, int n,
			    const struct pace *p)
{
	const struct plan_rank *ranks = s->d->plan.ranks;
	const struct pace *peer = NULL;
	for (int i = 0; i < n; i++) {
		if (ranks[group[i]->rank].node != ranks[p->rank].node)
			return group[i]->delay;
		if (!peer && group[i] != p)
			peer = group[i];
	}
	return peer ? peer->delay : 0;
}

static void set_paces(const struct supervisor *s, struct pace **group, int n, double window)
{
	for (int i = 0; i < n; i++) {
		struct pace *p = group[i];
		double own = p->now.own - p->begin.own;
		double stalled = p->now.stalled - p->begin.stalled;
		double excess = p->delay - longest_delay(s, group, n, p);
		double delay = excess > STRAGGLER_NO_CORE * window ? excess : 0;
		p->pace = fmax(own, fmax(stalled, delay)) / (double)(p->now.done - p->begin.done);
	}
}

/* The median of its last windows; 0: there are too few. */
static double own_median(const struct pace *p)
{
	double history[STRAGGLER_HISTORY];
	int n = p->windows < STRAGGLER_HISTORY ? p->windows : STRAGGLER_HISTORY;
	if (n < STRAGGLER_WINDOWS)
		return 0;
	memcpy(history, p->history, sizeof history);
	qsort(history, (size_t)n, sizeof *history, compare_double);
	return history[(n - 1) / 2];
}

static void set_references(const struct supervisor *s, struct pace **group, int n, double window)
{
	(void)s;
	(void)window;
	for (int i = 0; i < n; i++) {
		group[i]->alone = n == 1;
		group[i]->reference = n == 1 ? own_median(group[i]) : group[(n - 1) / 2]->pace;
	}
}

void supervise_paces_compute(struct supervisor *s, double window)
{
	struct stragglers *t = &s->stragglers;
	for (int r = 0; r < s->world; r++) {
		struct pace *p = t->order[r] = &t->ranks[r];
		p->delay = p->now.delay - p->begin.delay;
	}
	visit_groups(s, compare_delays, set_paces, window);
	visit_groups(s, compare_paces, set_references, window);
}
