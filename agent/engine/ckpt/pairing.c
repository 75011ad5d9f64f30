#include "agent/engine/ckpt/pairing.h"

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
	struct seat *shared; /* sorted by replica, then by node */
	bool *has_replica;   /* of each rank */
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

static int compare_replicas(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	int replica = compare_ints(x->at.replica, y->at.replica),
	    node = compare_ints(x->at.node, y->at.node);
	return replica ? replica : node ? node : compare_ints(x->rank, y->rank);
}

/* The ranks of one replica number are on several nodes if the first and the last of them are on
 * different ones. */
static void find_replicas(struct pairing *p, int ranks)
{
	qsort(p->shared, (size_t)ranks, sizeof *p->shared, compare_replicas);
	for (int first = 0, end; first < ranks; first = end) {
		end = first + 1;
		while (end < ranks && p->shared[end].at.replica == p->shared[first].at.replica)
			end++;
		for (int i = first; i < end; i++)
			p->has_replica[p->shared[i].rank] = p->shared[first].at.node !=
							    p->shared[end - 1].at.node;
	}
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
		if (p->has_replica[rank])
			keeper[rank] = PAIRING_REPLICA;
		else if (from == to)
			keeper[rank] = PAIRING_ALONE;
		else
			keeper[rank] = p->seats[p->first[to] + dealt++ % takers].rank;
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
			     .first = malloc((n + 1) * sizeof *p.first),
			     .shared = malloc((n + 1) * sizeof *p.shared),
			     .has_replica = calloc(n + 1, sizeof *p.has_replica) };
	int rc = 0;
	if (!p.seats || !p.first || !p.shared || !p.has_replica)
		rc = err_set(e, ERR_NOMEM, "no memory to pair %d ranks", ranks);
	bool one = is_one_node(places, ranks);
	for (int r = 0; r < ranks && !rc; r++) {
		p.seats[r] = p.shared[r] = (struct seat){ places[r], r };
		if (one)
			p.seats[r].at.node = p.shared[r].at.node = r;
	}
	if (!rc) {
		find_replicas(&p, ranks);
		find_nodes(&p, ranks);
		for (int i = 0; i < p.nodes; i++)
			pair_nodes(&p, i, (i + p.nodes / 2) % p.nodes, keeper);
	}
	free(p.seats);
	free(p.first);
	free(p.shared);
	free(p.has_replica);
	return rc;
}
