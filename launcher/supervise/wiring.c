#include "launcher/supervise/wiring.h"

#include <jansson.h>
#include <stdlib.h>

/* Sorts the ranks by node. */
static void sort_ranks(struct wiring *w, const struct plan *plan, int nodes)
{
	for (int r = 0; r < plan->world; r++)
		w->begin[plan->ranks[r].node + 1]++;
	for (int i = 0; i < nodes; i++)
		w->begin[i + 1] += w->begin[i];
	/* backwards, and then down: begin[i + 1] ends where node i + 1 begins */
	for (int r = plan->world - 1; r >= 0; r--)
		w->ranks[--w->begin[plan->ranks[r].node + 1]] = r;
	for (int i = 0; i < nodes; i++)
		w->begin[i] = w->begin[i + 1];
	w->begin[nodes] = plan->world;
}

int supervise_wiring_set(struct wiring *w, const struct plan *plan, int nodes, struct err *e)
{
	struct wiring new = {
		.ranks = calloc((size_t)plan->world, sizeof *new.ranks),
		.begin = calloc((size_t)nodes + 1, sizeof *new.begin),
		.number = calloc((size_t)nodes, sizeof *new.number),
		.first = calloc((size_t)nodes, sizeof *new.first),
		.leader = calloc((size_t)plan->world, sizeof *new.leader),
		.world = plan->world,
	};
	supervise_wiring_fini(w);
	if (!new.ranks || !new.begin || !new.number || !new.first || !new.leader) {
		supervise_wiring_fini(&new);
		return err_set(e, ERR_NOMEM, "no memory for the places of %d ranks", plan->world);
	}
	sort_ranks(&new, plan, nodes);
	for (int r = 0; r < plan->world; r++) {
		int node = plan->ranks[r].node;
		new.leader[r] = new.ranks[new.begin[node]];
		if (new.leader[r] != r)
			continue;
		new.number[node] = new.n;
		new.first[new.n++] = r;
	}
	*w = new;
	return 0;
}

void supervise_wiring_fini(struct wiring *w)
{
	free(w->ranks);
	free(w->begin);
	free(w->number);
	free(w->first);
	free(w->leader);
	*w = (struct wiring){ .ranks = NULL };
}

static json_t *list_here(const struct wiring *w, int node)
{
	json_t *list = json_array();
	for (int i = w->begin[node]; list && i < w->begin[node + 1]; i++)
		json_array_append_new(list, json_integer(w->ranks[i]));
	return list;
}

static json_t *list_near(const struct wiring *w, int number)
{
	json_t *list = json_array();
	json_array_append_new(list, json_integer(number ? w->first[(number - 1) / 2] : -1));
	for (int child = 2 * number + 1; child <= 2 * number + 2 && child < w->n; child++)
		json_array_append_new(list, json_integer(w->first[child]));
	return list;
}

int supervise_wiring_leader(const struct wiring *w, int rank)
{
	return rank < w->world ? w->leader[rank] : rank;
}

int supervise_wiring_tell(const struct wiring *w, const struct plan *plan, int rank,
			  struct msg_welcome *m, struct err *e)
{
	int node = plan->ranks[rank].node;
	m->leader = supervise_wiring_leader(w, rank);
	if (m->leader != rank)
		return 0;
	m->here = list_here(w, node);
	m->near = list_near(w, w->number[node]);
	m->has_here = m->here;
	m->has_near = m->near;
	return m->here && m->near
		       ? 0
		       : err_set(e, ERR_NOMEM, "no memory for the welcome of rank %d", rank);
}
