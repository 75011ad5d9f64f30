#include "libcomm/wire/neighbours.h"

#include "libcomm/wire/card.h"

#include <stdlib.h>
#include <string.h>

/* --- From the place that the launcher knows ---------------------------------------------------- */

static bool is_rank(const struct world *w, int rank)
{
	return rank >= 0 && rank < w->size;
}

static bool is_valid(const struct world *w, const struct comm_place *p)
{
	if (!is_rank(w, p->leader) || p->leader > w->rank)
		return false;
	if (p->leader < w->rank)
		return true;
	if (p->n_here < 1 || p->n_here > w->size || p->here[0] != w->rank || p->n_near < 0 ||
	    p->n_near > COMM_NEAR || (p->has_parent && p->n_near < 1))
		return false;
	for (int i = 1; i < p->n_here; i++)
		if (!is_rank(w, p->here[i]) || p->here[i] <= p->here[i - 1])
			return false;
	for (int i = 0; i < p->n_near; i++)
		if (!is_rank(w, p->near[i]) || p->near[i] == w->rank)
			return false;
	return true;
}

static int *copy_ranks(const int *ranks, int n, struct err *e)
{
	int *copy = malloc((size_t)n * sizeof *copy);
	if (copy)
		memcpy(copy, ranks, (size_t)n * sizeof *copy);
	else
		err_set(e, ERR_NOMEM, "no memory for the %d ranks of this host", n);
	return copy;
}

static int take_place(const struct world *w, const struct comm_place *p, struct neighbours *out,
		      struct err *e)
{
	if (!is_valid(w, p))
		return err_set(e, ERR_PROTO,
			       "the launcher's list of the ranks next to rank %d is invalid",
			       w->rank);
	*out = (struct neighbours){ .leader = p->leader };
	if (p->leader != w->rank)
		return 0;
	out->here = copy_ranks(p->here, p->n_here, e);
	out->n_here = p->n_here;
	out->n_near = p->n_near;
	out->has_parent = p->has_parent;
	memcpy(out->near, p->near, sizeof out->near);
	return out->here ? 0 : -1;
}

/* --- From the cards of all ranks --------------------------------------------------------------- */

struct rank_host {
	int rank;
	char host[CARD_HOST];
};

static int compare_hosts(const void *a, const void *b)
{
	const struct rank_host *x = a, *y = b;
	int order = strcmp(x->host, y->host);
	return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* leader[r] = the first rank on the host of rank r. If all use the network, each is a host. */
static int find_leaders(const struct comm_bootstrap *boot, const struct world *w, int *leader,
			struct err *e)
{
	struct rank_host *all = calloc((size_t)w->size, sizeof *all);
	struct wire_card card;
	int rc = all ? 0 : err_set(e, ERR_NOMEM, "no memory for %d ranks", w->size);
	for (int r = 0; r < w->size && !rc; r++) {
		rc = comm_card_get(boot, w, r, &card, e);
		all[r].rank = r;
		memcpy(all[r].host, card.host, sizeof all[r].host);
	}
	if (!rc)
		qsort(all, (size_t)w->size, sizeof *all, compare_hosts);
	for (int i = 0, first = 0; i < w->size && !rc; i++) {
		if (w->force_tcp || strcmp(all[i].host, all[first].host))
			first = i;
		leader[all[i].rank] = all[first].rank;
	}
	free(all);
	return rc;
}

/* The i-th host's first rank; -1: there are not so many. */
static int nth_leader(const struct world *w, const int *leader, int i)
{
	for (int r = 0; r < w->size; r++)
		if (leader[r] == r && i-- == 0)
			return r;
	return -1;
}

static void find_near(const struct world *w, const int *leader, struct neighbours *out)
{
	int mine = 0;
	for (int r = 0; r < w->rank; r++)
		mine += leader[r] == r;
	const int hosts[COMM_NEAR] = { mine ? (mine - 1) / 2 : -1, 2 * mine + 1, 2 * mine + 2 };
	out->has_parent = mine > 0;
	for (int i = 0; i < COMM_NEAR; i++) {
		int rank = hosts[i] < 0 ? -1 : nth_leader(w, leader, hosts[i]);
		if (rank >= 0)
			out->near[out->n_near++] = rank;
	}
}

static int discover(const struct comm_bootstrap *boot, const struct world *w,
		    struct neighbours *out, struct err *e)
{
	int *leader = calloc((size_t)w->size, sizeof *leader);
	int *here = calloc((size_t)w->size, sizeof *here);
	if (!leader || !here || find_leaders(boot, w, leader, e)) {
		if (!leader || !here)
			err_set(e, ERR_NOMEM, "no memory for %d ranks", w->size);
		free(leader);
		free(here);
		return -1;
	}
	*out = (struct neighbours){ .leader = leader[w->rank], .here = here };
	if (out->leader == w->rank) {
		for (int r = 0; r < w->size; r++)
			if (leader[r] == w->rank)
				here[out->n_here++] = r;
		find_near(w, leader, out);
	}
	free(leader);
	return 0;
}

int comm_neighbours_find(const struct comm_bootstrap *boot, const struct world *w,
			 struct neighbours *out, struct err *e)
{
	return boot->place ? take_place(w, boot->place, out, e) : discover(boot, w, out, e);
}

void comm_neighbours_fini(struct neighbours *n)
{
	free(n->here);
	n->here = NULL;
}
