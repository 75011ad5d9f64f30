/*
 * Collectives of ranks on one host that read each other's buffers where they are: one copy, or none
 * but the result. At the first step everyone tells its buffers; the last step says that they have
 * been read. When all of them lie in windows, reductions also write the results where they belong.
 * Where memory can be reached neither way the slots do it all.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/shm/copy.h"
#include "libcomm/shm/peer_memory.h"
#include "libcomm/reduce.h"
#include "libcomm/shm/step.h"

#include <string.h>

enum { IN, OUT };

enum access {
	ACCESS_FAILED = -1,
	ACCESS_SLOTS, /* some memory cannot be reached: all ranks know it and go the other way */
	ACCESS_READ,
	ACCESS_SHARED, /* all of it is mapped: it can be written to as well */
};

enum {
	/* of pieces read for one reduction: they stay in the second-level cache */
	CACHE_BYTES = 512 << 10,
	PIECE_LEAST = 16 << 10,
	PIECE_MOST = 128 << 10,
	/* summed, then written to all while it is in the first-level cache */
	WRITE_PIECE = 16 << 10,
	FAR_BYTES = 32 << 20,
	HALF_BYTES = 1 << 20, /* of a share that waits for its root to read it */
};

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* --- Telling and hearing ------------------------------------------------------------ */

static void expose_buffers(struct comm *c, const struct op *op)
{
	struct seg_cell *me = step_own_cell(c);
	struct exposed_memory p = comm_peer_memory_expose(c, op);
	me->buffers[IN] = peer_memory_describe(c, p.in, p.in_bytes);
	me->buffers[OUT] = peer_memory_describe(c, p.out, p.out_bytes);
	group_count_sent(c, p.in_bytes);
}

/* After the first step: the same on all ranks. */
static enum access choose_access(struct comm *c)
{
	bool open = true;
	for (int r = 0; r < c->size; r++)
		open &= step_cell(c, r)->open;
	return open ? ACCESS_SHARED : comm_cma_works(c) ? ACCESS_READ : ACCESS_SLOTS;
}

static enum access begin_operation(struct comm *c, const struct op *op, struct err *e)
{
	expose_buffers(c, op);
	return comm_step_wait_first(c, op, e) < 0 ? ACCESS_FAILED : choose_access(c);
}

/* What rank told at the step `first`; it stays until the step after the next. */
static const struct remote_buffer *exposed_buffer(const struct comm *c, uint32_t first, int rank,
						  int which)
{
	return &segment_cell(&c->segment, first, rank)->buffers[which];
}

/* The ranks after this one, so that not all read the same at once. */
static int nth_peer(const struct comm *c, int i)
{
	return (c->rank + i) % c->size;
}

/* --- Reductions ---------------------------------------------------------------------- */

/* One share of everyone's input, on its way through the cache. */
struct fold {
	const struct op *op;
	uint32_t first;
	size_t at; /* of the share in the whole vector */
	size_t piece;
	const char *own;
	char *room; /* for pieces of the ranks whose memory is not mapped, and for a sum */
	const char *mapped[SLOTS_RANKS];
};

static size_t piece_size(const struct comm *c)
{
	size_t each = CACHE_BYTES / (size_t)(c->size - 1);
	each = each < PIECE_LEAST ? PIECE_LEAST : each > PIECE_MOST ? PIECE_MOST : each;
	return each & ~(size_t)4095;
}

/* In scratch from byte `skip` on. */
static int begin_fold(struct comm *c, struct fold *f, const struct op *op, size_t at, size_t bytes,
		      size_t skip, struct err *e)
{
	int unmapped = 0;
	*f = (struct fold){
		.op = op, .first = c->step, .at = at, .own = op->in, .piece = piece_size(c)
	};
	for (int r = 0; r < c->size; r++) {
		const struct remote_buffer *s = exposed_buffer(c, f->first, r, IN);
		f->mapped[r] = r == c->rank ? f->own : comm_peer_memory_map(c, r, s, at + bytes);
		unmapped += !f->mapped[r];
	}
	if (!unmapped)
		f->piece = WRITE_PIECE;
	f->room = comm_group_scratch(c, skip + (size_t)c->size * f->piece, e);
	if (f->room)
		f->room += skip;
	return f->room ? 0 : -1;
}

