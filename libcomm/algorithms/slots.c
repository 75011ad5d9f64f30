/* Collectives of ranks that share one host's memory. step.h has the rules of the steps. */
#include "base/numbers.h"
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/reduce.h"
#include "libcomm/shm/step.h"

#include <string.h>

/* The length of the k-th piece of a block of `bytes`. */
static size_t piece_bytes(size_t bytes, size_t k, size_t each)
{
	return k * each < bytes ? min_size(bytes - k * each, each) : 0;
}

static size_t count_pieces(size_t bytes, size_t each)
{
	return (bytes + each - 1) / each;
}

/* Bytes of a slot for each other rank. */
static size_t piece_size(const struct comm *c, size_t head)
{
	return (SEG_SLOT - head) / (size_t)c->size & ~(size_t)63;
}

static size_t largest_block(const struct comm *c)
{
	size_t most = 0;
	for (int r = 0; r < c->size; r++)
		if (c->off[r + 1] - c->off[r] > most)
			most = c->off[r + 1] - c->off[r];
	return most;
}

static void write_slot(struct comm *c, char *slot, const void *data, size_t bytes)
{
	if (!bytes)
		return;
	memcpy(slot, data, bytes);
	group_count_sent(c, bytes);
}

static int pass_step(struct comm *c, const struct op *op, size_t k, struct err *e)
{
	return k == 0 ? comm_step_wait_first(c, op, e) : comm_step_wait(c, e);
}

/* own: this rank's part. The other ranks' parts are at `at` in their areas of `room` bytes. */
static void sum_rooms(const struct comm *c, const struct op *op, const void *own, size_t room,
		      size_t at, size_t bytes, void *out)
{
	const void *src[SLOTS_RANKS];
	for (int r = 0; r < c->size; r++)
		src[r] = r == c->rank ? own : step_data(c, r, room) + at;
	comm_reduce_tree(op->type, op->redop, src, c->size, out, bytes / comm_type_size(op->type));
}

int comm_slots_barrier(struct comm *c, const struct op *op, struct err *e)
{
	return comm_step_wait_first(c, op, e);
}

int comm_slots_all_reduce_once(struct comm *c, const struct op *op, struct err *e)
{
	size_t bytes = op->count * comm_type_size(op->type);
	write_slot(c, step_own_data(c, bytes), op->in, bytes);
	if (comm_step_wait_first(c, op, e))
		return -1;
	sum_rooms(c, op, op->in, bytes, 0, bytes, op->out);
	return 0;
}

/* Step k: chunk k is in the slots and every rank sums its share of it; chunk k - 1 is summed and
 * copied out. */
int comm_slots_reduce(struct comm *c, const struct op *op, struct err *e)
{
	size_t size = comm_type_size(op->type), bytes = op->count * size,
	       chunks = count_pieces(bytes, SEG_SLOT);
	bool wanted = op->kind == OP_ALL_REDUCE || op->root == c->rank;
	for (size_t k = 0; k <= chunks; k++) {
		size_t len = piece_bytes(bytes, k, SEG_SLOT);
		const char *in = (const char *)op->in + k * SEG_SLOT;
		write_slot(c, step_own_data(c, SEG_SLOT), in, len);
		if (pass_step(c, op, k, e))
			return -1;
		comm_split_evenly(c, len / size, size, c->off);
		size_t at = c->off[c->rank], share = c->off[c->rank + 1] - at;
		if (share)
			sum_rooms(c, op, in + at, SEG_SLOT, at, share,
				  segment_result(&c->segment, c->step) + at);
		if (wanted && k > 0)
			memcpy((char *)op->out + (k - 1) * SEG_SLOT,
			       segment_result(&c->segment, c->step - 1),
			       piece_bytes(bytes, k - 1, SEG_SLOT));
	}
	return 0;
}

/* One piece for each rank, of the blocks off[0..size]. If all blocks fit at once, they follow each
 * other. */
struct layout {
	size_t room, each; /* bytes in total, and of one rank's piece */
	size_t steps;
	bool whole;
};

static struct layout plan_layout(const struct comm *c)
{
	size_t all = c->off[c->size], each = piece_size(c, 0);
	if (all <= SEG_SLOT)
		return (struct layout){ all, all, 1, true };
	return (struct layout){ SEG_SLOT, each, count_pieces(largest_block(c), each), false };
}

static size_t piece_offset(const struct comm *c, const struct layout *l, int rank)
{
	return l->whole ? c->off[rank] : (size_t)rank * l->each;
}

/* Writes the k-th piece of `in` for every other rank. */
static void write_pieces(struct comm *c, const struct layout *l, const char *in, size_t k)
{
	char *room = step_own_data(c, l->room);
	for (int r = 0; r < c->size; r++)
		if (r != c->rank)
			write_slot(c, room + piece_offset(c, l, r), in + c->off[r] + k * l->each,
				   piece_bytes(c->off[r + 1] - c->off[r], k, l->each));
}

int comm_slots_reduce_scatter(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	struct layout l = plan_layout(c);
	const char *in = op->in;
	for (size_t k = 0; k < l.steps; k++) {
		write_pieces(c, &l, in, k);
		if (pass_step(c, op, k, e))
			return -1;
		size_t mine = piece_bytes(c->off[c->rank + 1] - c->off[c->rank], k, l.each);
		if (mine)
			sum_rooms(c, op, in + c->off[c->rank] + k * l.each, l.room,
				  piece_offset(c, &l, c->rank), mine, (char *)op->out + k * l.each);
	}
	return 0;
}

/* all_gather and gather: every rank writes its block. wanted: whether this rank reads the
 * blocks. */
