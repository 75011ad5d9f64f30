#include "libcomm/algorithms/readers.h"

#include "libcomm/shm/copy.h"
#include "libcomm/shm/step.h"

#include <string.h>

void comm_readers_expose(struct comm *c, const struct op *op)
{
	struct seg_cell *me = step_own_cell(c);
	struct exposed_memory p = comm_peer_memory_expose(c, op);
	me->buffers[READERS_IN] = peer_memory_describe(c, p.in, p.in_bytes);
	me->buffers[READERS_OUT] = peer_memory_describe(c, p.out, p.out_bytes);
	group_count_sent(c, p.in_bytes);
}

enum readers_access comm_readers_choose_access(struct comm *c)
{
	bool open = true;
	for (int r = 0; r < c->size; r++)
		open &= step_cell(c, r)->open;
	return open ? READERS_SHARED : comm_cma_works(c) ? READERS_READ : READERS_SLOTS;
}

enum readers_access comm_readers_begin(struct comm *c, const struct op *op, struct err *e)
{
	comm_readers_expose(c, op);
	return comm_step_wait_first(c, op, e) ? READERS_FAILED : comm_readers_choose_access(c);
}

const struct remote_buffer *comm_readers_buffer(const struct comm *c, uint32_t first, int rank,
						int which)
{
	return &segment_cell(&c->segment, first, rank)->buffers[which];
}

/* --- Data that is not reduced ----------------------------------------------------------------- */

/* to[bytes] = the rank's exposed input from byte `at` on. all: bytes that this rank reads in
 * total. */
static int fetch_block(struct comm *c, uint32_t first, int rank, size_t at, void *to, size_t bytes,
		       size_t all, struct err *e)
{
	const struct remote_buffer *s = comm_readers_buffer(c, first, rank, READERS_IN);
	const char *base = comm_peer_memory_map(c, rank, s, at + bytes);
	if (!base)
		return comm_peer_memory_read(c, rank, s, at, to, bytes, e);
	comm_copy_streaming(to, base + at, bytes, all);
	return 0;
}

/* Copies this rank's own block, unless it is in place already. */
static void copy_block(void *to, const void *from, size_t bytes, size_t all)
{
	if (bytes && to != from)
		comm_copy_streaming(to, from, bytes, all);
}

/* all_gather and gather: every rank exposes its block. wanted: whether this rank reads the
 * blocks. */
static int collect_blocks(struct comm *c, const struct op *op, bool wanted,
			  algorithm_fn *over_slots, struct err *e)
{
	char *out = op->out;
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	enum readers_access access = comm_readers_begin(c, op, e);
	if (access <= READERS_SLOTS)
		return access == READERS_FAILED ? -1 : over_slots(c, op, e);
	uint32_t first = c->step;
	for (int i = 1; wanted && i < c->size; i++) {
		int r = comm_nth_peer(c, i);
		if (fetch_block(c, first, r, 0, out + c->off[r], c->off[r + 1] - c->off[r],
				c->off[c->size], e))
			return -1;
	}
	if (wanted)
		copy_block(out + at, op->in, mine, c->off[c->size]);
	return comm_step_wait(c, e);
}

int comm_readers_all_gather(struct comm *c, const struct op *op, struct err *e)
{
	return collect_blocks(c, op, true, comm_slots_all_gather, e);
}

int comm_readers_gather(struct comm *c, const struct op *op, struct err *e)
{
	return collect_blocks(c, op, op->root == c->rank, comm_slots_gather, e);
}

int comm_readers_scatter(struct comm *c, const struct op *op, struct err *e)
{
	bool root = op->root == c->rank;
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	enum readers_access access = comm_readers_begin(c, op, e);
	if (access <= READERS_SLOTS)
		return access == READERS_FAILED ? -1 : comm_slots_scatter(c, op, e);
	if (!root && fetch_block(c, c->step, op->root, at, op->out, mine, mine, e))
		return -1;
	if (root)
		copy_block(op->out, (const char *)op->in + at, mine, mine);
	return comm_step_wait(c, e);
}

int comm_readers_broadcast(struct comm *c, const struct op *op, struct err *e)
{
	size_t bytes = op->count * comm_type_size(op->type);
	bool root = op->root == c->rank;
	enum readers_access access = comm_readers_begin(c, op, e);
	if (access <= READERS_SLOTS)
		return access == READERS_FAILED ? -1 : comm_slots_broadcast(c, op, e);
	if (!root && fetch_block(c, c->step, op->root, 0, op->out, bytes, bytes, e))
		return -1;
	return comm_step_wait(c, e);
}

/* --- all_to_all: only the two ranks of a block know its size ---------------------------------- */

/* A rank with few bytes publishes them at the first step, after the sizes of its blocks. A rank
 * with many bytes publishes the sizes and the place of the data. The limit is lower in shared
 * buffers. Both limits are per peer. */
