/* Reductions over messages. All keep the order of comm.h: see reduce.h. */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MIN = 4 << 10, PIECE_MAX = 256 << 10, PIECES_TOGETHER = 4 << 20 };

/* The number of bytes of a block that one round sends. The limit keeps the working memory small. */
static size_t round_size(const struct comm *c)
{
	size_t each = PIECES_TOGETHER / (size_t)c->size & ~(size_t)63;
	return each < PIECE_MIN ? PIECE_MIN : each > PIECE_MAX ? PIECE_MAX : each;
}

static size_t piece_bytes(const size_t *off, int r, size_t k, size_t each)
{
	size_t bytes = off[r + 1] - off[r], at = k * each;
	return at >= bytes ? 0 : bytes - at < each ? bytes - at : each;
}

/* The inputs of a sum: pointers to every rank's piece, and the memory for the pieces. */
struct piece_table {
	const void **src;
	char *room;
	size_t each;
};

static int allocate_pieces(struct comm *c, size_t each, struct piece_table *t, struct err *e)
{
	size_t pointers = ((size_t)c->size * sizeof(void *) + 63) & ~(size_t)63;
	char *all = comm_group_scratch(c, pointers + (size_t)c->size * each, e);
	if (!all)
		return -1;
	*t = (struct piece_table){ (const void **)(void *)all, all + pointers, each };
	return 0;
}

/* Queues the receives of `bytes` from every other rank; own points to this rank's. */
static int expect_pieces(struct comm *c, const struct op *op, struct piece_table *t,
			 const void *own, size_t bytes, struct err *e)
{
	for (int r = 0; bytes && r < c->size; r++) {
		t->src[r] = r == c->rank ? own : t->room + (size_t)r * t->each;
		if (r != c->rank &&
		    comm_exchange_recv(c, op, r, t->room + (size_t)r * t->each, bytes, e))
			return -1;
	}
	return 0;
}

/* out = the sum of all ranks' block `rank` of in; off holds the offsets of the blocks. */
static int sum_blocks(struct comm *c, const struct op *op, const char *in, const size_t *off,
		      char *out, struct err *e)
{
	struct piece_table t;
	size_t most = 0, size = comm_type_size(op->type);
	for (int r = 0; r < c->size; r++)
		most = off[r + 1] - off[r] > most ? off[r + 1] - off[r] : most;
	if (allocate_pieces(c, round_size(c), &t, e))
		return -1;
	for (size_t k = 0; k * t.each < most; k++) {
		comm_exchange_begin(c);
		for (int i = 1; i < c->size; i++) {
			int r = (c->rank + i) % c->size;
			size_t len = piece_bytes(off, r, k, t.each);
			if (len && comm_exchange_send(c, op, r, in + off[r] + k * t.each, len, e))
				return -1;
		}
		size_t mine = piece_bytes(off, c->rank, k, t.each);
		if (expect_pieces(c, op, &t, in + off[c->rank] + k * t.each, mine, e) ||
		    comm_exchange_run(c, e))
			return -1;
		if (mine)
			comm_reduce_tree(op->type, op->redop, t.src, c->size, out + k * t.each,
					 mine / size);
	}
	return 0;
}

int comm_message_reduce_scatter(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	return sum_blocks(c, op, op->in, c->off, op->out, e);
}

int comm_message_all_reduce_shares(struct comm *c, const struct op *op, struct err *e)
{
	char *out = op->out;
	comm_split_evenly(c, op->count, comm_type_size(op->type), c->off);
	if (sum_blocks(c, op, op->in, c->off, out + c->off[c->rank], e))
		return -1;
	return comm_exchange_blocks(c, op, out, c->off, e);
}

