#include "agent/engine/ckpt/memory/pairing.h"

#include <stdbool.h>
#include <stdlib.h>

/* A rank in its place among all: by switch, then by node, then by number. */
struct seat {
	struct pairing_place at;
	int rank;
};

struct pairing {
	struct seat *seats; /* sorted; those of a node follow each other */
	int *first;         /* of each node: its first seat */
	int nodes;
};

static int compare_ints(int a, int b)
{
	return (a > b) - (a < b);
}

static int compare_seats(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	int leaf = compare_ints(x->at.leaf, y->at.leaf),
	    node = compare_ints(x->at.node, y->at.node);
	return leaf ? leaf : node ? node : compare_ints(x->rank, y->rank);
}

static void find_nodes(struct pairing *p, int ranks)
{
	qsort(p->seats, (size_t)ranks, sizeof *p->seats, compare_seats);
	for (int i = 0; i < ranks; i++)
		if (i == 0 || p->seats[i].at.node != p->seats[i - 1].at.node)
			p->first[p->nodes++] = i;
	p->first[p->nodes] = ranks;
}

/* Deals the copies of a node's shards to the ranks of the other node in turn. */
static void pair_nodes(const struct pairing *p, int from, int to, int *keeper)
{
	int dealt = 0, takers = p->first[to + 1] - p->first[to];
	for (int i = p->first[from]; i < p->first[from + 1]; i++) {
		int rank = p->seats[i].rank;
		keeper[rank] = from == to ? PAIRING_ALONE
					  : p->seats[p->first[to] + dealt++ % takers].rank;
	}
}

static bool is_one_node(const struct pairing_place *places, int ranks)
{
	for (int r = 1; r < ranks; r++)
		if (places[r].node != places[0].node)
			return false;
	return true;
}

int ckpt_pairing(const struct pairing_place *places, int ranks, int *keeper, struct err *e)
{
	size_t n = (size_t)ranks;
	struct pairing p = { .seats = malloc((n + 1) * sizeof *p.seats),
			     .first = malloc((n + 1) * sizeof *p.first) };
	int rc = 0;
	if (!p.seats || !p.first)
		rc = err_set(e, ERR_NOMEM, "no memory to pair %d ranks", ranks);
	bool one = is_one_node(places, ranks);
	for (int r = 0; r < ranks && !rc; r++) {
		p.seats[r] = (struct seat){ places[r], r };
		if (one)
			p.seats[r].at.node = r;
	}
	if (!rc) {
		find_nodes(&p, ranks);
		for (int i = 0; i < p.nodes; i++)
			pair_nodes(&p, i, (i + p.nodes / 2) % p.nodes, keeper);
	}
	free(p.seats);
	free(p.first);
	return rc;
}
