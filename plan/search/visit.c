#include "plan/search/visit.h"

#include <math.h>
#include <stdlib.h>

struct grid {
	int tp, cp, ep, pp, dp;
	double bound;
};

struct space_walk {
	const struct space *space;
	struct eval *eval;
	const struct space_visitor *visitor;
	struct grid *grids;
	int n, room;
};

static bool worth(const struct space_walk *w, double seconds)
{
	return !w->visitor->worth || w->visitor->worth(w->visitor->arg, seconds);
}

/* --- The grids --- */

static bool add_grid(struct space_walk *w, struct grid g)
{
	if (w->n == w->room) {
		int room = 2 * w->room + 256;
		struct grid *more = realloc(w->grids, (size_t)room * sizeof *more);
		if (!more)
			return false;
		w->grids = more;
		w->room = room;
	}
	w->grids[w->n++] = g;
	return true;
}

/* Adds the numbers of replicas that any size of micro-batch allows, each once. */
static bool add_dps(struct space_walk *w, int tp, int cp, int ep, int pp)
{
	struct space_list all = { 0 }, some;
	for (int m = 0; m < w->space->micro.n; m++) {
		search_space_dp(w->space, tp, cp, ep, pp, w->space->micro.at[m], &some);
		for (int i = 0; i < some.n; i++) {
			int k = 0;
			while (k < all.n && all.at[k] != some.at[i])
				k++;
			if (k < all.n || all.n == SPACE_VALUES)
				continue;
			all.at[all.n++] = some.at[i];
			if (!add_grid(w, (struct grid){ tp, cp, ep, pp, some.at[i], 0 }))
				return false;
		}
	}
	return true;
}

static bool list_grids(struct space_walk *w)
{
	const struct space *s = w->space;
	for (int t = 0; t < s->tp.n; t++)
		for (int c = 0; c < s->cp.n; c++)
			for (int x = 0; x < s->ep.n; x++)
				for (int p = 0; p < s->pp.n; p++)
					if (!add_dps(w, s->tp.at[t], s->cp.at[c], s->ep.at[x],
						     s->pp.at[p]))
						return false;
	return true;
}

/* Whether the batch can be split so. */
static bool cuts(const struct space_walk *w, const struct grid *g, int micro)
{
	int64_t global = w->space->job->batch.global;
	return global % micro == 0 &&
	       (w->space->named ? global / micro >= g->dp : global / micro % g->dp == 0);
}

/* The lightest mode, for the fewest layers. All others take as long or longer. */
static const struct space_recompute *lightest(const struct space *s)
{
	const struct space_recompute *best = s->again;
	for (int i = 1; i < s->n_again; i++)
		if (s->again[i].mode < best->mode ||
		    (s->again[i].mode == best->mode && s->again[i].every > best->every))
			best = &s->again[i];
	return best;
}

/* A lower bound of the time of all configurations of a grid. */
static double bound_of(struct space_walk *w, const struct grid *g)
{
	const struct space *s = w->space;
	double least = INFINITY;
	if (!search_eval_grid(w->eval, g->tp, g->cp, g->ep, g->pp, g->dp))
		return INFINITY;
	for (int m = 0; m < s->micro.n; m++)
		for (int sp = 0; sp < 2; sp++)
			if (cuts(w, g, s->micro.at[m]) &&
			    search_space_sp(s, sp, g->tp, g->cp, s->micro.at[m]) &&
			    search_eval_stream(w->eval, s->micro.at[m], sp, lightest(s)))
				least = fmin(least, search_eval_stream_bound(w->eval));
	return least;
}

static int by_bound(const void *a, const void *b)
{
	const struct grid *x = a, *y = b;
	if (x->bound < y->bound || x->bound > y->bound)
		return x->bound < y->bound ? -1 : 1;
	const int left[] = { x->tp, x->cp, x->ep, x->pp, x->dp },
		  right[] = { y->tp, y->cp, y->ep, y->pp, y->dp };
	for (int i = 0; i < 5; i++)
		if (left[i] != right[i])
			return left[i] < right[i] ? -1 : 1;
	return 0;
}

/* --- Below a grid --- */

static void visit_leaves(struct space_walk *w)
{
	const struct space *s = w->space;
	struct eval_leaf leaf;
	for (int z = 0; z < s->n_zero; z++) {
		if (!search_eval_zero(w->eval, &s->zero[z]))
			continue;
		for (int optimizer = 0; optimizer < 2; optimizer++)
			if (s->optimizer[optimizer]) {
				search_eval_leaf(w->eval, &s->zero[z], optimizer, &leaf);
				w->visitor->leaf(w->visitor->arg, &leaf);
			}
	}
}

static void visit_lines(struct space_walk *w, const struct grid *g)
{
	const struct space *s = w->space;
	struct space_list chunks;
	for (int schedule = 0; schedule < SCHEDULES; schedule++) {
		search_space_chunks(s, (enum job_schedule)schedule, g->pp, &chunks);
		for (int c = 0; c < chunks.n; c++)
			for (int activations = 0; activations < 2; activations++)
				if (s->activations[activations] &&
				    search_eval_line(w->eval, (enum job_schedule)schedule,
						     chunks.at[c], activations) &&
				    worth(w, search_eval_line_bound(w->eval)))
					visit_leaves(w);
	}
}

static void visit_grid(struct space_walk *w, const struct grid *g)
{
	const struct space *s = w->space;
	if (!search_eval_grid(w->eval, g->tp, g->cp, g->ep, g->pp, g->dp))
		return;
	for (int m = 0; m < s->micro.n; m++) {
		int micro = s->micro.at[m];
		if (!cuts(w, g, micro))
			continue;
		for (int sp = 0; sp < 2; sp++)
			for (int a = 0;
			     a < s->n_again && search_space_sp(s, sp, g->tp, g->cp, micro); a++)
				if (search_eval_stream(w->eval, micro, sp, &s->again[a]) &&
				    worth(w, search_eval_stream_bound(w->eval)))
					visit_lines(w, g);
	}
}

int search_visit_space(const struct space *s, struct eval *v, const struct space_visitor *visitor,
		       struct err *e)
{
	struct space_walk w = { .space = s, .eval = v, .visitor = visitor };
	if (!list_grids(&w)) {
		free(w.grids);
		return err_set(e, ERR_NOMEM,
			       "no memory for the layouts of %s; close other programs",
			       s->cluster->name);
	}
	for (int i = 0; i < w.n && visitor->best_first; i++)
		w.grids[i].bound = bound_of(&w, &w.grids[i]);
	if (visitor->best_first && w.n)
		qsort(w.grids, (size_t)w.n, sizeof *w.grids, by_bound);
	for (int i = 0; i < w.n && worth(&w, w.grids[i].bound); i++)
		visit_grid(&w, &w.grids[i]);
	free(w.grids);
	return 0;
}