int comm_message_reduce_shares(struct comm *c, const struct op *op, struct err *e)
{
	comm_split_evenly(c, op->count, comm_type_size(op->type), c->off);
	size_t mine = c->off[c->rank + 1] - c->off[c->rank];
	bool root = op->root == c->rank;
	char *own = root ? NULL : malloc(mine + 1);
	char *share = root ? (char *)op->out + c->off[c->rank] : own;
	if (!root && !own)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of working space", mine);
	int rc = sum_blocks(c, op, op->in, c->off, share, e);
	comm_exchange_begin(c);
	if (rc == 0 && !root && mine)
		rc = comm_exchange_send(c, op, op->root, share, mine, e);
	for (int r = 0; rc == 0 && root && r < c->size; r++)
		if (r != c->rank && c->off[r + 1] > c->off[r])
			rc = comm_exchange_recv(c, op, r, (char *)op->out + c->off[r],
						c->off[r + 1] - c->off[r], e);
	if (rc == 0)
		rc = comm_exchange_run(c, e);
	free(own);
	return rc;
}

int comm_message_all_reduce_direct(struct comm *c, const struct op *op, struct err *e)
{
	struct piece_table t;
	size_t bytes = op->count * comm_type_size(op->type);
	if (allocate_pieces(c, (bytes + 63) & ~(size_t)63, &t, e))
		return -1;
	comm_exchange_begin(c);
	for (int i = 1; bytes && i < c->size; i++)
		if (comm_exchange_send(c, op, (c->rank + i) % c->size, op->in, bytes, e))
			return -1;
	if (expect_pieces(c, op, &t, op->in, bytes, e) || comm_exchange_run(c, e))
		return -1;
	if (bytes)
		comm_reduce_tree(op->type, op->redop, t.src, c->size, op->out, op->count);
	return 0;
}

/* While r is a multiple of 2d, rank r holds the sum of [r, r + d) and adds the sum of [r + d, r +
 * 2d): the tree of comm.h. Rank 0 ends with the sum of all ranks as an accumulator: *acc points to
 * it, *spare to an area of the same size. */
static int sum_up_tree(struct comm *c, const struct op *op, void **acc, void **spare, struct err *e)
{
	size_t bytes = op->count * comm_reduce_acc_size(op->type),
	       room = (bytes + 63) & ~(size_t)63;
	char *mine = comm_group_scratch(c, 2 * room + 64, e);
	if (!mine)
		return -1;
	char *right = mine + room;
	comm_reduce_load(op->type, mine, op->in, op->count);
	for (int d = 1; d < c->size; d *= 2) {
		comm_exchange_begin(c);
		if (c->rank % (2 * d)) {
			if (comm_exchange_send(c, op, c->rank - d, mine, bytes, e))
				return -1;
			return comm_exchange_run(c, e);
		}
		if (c->rank + d >= c->size)
			continue;
		if (comm_exchange_recv(c, op, c->rank + d, right, bytes, e) ||
		    comm_exchange_run(c, e))
			return -1;
		comm_reduce_fold(op->type, op->redop, mine, right, op->count);
	}
	*acc = mine;
	*spare = right;
	return 0;
}

int comm_message_all_reduce_tree(struct comm *c, const struct op *op, struct err *e)
{
	void *acc, *spare;
	if (sum_up_tree(c, op, &acc, &spare, e))
		return -1;
	if (c->rank == 0)
		comm_reduce_store(op->type, op->redop, op->out, acc, op->count, c->size);
	struct op down = *op;
	down.root = 0;
	return comm_message_broadcast_tree(c, &down, e);
}

int comm_message_reduce_tree(struct comm *c, const struct op *op, struct err *e)
{
	void *acc, *spare;
	size_t bytes = op->count * comm_type_size(op->type);
	if (sum_up_tree(c, op, &acc, &spare, e))
		return -1;
	comm_exchange_begin(c);
	if (c->rank == 0) {
		void *sum = op->root == 0 ? op->out : spare;
		comm_reduce_store(op->type, op->redop, sum, acc, op->count, c->size);
		if (op->root != 0 && comm_exchange_send(c, op, op->root, sum, bytes, e))
			return -1;
	} else if (op->root == c->rank && comm_exchange_recv(c, op, 0, op->out, bytes, e)) {
		return -1;
	}
	return comm_exchange_run(c, e);
}
