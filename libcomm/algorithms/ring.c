/*
 * Data that is not reduced, with few messages at a time: for large vectors in large groups, where
 * all messages at once would be too many. Each rank forwards its data to the next one.
 *
 * There is no reduction here. A ring sums the ranks' contributions in sequence, each share starting
 * at a different rank, and that order is not the tree of comm.h.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/p2p/exchange.h"

enum { CHUNK = 256 << 10, PAIRS = 4 /* sent and received at the same time */ };

static int next_rank(const struct comm *c)
{
	return (c->rank + 1) % c->size;
}

static int rank_before(const struct comm *c, int i)
{
	return (c->rank + c->size - i) % c->size;
}

static int send_block(struct comm *c, const struct op *op, int to, const char *data,
		      const size_t *off, int block, struct err *e)
{
	size_t bytes = off[block + 1] - off[block];
	return bytes ? comm_exchange_send(c, op, to, data + off[block], bytes, e) : 0;
}

static int recv_block(struct comm *c, const struct op *op, int from, char *data, const size_t *off,
		      int block, struct err *e)
{
	size_t bytes = off[block + 1] - off[block];
	return bytes ? comm_exchange_recv(c, op, from, data + off[block], bytes, e) : 0;
}

/* Round i: forwards the block that came in the round before. */
int comm_ring_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_copy_own_block(c, op);
	for (int i = 0; i < c->size - 1; i++) {
		comm_exchange_begin(c);
		if (send_block(c, op, next_rank(c), op->out, c->off, rank_before(c, i), e) ||
		    recv_block(c, op, rank_before(c, 1), op->out, c->off, rank_before(c, i + 1),
			       e) ||
		    comm_exchange_run(c, e))
			return -1;
	}
	return 0;
}

/* Chunk k arrives from the previous rank while chunk k - 1 goes to the next one. */
int comm_ring_broadcast(struct comm *c, const struct op *op, struct err *e)
{
	char *data = op->out;
	size_t bytes = op->count * comm_type_size(op->type), chunks = (bytes + CHUNK - 1) / CHUNK;
	bool first = c->rank == op->root, last = next_rank(c) == op->root;
	for (size_t k = 0; k <= chunks; k++) {
		size_t at = k * CHUNK, before = at - CHUNK; /* used from the second round on */
		size_t len = bytes - at < CHUNK ? bytes - at : CHUNK;
		size_t gone = k == chunks ? bytes - before : CHUNK;
		comm_exchange_begin(c);
		if ((k < chunks && !first &&
		     comm_exchange_recv(c, op, rank_before(c, 1), data + at, len, e)) ||
		    (k > 0 && !last &&
		     comm_exchange_send(c, op, next_rank(c), data + before, gone, e)) ||
		    comm_exchange_run(c, e))
			return -1;
	}
	return 0;
}

int comm_pairwise_all_to_all(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_op_blocks(op, op->out_counts, c->size, c->off2);
	for (int i = 0; i < c->size; i += PAIRS) {
		comm_exchange_begin(c);
		for (int k = i; k < i + PAIRS && k < c->size; k++) {
			int to = (c->rank + k) % c->size, from = rank_before(c, k);
			if (send_block(c, op, to, op->in, c->off, to, e) ||
			    recv_block(c, op, from, op->out, c->off2, from, e))
				return -1;
		}
		if (comm_exchange_run(c, e))
			return -1;
	}
	return 0;
}