/* out[bytes] = the reduction of everyone's bytes from `done` on in the share; at most a piece. */
static int fold_piece(struct comm *c, const struct fold *f, size_t done, size_t bytes, void *out,
		      struct err *e)
{
	const void *src[SLOTS_RANKS];
	for (int i = 0; i < c->size; i++) {
		int r = nth_peer(c, i);
		char *room = f->room + (size_t)r * f->piece;
		src[r] = f->mapped[r] ? f->mapped[r] + f->at + done : room;
		if (!f->mapped[r] && comm_peer_memory_read(c, r, exposed_buffer(c, f->first, r, IN),
							   f->at + done, room, bytes, e) < 0)
			return -1;
	}
	comm_reduce_tree(f->op->type, f->op->redop, src, c->size, out,
			 bytes / comm_type_size(f->op->type));
	return 0;
}

/* out[bytes] = the reduction of everyone's bytes from `from` on in the share. */
static int run_fold(struct comm *c, const struct fold *f, size_t from, size_t bytes, char *out,
		    struct err *e)
{
	for (size_t done = 0; done < bytes; done += f->piece)
		if (fold_piece(c, f, from + done, min_size(bytes - done, f->piece), out + done, e) <
		    0)
			return -1;
	return 0;
}

int comm_readers_reduce_scatter(struct comm *c, const struct op *op, struct err *e)
{
	struct fold f;
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	enum access access = begin_operation(c, op, e);
	if (access <= ACCESS_SLOTS)
		return access == ACCESS_FAILED ? -1 : comm_slots_reduce_scatter(c, op, e);
	if (mine &&
	    (begin_fold(c, &f, op, at, mine, 0, e) < 0 || run_fold(c, &f, 0, mine, op->out, e) < 0))
		return -1;
	return comm_step_wait(c, e);
}

/* This rank's share, summed and written to everyone who wants it; all is mapped. */
static int fold_into_all(struct comm *c, const struct op *op, const bool *wants, size_t at,
			 size_t bytes, struct err *e)
{
	struct fold f;
	char *out[SLOTS_RANKS];
	size_t all = bytes * (size_t)c->size;
	/* even the sum would leave the cache before the others are served */
	bool far = all >= FAR_BYTES;
	int home = -1;
	if (begin_fold(c, &f, op, at, bytes, 0, e) < 0)
		return -1;
	for (int i = c->size - 1; i >= 0; i--) {
		int r = nth_peer(c, i);
		out[r] = NULL;
		if (!wants[r])
			continue;
		out[r] = r == c->rank
				 ? op->out
				 : comm_peer_memory_map(c, r, exposed_buffer(c, f.first, r, OUT),
							at + bytes);
		if (!out[r])
			return comm_peer_memory_map_failed(c, r, e);
		home = r;
	}
	for (size_t done = 0; done < bytes; done += f.piece) {
		size_t len = min_size(bytes - done, f.piece);
		char *sum = far ? f.room : out[home] + at + done;
		if (fold_piece(c, &f, done, len, sum, e) < 0)
			return -1;
		for (int r = 0; r < c->size; r++)
			if (out[r] && (far || r != home))
				comm_copy_streaming(out[r] + at + done, sum, len, all);
	}
	return 0;
}