enum { FEW_BYTES = 16 << 10, FEW_SHARED = 2 << 10 };
enum { GIVEN, GIVEN_IN_PLACE, GIVEN_SHARED }; /* in the cell's `need` */

/* The data that a rank publishes: the sizes of its blocks, then the blocks. Each of the two is in
 * the cell if it fits there, otherwise in the slot. */
struct offer {
	char *sizes, *blocks;
};

static struct offer place_offer(const struct comm *c, struct seg_cell *cell, char *slot,
				size_t bytes)
{
	size_t table = (size_t)c->size * sizeof(uint64_t);
	if (table > SEG_INLINE)
		return (struct offer){ slot, slot + ((table + 63) & ~(size_t)63) };
	return (struct offer){ cell->data,
			       bytes <= SEG_INLINE - table ? cell->data + table : slot };
}

static void offer_blocks(struct comm *c, const struct op *op)
{
	size_t all = c->off[c->size], peers = (size_t)c->size - 1,
	       most = peers * FEW_BYTES < SEG_SLOT - 1024 ? peers * FEW_BYTES : SEG_SLOT - 1024;
	struct seg_cell *me = step_own_cell(c);
	struct offer o = place_offer(c, me, segment_slot(&c->segment, c->step + 1, c->rank), all);
	bool open = all > peers * FEW_SHARED && comm_peer_memory_all_shared(c, op);
	for (int r = 0; r < c->size; r++) {
		uint64_t bytes = c->off[r + 1] - c->off[r];
		memcpy(o.sizes + (size_t)r * sizeof bytes, &bytes, sizeof bytes);
	}
	me->need = open ? GIVEN_SHARED : all > most ? GIVEN_IN_PLACE : GIVEN;
	if (me->need != GIVEN) {
		comm_readers_expose(c, op);
		return;
	}
	/* All blocks except its own. */
	size_t mine = c->off[c->rank], next = c->off[c->rank + 1];
	if (mine)
		memcpy(o.blocks, op->in, mine);
	if (all > next)
		memcpy(o.blocks + next, (const char *)op->in + next, all - next);
	group_count_sent(c, all);
}

/* Reads the sizes that a rank published: where the block for this rank begins, and how many bytes
 * there are in total. */
static int read_sizes(struct comm *c, int rank, const char *sizes, size_t *at, size_t *all,
		      struct err *e)
{
	uint64_t bytes, here = 0;
	bool over = false;
	char who[160];
	*all = *at = 0;
	for (int r = 0; r < c->size; r++) {
		memcpy(&bytes, sizes + (size_t)r * sizeof bytes, sizeof bytes);
		if (r == c->rank) {
			*at = *all;
			here = bytes;
		}
		over |= __builtin_add_overflow(*all, bytes, all);
	}
	if (over)
		return err_set(e, ERR_PROTO, "%s sends impossible sizes",
			       comm_group_rank_text(c, rank, who));
	return comm_slots_check_size(c, rank, here, e);
}

static int take_blocks(struct comm *c, const struct op *op, uint32_t first, struct err *e)
{
	for (int i = 1; i < c->size; i++) {
		int r = comm_nth_peer(c, i);
		struct seg_cell *cell = segment_cell(&c->segment, first, r);
		char *slot = segment_slot(&c->segment, first, r),
		     *to = (char *)op->out + c->off2[r];
		size_t at, all, bytes = c->off2[r + 1] - c->off2[r];
		if (read_sizes(c, r, place_offer(c, cell, slot, 0).sizes, &at, &all, e))
			return -1;
		if (cell->need == GIVEN)
			copy_block(to, place_offer(c, cell, slot, all).blocks + at, bytes, 0);
		else if (fetch_block(c, first, r, at, to, bytes, c->off2[c->size], e))
			return -1;
	}
	return 0;
}

int comm_readers_all_to_all(struct comm *c, const struct op *op, struct err *e)
{
	comm_op_blocks(op, op->counts, c->size, c->off);
	comm_op_blocks(op, op->out_counts, c->size, c->off2);
	size_t mine = c->off[c->rank + 1] - c->off[c->rank];
	bool wait = false, open = true;
	offer_blocks(c, op);
	if (comm_step_wait_first(c, op, e))
		return -1;
	for (int r = 0; r < c->size; r++)
		if (step_cell(c, r)->need >= GIVEN_IN_PLACE) {
			wait = true;
			open &= step_cell(c, r)->need == GIVEN_SHARED;
		}
	if (wait && !open && !comm_cma_works(c))
		return comm_slots_all_to_all(c, op, e);
	if (comm_slots_check_size(c, c->rank, mine, e) || take_blocks(c, op, c->step, e))
		return -1;
	copy_block((char *)op->out + c->off2[c->rank], (const char *)op->in + c->off[c->rank], mine,
		   c->off2[c->size]);
	return wait ? comm_step_wait(c, e) : 0;
}
