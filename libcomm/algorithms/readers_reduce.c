#include "base/numbers.h"
#include "libcomm/algorithms/readers.h"
#include "libcomm/reduce.h"
#include "libcomm/shm/copy.h"
#include "libcomm/shm/step.h"

#include <string.h>

enum {
	/* of pieces that one reduction reads: they stay in the second-level cache */
	CACHE_BYTES = 512 << 10,
	PIECE_MIN = 16 << 10,
	PIECE_MAX = 128 << 10,
	/* summed, then written to all ranks while it is in the first-level cache */
	WRITE_PIECE = 16 << 10,
	FAR_BYTES = 32 << 20,
	HALF_BYTES = 1 << 20, /* of a share that waits for the root to read it */
};

/* One share of all ranks' inputs on its way through the cache. */
struct fold {
	const struct op *op;
	uint32_t first;
	size_t at; /* of the share in the whole vector */
	size_t piece;
	const char *own;
	char *room; /* for pieces of ranks whose memory is not mapped, and for a sum */
	const char *mapped[SLOTS_RANKS];
};

static size_t piece_size(const struct comm *c)
{
	size_t each = CACHE_BYTES / (size_t)(c->size - 1);
	each = each < PIECE_MIN ? PIECE_MIN : each > PIECE_MAX ? PIECE_MAX : each;
	return each & ~(size_t)4095;
}