static int collect_blocks(struct comm *c, const struct op *op, bool wanted, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t mine = c->off[c->rank + 1] - c->off[c->rank],
	       steps = count_pieces(largest_block(c), SEG_SLOT);
	char *out = op->out;
	if (wanted && mine && op->in != out + c->off[c->rank])
		memmove(out + c->off[c->rank], op->in, mine);
	for (size_t k = 0; k < steps || k == 0; k++) {
		write_slot(c, step_own_data(c, mine), (const char *)op->in + k * SEG_SLOT,
			   piece_bytes(mine, k, SEG_SLOT));
		if (pass_step(c, op, k, e))
			return -1;
		for (int r = 0; wanted && r < c->size; r++) {
			size_t block = c->off[r + 1] - c->off[r],
			       len = piece_bytes(block, k, SEG_SLOT);
			if (r != c->rank && len)
				memcpy(out + c->off[r] + k * SEG_SLOT, step_data(c, r, block), len);
		}
	}
	return 0;
}

int comm_slots_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	return collect_blocks(c, op, true, e);
}

int comm_slots_gather(struct comm *c, const struct op *op, struct err *e)
{
	return collect_blocks(c, op, op->root == c->rank, e);
}

int comm_slots_scatter(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	struct layout l = plan_layout(c);
	size_t bytes = c->off[c->rank + 1] - c->off[c->rank];
	for (size_t k = 0; k < l.steps; k++) {
		size_t len = piece_bytes(bytes, k, l.each);
		if (op->root == c->rank)
			write_pieces(c, &l, op->in, k);
		if (pass_step(c, op, k, e))
			return -1;
		if (op->root != c->rank && len)
			memcpy((char *)op->out + k * l.each,
			       step_data(c, op->root, l.room) + piece_offset(c, &l, c->rank), len);
	}
	if (op->root == c->rank && bytes && op->out != (const char *)op->in + c->off[c->rank])
		memmove(op->out, (const char *)op->in + c->off[c->rank], bytes);
	return 0;
}

int comm_slots_broadcast(struct comm *c, const struct op *op, struct err *e)
{
	size_t bytes = op->count * comm_type_size(op->type), steps = count_pieces(bytes, SEG_SLOT);
	for (size_t k = 0; k < steps || k == 0; k++) {
		size_t len = piece_bytes(bytes, k, SEG_SLOT);
		char *at = (char *)op->out + k * SEG_SLOT;
		if (op->root == c->rank)
			write_slot(c, step_own_data(c, bytes), at, len);
		if (pass_step(c, op, k, e))
			return -1;
		if (op->root != c->rank && len)
			memcpy(at, step_data(c, op->root, bytes), len);
	}
	return 0;
}

/* --- all_to_all: only the two ranks of a block know its size --- */

static size_t table_size(const struct comm *c)
{
	return ((size_t)c->size * sizeof(uint64_t) + 63) & ~(size_t)63;
}

/* Each slot begins with the sizes of the blocks that its rank sends. */
static void write_sizes(struct comm *c, char *slot)
{
	for (int r = 0; r < c->size; r++) {
		uint64_t bytes = c->off[r + 1] - c->off[r];
		memcpy(slot + (size_t)r * sizeof bytes, &bytes, sizeof bytes);
	}
}

int comm_slots_check_size(struct comm *c, int rank, uint64_t given, struct err *e)
{
	char who[160];
	uint64_t bytes = c->off2[rank + 1] - c->off2[rank];
	if (given == bytes)
		return 0;
	return err_set(e, ERR_PROTO, "%s sends %llu bytes where this rank expects %llu",
		       comm_group_rank_text(c, rank, who), (unsigned long long)given,
		       (unsigned long long)bytes);
}

static int read_blocks(struct comm *c, const struct op *op, size_t k, size_t each, struct err *e)
{
	for (int r = 0; r < c->size; r++) {
		const char *slot = step_data(c, r, SEG_SLOT);
		uint64_t theirs;
		memcpy(&theirs, slot + (size_t)c->rank * sizeof theirs, sizeof theirs);
		if (k == 0 && comm_slots_check_size(c, r, theirs, e))
			return -1;
		size_t len = piece_bytes(c->off2[r + 1] - c->off2[r], k, each);
		if (r != c->rank && len)
			memcpy((char *)op->out + c->off2[r] + k * each,
			       slot + table_size(c) + (size_t)c->rank * each, len);
	}
	return 0;
}

int comm_slots_all_to_all(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_op_blocks(op, op->out_counts, c->size, c->off2);
	size_t each = piece_size(c, table_size(c)), steps = 1,
	       mine = c->off[c->rank + 1] - c->off[c->rank];
	step_own_cell(c)->need = (uint32_t)count_pieces(largest_block(c), each);
	for (size_t k = 0; k < steps; k++) {
		char *slot = step_own_data(c, SEG_SLOT);
		if (k == 0)
			write_sizes(c, slot);
		for (int r = 0; r < c->size; r++)
			if (r != c->rank)
				write_slot(c, slot + table_size(c) + (size_t)r * each,
					   (const char *)op->in + c->off[r] + k * each,
					   piece_bytes(c->off[r + 1] - c->off[r], k, each));
		if (pass_step(c, op, k, e))
			return -1;
		for (int r = 0; k == 0 && r < c->size; r++)
			if (step_cell(c, r)->need > steps)
				steps = step_cell(c, r)->need;
		if (read_blocks(c, op, k, each, e))
			return -1;
	}
	if (mine)
		memcpy((char *)op->out + c->off2[c->rank], (const char *)op->in + c->off[c->rank],
		       mine);
	return 0;
}
