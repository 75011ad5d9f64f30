/* Collectives over messages that move data without reducing it, and messages between two ranks. */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/p2p/exchange.h"

#include <string.h>

static size_t block_bytes(const size_t *off, int r)
{
	return off[r + 1] - off[r];
}

/* If both sides know that a block is empty, there is no message. */
static int send_block(struct comm *c, const struct op *op, int peer, const char *data,
		      const size_t *off, int r, struct err *e)
{
	return block_bytes(off, r)
		       ? comm_exchange_send(c, op, peer, data + off[r], block_bytes(off, r), e)
		       : 0;
}

static int recv_block(struct comm *c, const struct op *op, int peer, char *data, const size_t *off,
		      int r, struct err *e)
{
	return block_bytes(off, r)
		       ? comm_exchange_recv(c, op, peer, data + off[r], block_bytes(off, r), e)
		       : 0;
}

static int select_rank(const int *ranks, int i)
{
	return ranks ? ranks[i] : i;
}

int comm_barrier_among(struct comm *c, const struct op *op, const int *ranks, int n, int me,
		       struct err *e)
{
	for (int d = 1; d < n; d *= 2) {
		comm_exchange_begin(c);
		if (comm_exchange_send(c, op, select_rank(ranks, (me + d) % n), NULL, 0, e) ||
		    comm_exchange_recv(c, op, select_rank(ranks, (me - d + n) % n), NULL, 0, e) <
			    0 ||
		    comm_exchange_run(c, e))
			return -1;
	}
	return 0;
}

int comm_message_barrier(struct comm *c, const struct op *op, struct err *e)
{
	return comm_barrier_among(c, op, NULL, c->size, c->rank, e);
}

/* After round k the first 2^k ranks from the root on have the data. */
int comm_broadcast_among(struct comm *c, const struct op *op, const int *ranks, int n, int root,
			 int me, void *data, size_t bytes, struct err *e)
{
	int place = (me - root + n) % n, have = 1;
	while (have <= place)
		have *= 2;
	comm_exchange_begin(c);
	if (place > 0 &&
	    (comm_exchange_recv(c, op, select_rank(ranks, (place - have / 2 + root) % n), data,
				bytes, e) ||
	     comm_exchange_run(c, e)))
		return -1;
	comm_exchange_begin(c);
	for (int d = have; place + d < n; d *= 2)
		if (comm_exchange_send(c, op, select_rank(ranks, (place + d + root) % n), data,
				       bytes, e))
			return -1;
	return comm_exchange_run(c, e);
}

int comm_message_broadcast_tree(struct comm *c, const struct op *op, struct err *e)
{
	return comm_broadcast_among(c, op, NULL, c->size, op->root, c->rank, op->out,
				    op->count * comm_type_size(op->type), e);
}

int comm_exchange_blocks(struct comm *c, const struct op *op, char *data, const size_t *off,
			 struct err *e)
{
	comm_exchange_begin(c);
	for (int i = 1; i < c->size; i++) {
		int to = comm_nth_peer(c, i), from = comm_nth_peer(c, c->size - i);
		if (send_block(c, op, to, data, off, c->rank, e) ||
		    recv_block(c, op, from, data, off, from, e))
			return -1;
	}
	return comm_exchange_run(c, e);
}

int comm_message_broadcast_shares(struct comm *c, const struct op *op, struct err *e)
{
	char *data = op->out;
	comm_split_evenly(c, op->count, comm_type_size(op->type), c->off);
	comm_exchange_begin(c);
	if (c->rank != op->root) {
		if (recv_block(c, op, op->root, data, c->off, c->rank, e))
			return -1;
	} else {
		for (int r = 0; r < c->size; r++)
			if (r != c->rank && send_block(c, op, r, data, c->off, r, e))
				return -1;
	}
	return comm_exchange_run(c, e) ? -1 : comm_exchange_blocks(c, op, data, c->off, e);
}

void comm_copy_own_block(const struct comm *c, const struct op *op)
{
	char *mine = (char *)op->out + c->off[c->rank];
	if (block_bytes(c->off, c->rank) && op->in != mine)
		memmove(mine, op->in, block_bytes(c->off, c->rank));
}

int comm_message_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_copy_own_block(c, op);
	return comm_exchange_blocks(c, op, op->out, c->off, e);
}

int comm_message_all_to_all(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_op_blocks(op, op->out_counts, c->size, c->off2);
	comm_exchange_begin(c);
	for (int i = 0; i < c->size; i++) {
		int to = comm_nth_peer(c, i), from = comm_nth_peer(c, c->size - i);
		if (send_block(c, op, to, op->in, c->off, to, e) ||
		    recv_block(c, op, from, op->out, c->off2, from, e))
			return -1;
	}
	return comm_exchange_run(c, e);
}

int comm_message_gather(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_exchange_begin(c);
	if (c->rank != op->root) {
		size_t mine = block_bytes(c->off, c->rank);
		if (mine && comm_exchange_send(c, op, op->root, op->in, mine, e))
			return -1;
		return comm_exchange_run(c, e);
	}
	comm_copy_own_block(c, op);
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && recv_block(c, op, r, op->out, c->off, r, e))
			return -1;
	return comm_exchange_run(c, e);
}

int comm_message_scatter(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t bytes = block_bytes(c->off, c->rank);
	comm_exchange_begin(c);
	if (c->rank != op->root) {
		if (bytes && comm_exchange_recv(c, op, op->root, op->out, bytes, e))
			return -1;
		return comm_exchange_run(c, e);
	}
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && send_block(c, op, r, op->in, c->off, r, e))
			return -1;
	if (comm_exchange_run(c, e))
		return -1;
	const char *mine = (const char *)op->in + c->off[c->rank];
	if (bytes && op->out != mine)
		memmove(op->out, mine, bytes);
	return 0;
}

int comm_message_p2p(struct comm *c, const struct op *op, struct err *e)
{
	comm_exchange_begin(c);
	for (int i = 0; i < op->n; i++) {
		const struct comm_p2p *p = &op->p2p[i];
		size_t bytes = p->count * comm_type_size(p->type);
		if ((p->send ? comm_exchange_send(c, op, p->peer, p->source, bytes, e)
			     : comm_exchange_recv(c, op, p->peer, p->data, bytes, e)) < 0)
			return -1;
	}
	return comm_exchange_run(c, e);
}