/* The working memory begins at byte `skip` of scratch. */
static int begin_fold(struct comm *c, struct fold *f, const struct op *op, size_t at, size_t bytes,
		      size_t skip, struct err *e)
{
	int unmapped = 0;
	*f = (struct fold){
		.op = op, .first = c->step, .at = at, .own = op->in, .piece = piece_size(c)
	};
	for (int r = 0; r < c->size; r++) {
		const struct remote_buffer *s = comm_readers_buffer(c, f->first, r, READERS_IN);
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

/* out[bytes] = the reduction of all ranks' bytes from `done` on in the share; at most one piece. */
static int fold_piece(struct comm *c, const struct fold *f, size_t done, size_t bytes, void *out,
		      struct err *e)
{
	const void *src[SLOTS_RANKS];
	for (int i = 0; i < c->size; i++) {
		int r = comm_nth_peer(c, i);
		char *room = f->room + (size_t)r * f->piece;
		src[r] = f->mapped[r] ? f->mapped[r] + f->at + done : room;
		if (!f->mapped[r] &&
		    comm_peer_memory_read(c, r, comm_readers_buffer(c, f->first, r, READERS_IN),
					  f->at + done, room, bytes, e))
			return -1;
	}
	comm_reduce_tree(f->op->type, f->op->redop, src, c->size, out,
			 bytes / comm_type_size(f->op->type));
	return 0;
}

/* out[bytes] = the reduction of all ranks' bytes from `from` on in the share. */
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
	enum readers_access access = comm_readers_begin(c, op, e);
	if (access <= READERS_SLOTS)
		return access == READERS_FAILED ? -1 : comm_slots_reduce_scatter(c, op, e);
	if (mine && (begin_fold(c, &f, op, at, mine, 0, e) || run_fold(c, &f, 0, mine, op->out, e)))
		return -1;
	return comm_step_wait(c, e);
}

/* Sums this rank's share and writes it to every rank that wants it; all memory is mapped. */
static int fold_into_all(struct comm *c, const struct op *op, const bool *wants, size_t at,
			 size_t bytes, struct err *e)
{
	struct fold f;
	char *out[SLOTS_RANKS];
	size_t all = bytes * (size_t)c->size;
	/* even the sum would leave the cache before all ranks have been written */
	bool far = all >= FAR_BYTES;
	int home = -1;
	if (begin_fold(c, &f, op, at, bytes, 0, e))
		return -1;
	for (int i = c->size - 1; i >= 0; i--) {
		int r = comm_nth_peer(c, i);
		out[r] = NULL;
		if (!wants[r])
			continue;
		out[r] = r == c->rank
				 ? op->out
				 : comm_peer_memory_map(
					   c, r, comm_readers_buffer(c, f.first, r, READERS_OUT),
					   at + bytes);
		if (!out[r])
			return comm_peer_memory_map_failed(c, r, e);
		home = r;
	}
	for (size_t done = 0; done < bytes; done += f.piece) {
		size_t len = min_size(bytes - done, f.piece);
		char *sum = far ? f.room : out[home] + at + done;
		if (fold_piece(c, &f, done, len, sum, e))
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
	enum readers_access access = comm_readers_begin(c, op, e);
	if (access <= READERS_SLOTS)
		return access == READERS_FAILED ? -1 : comm_slots_reduce(c, op, e);
	uint32_t first = c->step;
	comm_split_evenly(c, op->count, size, c->off);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	if (access == READERS_SHARED) {
		bool wants[SLOTS_RANKS];
		memset(wants, true, sizeof wants);
		if (mine && fold_into_all(c, op, wants, at, mine, e))
			return -1;
		return comm_step_wait(c, e);
	}
	if (mine &&
	    (begin_fold(c, &f, op, at, mine, 0, e) || run_fold(c, &f, 0, mine, out + at, e)))
		return -1;
	if (comm_step_wait(c, e))
		return -1;
	for (int i = 1; i < c->size; i++) {
		int r = comm_nth_peer(c, i);
		size_t from = c->off[r], len = c->off[r + 1] - from;
		if (comm_peer_memory_read(c, r, comm_readers_buffer(c, first, r, READERS_OUT), from,
					  out + from, len, e))
			return -1;
	}
	return comm_step_wait(c, e);
}

/* The root reads the other ranks' sums of the round before: HALF_BYTES of a share per round. */
static int read_halves(struct comm *c, const struct op *op, uint32_t first, size_t round,
		       struct err *e)
{
	for (int i = 1; i < c->size; i++) {
		int r = comm_nth_peer(c, i);
		size_t share = c->off[r + 1] - c->off[r], done = round * HALF_BYTES;
		if (done < share &&
		    comm_peer_memory_read(c, r, comm_readers_buffer(c, first, r, READERS_OUT),
					  round % 2 * HALF_BYTES,
					  (char *)op->out + c->off[r] + done,
					  min_size(share - done, HALF_BYTES), e))
			return -1;
	}
	return 0;
}

/* Round k: every rank sums a piece of its share, while the root reads the pieces of round k - 1. */
static int reduce_in_rounds(struct comm *c, const struct op *op, char *halves, struct err *e)
{
	struct fold f;
	uint32_t first = c->step;
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at, most = c->off[1];
	size_t rounds = (most + HALF_BYTES - 1) / HALF_BYTES;
	bool root = op->root == c->rank;
	if (begin_fold(c, &f, op, at, mine, 2 * HALF_BYTES, e))
		return -1;
	for (size_t k = 0; k <= rounds; k++) {
		size_t done = k * HALF_BYTES,
		       len = done < mine ? min_size(mine - done, HALF_BYTES) : 0;
		char *to = root ? (char *)op->out + at + done : halves + k % 2 * HALF_BYTES;
		if (len && run_fold(c, &f, done, len, to, e))
			return -1;
		if (root && k > 0 && read_halves(c, op, first, k - 1, e))
			return -1;
		if (comm_step_wait(c, e))
			return -1;
	}
	return 0;
}

int comm_readers_reduce(struct comm *c, const struct op *op, struct err *e)
{
	size_t size = comm_type_size(op->type);
	bool root = op->root == c->rank, wants[SLOTS_RANKS] = { false };
	/* Allocated at once, because published memory may not move. */
	char *halves = comm_group_scratch(c, 2 * HALF_BYTES + (size_t)c->size * PIECE_MAX, e);
	if (!halves)
		return -1;
	comm_readers_expose(c, op);
	if (!root)
		step_own_cell(c)->buffers[READERS_OUT] = peer_memory_describe(c, halves,
									      2 * HALF_BYTES);
	if (comm_step_wait_first(c, op, e))
		return -1;
	enum readers_access access = comm_readers_choose_access(c);
	if (access == READERS_SLOTS)
		return comm_slots_reduce(c, op, e);
	comm_split_evenly(c, op->count, size, c->off);
	if (access == READERS_READ)
		return reduce_in_rounds(c, op, halves, e);
	size_t at = c->off[c->rank], mine = c->off[c->rank + 1] - at;
	wants[op->root] = true;
	if (mine && fold_into_all(c, op, wants, at, mine, e))
		return -1;
	return comm_step_wait(c, e);
}
