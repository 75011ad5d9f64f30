/*
 * all_gather over several hosts of several ranks: each block goes once to every other host. A rank
 * carries the blocks of those ranks of other hosts whose index on their host equals its own, modulo
 * the number of ranks on its host. The blocks arrive in its slot, from where all ranks of its host
 * copy them.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/algorithms/node_ranks.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/shm/step.h"

#include <string.h>

static size_t piece_size(const struct comm *c)
{
	return comm_node_ranks_slot_bytes(c) / (size_t)(1 + c->hosts->carried) & ~(size_t)63;
}

bool comm_hybrid_gather_fits(const struct comm *c, size_t bytes)
{
	(void)bytes;
	return comm_node_ranks_fit(c) && piece_size(c) > 0;
}

/* The index, on this host, of the rank that carries a rank's block. */
static int carrier(const struct node_ranks *w, int rank)
{
	return w->h->number[rank] % w->size;
}

/* The place of each rank's piece in its carrier's slot: first that of this host's rank, then the
 * others in rank order. */
static void assign_slots(const struct node_ranks *w, size_t each, struct owned_piece *own)
{
	struct comm *c = w->c;
	memset(c->off2, 0, (size_t)w->size * sizeof *c->off2);
	for (int r = 0; r < c->size; r++)
		own[r].slot = w->h->of[r] == w->h->here ? 0 : ++c->off2[carrier(w, r)] * each;
}

/* Cuts the k-th piece of every block; returns whether there is any. */
static bool cut_pieces(const struct comm *c, size_t k, size_t each, struct owned_piece *own)
{
	bool any = false;
	for (int r = 0; r < c->size; r++) {
		size_t block = c->off[r + 1] - c->off[r], at = k * each;
		own[r].len = at >= block ? 0 : block - at < each ? block - at : each;
		own[r].vector = c->off[r] + at;
		any |= own[r].len > 0;
	}
	return any;
}

/* Sends this rank's piece to its carrier on every other host, and receives the pieces that this
 * rank carries. */
static int carry_pieces(const struct node_ranks *w, const struct owned_piece *own, struct err *e)
{
	struct comm *c = w->c;
	const struct hosts *h = w->h;
	char *out = w->op->out,
	     *slot = w->node_group ? step_own_data(w->node_group, comm_node_ranks_slot_bytes(c))
				   : NULL;
	comm_exchange_begin(c);
	for (int i = 1; own[c->rank].len && i < h->n; i++) {
		int host = (h->here + i) % h->n, to = h->begin[host] + w->me % hosts_size(h, host);
		if (comm_exchange_send(c, w->op, h->ranks[to], out + own[c->rank].vector,
				       own[c->rank].len, e))
			return -1;
	}
	for (int i = 1; i < c->size; i++) {
		int r = (c->rank + c->size - i) % c->size;
		bool mine = h->of[r] != h->here && carrier(w, r) == w->me && own[r].len;
		if (mine &&
		    comm_exchange_recv(c, w->op, r, slot ? slot + own[r].slot : out + own[r].vector,
				       own[r].len, e))
			return -1;
	}
	if (slot && own[c->rank].len)
		memcpy(slot, out + own[c->rank].vector, own[c->rank].len);
	return comm_exchange_run(c, e);
}

int comm_hybrid_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	struct node_ranks w = comm_node_ranks_begin(c, op);
	struct owned_piece *own = c->hosts->owned[0];
	char *out = op->out;
	size_t each = piece_size(c);
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_copy_own_block(c, op);
	assign_slots(&w, each, own);
	for (size_t k = 0; cut_pieces(c, k, each, own) || k == 0; k++) {
		if (carry_pieces(&w, own, e) || comm_node_ranks_step(&w, e))
			return -1;
		for (int r = 0; w.node_group && r < c->size; r++)
			if (r != c->rank && own[r].len)
				memcpy(out + own[r].vector,
				       step_data(w.node_group, carrier(&w, r),
						 comm_node_ranks_slot_bytes(c)) +
					       own[r].slot,
				       own[r].len);
	}
	return 0;
}
