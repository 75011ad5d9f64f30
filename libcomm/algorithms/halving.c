/*
 * Reductions over messages in groups of 2^k ranks, with k messages: partners at distance 1, 2, 4 …
 *
 * Before the message at distance d a rank holds the sum of the d ranks of its aligned group, which
 * is a node of the tree of comm.h. With the sum of its partner's group it makes the next node; the
 * lower ranks are on the left. Doubling exchanges whole vectors. Halving keeps, at each distance,
 * the half that the rank's bit selects, and sends the other half away. Rank r is therefore left
 * with the share whose number is r's bits in reverse order. The results return the same way.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/reduce.h"

#include <string.h>

bool comm_halving_fits(const struct comm *c, size_t bytes)
{
	(void)bytes;
	return (c->size & (c->size - 1)) == 0;
}

static size_t round_line(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* If both sides know that there is no data, there is no message. */
static int swap_with_peer(struct comm *c, const struct op *op, int peer, const void *give,
			  size_t given, void *take, size_t taken, struct err *e)
{
	comm_exchange_begin(c);
	if ((given && comm_exchange_send(c, op, peer, give, given, e)) ||
	    (taken && comm_exchange_recv(c, op, peer, take, taken, e)))
		return -1;
	return comm_exchange_run(c, e);
}

/* --- Doubling --- */

int comm_doubling_all_reduce(struct comm *c, const struct op *op, struct err *e)
{
	size_t bytes = op->count * comm_reduce_acc_size(op->type), room = round_line(bytes);
	char *mine = comm_group_scratch(c, 2 * room + 64, e);
	if (!mine)
		return -1;
	char *theirs = mine + room;
	comm_reduce_load(op->type, mine, op->in, op->count);
	for (int d = 1; d < c->size; d *= 2) {
		if (swap_with_peer(c, op, c->rank ^ d, mine, bytes, theirs, bytes, e))
			return -1;
		bool lower = !(c->rank & d);
		char *left = lower ? mine : theirs, *right = lower ? theirs : mine;
		comm_reduce_fold(op->type, op->redop, left, right, op->count);
		mine = left;
		theirs = right;
	}
	comm_reduce_store(op->type, op->redop, op->out, mine, op->count, c->size);
	return 0;
}

/* The blocks of an aligned group of ranks are adjacent. */
int comm_doubling_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	char *out = op->out;
	const size_t *off = c->off;
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_copy_own_block(c, op);
	for (int d = 1; d < c->size; d *= 2) {
		int have = c->rank & ~(d - 1), want = have ^ d;
		if (swap_with_peer(c, op, c->rank ^ d, out + off[have], off[have + d] - off[have],
				   out + off[want], off[want + d] - off[want], e))
			return -1;
	}
	return 0;
}

/* --- Halving --- */

struct half {
	int begin, end; /* shares, in the order of the vector */
};

/* The shares that a rank works on before the message at distance d. */
static struct half find_half(const struct comm *c, int rank, int d)
{
	struct half h = { 0, c->size };
	for (int bit = 1; bit < d; bit *= 2) {
		int middle = (h.begin + h.end) / 2;
		*(rank & bit ? &h.begin : &h.end) = middle;
	}
	return h;
}

/* out = the reduction of this rank's share of `in`; c->off holds the offsets of the shares. */
static int reduce_by_halving(struct comm *c, const struct op *op, const char *in, char *out,
			     struct err *e)
{
	size_t size = comm_type_size(op->type), acc = comm_reduce_acc_size(op->type), most = 0;
	const size_t *off = c->off;
	for (int side = 0; side < 2; side++) {
		struct half h = find_half(c, side, 2);
		size_t bytes = off[h.end] - off[h.begin];
		most = bytes > most ? bytes : most;
	}
	size_t room = round_line(most / size * acc);
	char *mine = comm_group_scratch(c, 2 * room + 64, e);
	if (!mine)
		return -1;
	char *theirs = mine + room;
	for (int d = 1; d < c->size; d *= 2) {
		struct half now = find_half(c, c->rank, d), keep = find_half(c, c->rank, 2 * d),
			    give = find_half(c, c->rank ^ d, 2 * d);
		size_t kept = (off[keep.end] - off[keep.begin]) / size,
		       given = (off[give.end] - off[give.begin]) / size;
		bool lower = !(c->rank & d), raw = d == 1;
		size_t each = raw ? size : acc;
		const char *base = raw ? in + off[now.begin] : mine;
		const char *own = base + (off[keep.begin] - off[now.begin]) / size * each;
		if (swap_with_peer(c, op, c->rank ^ d,
				   base + (off[give.begin] - off[now.begin]) / size * each,
				   given * each, theirs, kept * each, e))
			return -1;
		if (raw) {
			const void *src[2] = { lower ? own : theirs, lower ? theirs : own };
			comm_reduce_partial(op->type, op->redop, src, 2, mine, kept);
			continue;
		}
		if (lower) {
			memmove(mine, own, kept * acc);
			comm_reduce_fold(op->type, op->redop, mine, theirs, kept);
		} else {
			comm_reduce_fold(op->type, op->redop, theirs, own, kept);
			char *free_now = mine;
			mine = theirs;
			theirs = free_now;
		}
	}
	struct half last = find_half(c, c->rank, c->size);
	comm_reduce_store(op->type, op->redop, out, mine, (off[last.end] - off[last.begin]) / size,
			  c->size);
	return 0;
}

int comm_halving_all_reduce(struct comm *c, const struct op *op, struct err *e)
{
	char *out = op->out;
	const size_t *off = c->off;
	comm_split_evenly(c, op->count, comm_type_size(op->type), c->off);
	struct half own = find_half(c, c->rank, c->size);
	if (reduce_by_halving(c, op, op->in, out + off[own.begin], e))
		return -1;
	for (int d = c->size / 2; d > 0; d /= 2) {
		struct half have = find_half(c, c->rank, 2 * d),
			    want = find_half(c, c->rank ^ d, 2 * d);
		if (swap_with_peer(c, op, c->rank ^ d, out + off[have.begin],
				   off[have.end] - off[have.begin], out + off[want.begin],
				   off[want.end] - off[want.begin], e))
			return -1;
	}
	return 0;
}