int comm_readers_all_reduce(struct comm *c, const struct op *op, struct err *e)
{
	struct fold f;
	size_t size = comm_type_size(op->type);
	char *out = op->out;
	enum access access = begin_operation(c, op, e);
	if (access <= ACCESS_SLOTS)
		return access == ACCESS_FAILED ? -1 : comm_slots_reduce(c, op, e);
	uint32_t first = c->step;
	comm_split_evenly(c, op->count, size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	if (access == ACCESS_SHARED) {
		bool wants[SLOTS_RANKS];
		memset(wants, true, sizeof wants);
		if (mine && fold_into_all(c, op, wants, at, mine, e) < 0)
			return -1;
		return comm_step_wait(c, e);
	}
	if (mine && (begin_fold(c, &f, op, at, mine, 0, e) < 0 ||
		     run_fold(c, &f, 0, mine, out + at, e) < 0))
		return -1;
	if (comm_step_wait(c, e) < 0)
		return -1;
	for (int i = 1; i < c->size; i++) {
		int r = nth_peer(c, i);
		size_t from = c->off[r], len = c->off[r + 1] - from;
		if (comm_peer_memory_read(c, r, exposed_buffer(c, first, r, OUT), from, out + from,
					  len, e) < 0)
			return -1;
	}
	return comm_step_wait(c, e);
}

/* The root reads what the others came to in the round before: rounds of HALF_BYTES a share. */
static int read_halves(struct comm *c, const struct op *op, uint32_t first, size_t round,
		       struct err *e)
{
	for (int i = 1; i < c->size; i++) {
		int r = nth_peer(c, i);
		size_t share = c->off[r + 1] - c->off[r], done = round * HALF_BYTES;
		if (done < share &&
		    comm_peer_memory_read(c, r, exposed_buffer(c, first, r, OUT),
					  round % 2 * HALF_BYTES,
					  (char *)op->out + c->off[r] + done,
					  min_size(share - done, HALF_BYTES), e) < 0)
			return -1;
	}
	return 0;
}

/* Round k: everyone sums a piece of its share, while the root fetches the pieces of round k - 1. */
static int reduce_in_rounds(struct comm *c, const struct op *op, char *halves, struct err *e)
{
	struct fold f;
	uint32_t first = c->step;
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at, most = c->off[1];
	size_t rounds = (most + HALF_BYTES - 1) / HALF_BYTES;
	bool root = op->root == c->rank;
	if (begin_fold(c, &f, op, at, mine, 2 * HALF_BYTES, e) < 0)
		return -1;
	for (size_t k = 0; k <= rounds; k++) {
		size_t done = k * HALF_BYTES,
		       len = done < mine ? min_size(mine - done, HALF_BYTES) : 0;
		char *to = root ? (char *)op->out + at + done : halves + k % 2 * HALF_BYTES;
		if (len && run_fold(c, &f, done, len, to, e) < 0)
			return -1;
		if (root && k > 0 && read_halves(c, op, first, k - 1, e) < 0)
			return -1;
		if (comm_step_wait(c, e) < 0)
			return -1;
	}
	return 0;
}

int comm_readers_reduce(struct comm *c, const struct op *op, struct err *e)
{
	size_t size = comm_type_size(op->type);
	bool root = op->root == c->rank, wants[SLOTS_RANKS] = { false };
	/* All of it at once: what has been told may not move. */
	char *halves = comm_group_scratch(c, 2 * HALF_BYTES + (size_t)c->size * PIECE_MOST, e);
	if (!halves)
		return -1;
	expose_buffers(c, op);
	if (!root)
		step_own_cell(c)->buffers[OUT] = peer_memory_describe(c, halves, 2 * HALF_BYTES);
	if (comm_step_wait_first(c, op, e) < 0)
		return -1;
	enum access access = choose_access(c);
	if (access == ACCESS_SLOTS)
		return comm_slots_reduce(c, op, e);
	comm_split_evenly(c, op->count, size, c->off);
	if (access == ACCESS_READ)
		return reduce_in_rounds(c, op, halves, e);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	wants[op->root] = true;
	if (mine && fold_into_all(c, op, wants, at, mine, e) < 0)
		return -1;
	return comm_step_wait(c, e);
}

/* --- Data that is not reduced ----------------------------------------------------------- */

/* to[bytes] = what rank told as its input, from byte `at` on; of `all` that this rank takes. */
static int fetch_block(struct comm *c, uint32_t first, int rank, size_t at, void *to, size_t bytes,
		       size_t all, struct err *e)
{
	const struct remote_buffer *s = exposed_buffer(c, first, rank, IN);
	const char *base = comm_peer_memory_map(c, rank, s, at + bytes);
	if (!base)
		return comm_peer_memory_read(c, rank, s, at, to, bytes, e);
	comm_copy_streaming(to, base + at, bytes, all);
	return 0;
}

/* This rank's own block, when it is not in its place already. */
static void copy_block(void *to, const void *from, size_t bytes, size_t all)
{
	if (bytes && to != from)
		comm_copy_streaming(to, from, bytes, all);
}

/* all_gather and gather: everybody tells its block, `wanted` says who takes them. */
static int collect_blocks(struct comm *c, const struct op *op, bool wanted,
			  algorithm_fn *over_slots, struct err *e)
{
	char *out = op->out;
	comm_op_blocks(op, op->counts, c->size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	enum access access = begin_operation(c, op, e);
	if (access <= ACCESS_SLOTS)
		return access == ACCESS_FAILED ? -1 : over_slots(c, op, e);
	uint32_t first = c->step;
	for (int i = 1; wanted && i < c->size; i++) {
		int r = nth_peer(c, i);
		if (fetch_block(c, first, r, 0, out + c->off[r], c->off[r + 1] - c->off[r],
				c->off[c->size], e) < 0)
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
	enum access access = begin_operation(c, op, e);
	if (access <= ACCESS_SLOTS)
		return access == ACCESS_FAILED ? -1 : comm_slots_scatter(c, op, e);
	if (!root && fetch_block(c, c->step, op->root, at, op->out, mine, mine, e) < 0)
		return -1;
	if (root)
		copy_block(op->out, (const char *)op->in + at, mine, mine);
	return comm_step_wait(c, e);
}

int comm_readers_broadcast(struct comm *c, const struct op *op, struct err *e)
{
	size_t bytes = op->count * comm_type_size(op->type);
	bool root = op->root == c->rank;
	enum access access = begin_operation(c, op, e);
	if (access <= ACCESS_SLOTS)
		return access == ACCESS_FAILED ? -1 : comm_slots_broadcast(c, op, e);
	if (!root && fetch_block(c, c->step, op->root, 0, op->out, bytes, bytes, e) < 0)
		return -1;
	return comm_step_wait(c, e);
}

/* --- all_to_all: only the two ranks of a block know its size ----------------------------- */

/* A rank with few bytes gives them at the first step, the sizes of its blocks before them; one with
 * many tells where they are and gives the sizes alone. Bytes in a window are many sooner. For each
 * peer: */
enum { FEW_BYTES = 16 << 10, FEW_SHARED = 2 << 10 };
enum { GIVEN, GIVEN_IN_PLACE, GIVEN_SHARED }; /* in need */

/* A rank's offer: the sizes of its blocks, then the blocks, as far as it goes in the cell, else
 * in the slot. */
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
	       most = min_size(peers * FEW_BYTES, SEG_SLOT - 1024);
	struct seg_cell *me = step_own_cell(c);
	struct offer o = place_offer(c, me, segment_slot(&c->segment, c->step + 1, c->rank), all);
	bool open = all > peers * FEW_SHARED && comm_peer_memory_all_shared(c, op);
	for (int r = 0; r < c->size; r++) {
		uint64_t bytes = c->off[r + 1] - c->off[r];
		memcpy(o.sizes + (size_t)r * sizeof bytes, &bytes, sizeof bytes);
	}
	me->need = open ? GIVEN_SHARED : all > most ? GIVEN_IN_PLACE : GIVEN;
	if (me->need != GIVEN) {
		expose_buffers(c, op);
		return;
	}
	/* All but its own. */
	size_t mine = c->off[c->rank], next = c->off[c->rank + 1];
	if (mine)
		memcpy(o.blocks, op->in, mine);
	if (all > next)
		memcpy(o.blocks + next, (const char *)op->in + next, all - next);
	group_count_sent(c, all);
}

/* Of what a rank gives: where the block for this one begins, and how much it is in all. */
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
		return err_set(e, ERR_PROTO, "%s gives sizes that cannot be",
			       comm_group_rank_text(c, rank, who));
	return comm_slots_check_size(c, rank, here, e);
}

static int take_blocks(struct comm *c, const struct op *op, uint32_t first, struct err *e)
{
	for (int i = 1; i < c->size; i++) {
		int r = nth_peer(c, i);
		struct seg_cell *cell = segment_cell(&c->segment, first, r);
		char *slot = segment_slot(&c->segment, first, r),
		     *to = (char *)op->out + c->off2[r];
		size_t at, all, bytes = c->off2[r + 1] - c->off2[r];
		if (read_sizes(c, r, place_offer(c, cell, slot, 0).sizes, &at, &all, e) < 0)
			return -1;
		if (cell->need == GIVEN)
			copy_block(to, place_offer(c, cell, slot, all).blocks + at, bytes, 0);
		else if (fetch_block(c, first, r, at, to, bytes, c->off2[c->size], e) < 0)
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
	if (comm_step_wait_first(c, op, e) < 0)
		return -1;
	for (int r = 0; r < c->size; r++)
		if (step_cell(c, r)->need >= GIVEN_IN_PLACE) {
			wait = true;
			open &= step_cell(c, r)->need == GIVEN_SHARED;
		}
	if (wait && !open && !comm_cma_works(c))
		return comm_slots_all_to_all(c, op, e);
	if (comm_slots_check_size(c, c->rank, mine, e) < 0 || take_blocks(c, op, c->step, e) < 0)
		return -1;
	copy_block((char *)op->out + c->off2[c->rank], (const char *)op->in + c->off[c->rank], mine,
		   c->off2[c->size]);
	return wait ? comm_step_wait(c, e) : 0;
}
