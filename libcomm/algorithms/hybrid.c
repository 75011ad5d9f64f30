/*
 * Operations over several hosts of several ranks, for large vectors. Data crosses the network once
 * per host, not once per rank, and all ranks of a host carry a share of it.
 *
 * A vector is processed in chunks of one slot (comm_node_ranks_slot_bytes). Every rank owns a piece
 * of each chunk (hosts.h defines the size of a host's share).
 * - Up: every host sends the sum of its own ranks to the owner of a piece. It sends one partial
 *   result for each of the host's parts of the tree (tree.h). A part of one rank is sent as raw
 *   elements. The owner folds the results along the tree.
 * - Down: the owner sends the piece's result once to each other host, where all ranks copy it out
 *   of shared memory.
 *
 * The data that a host sends and receives is cut into one slice for each of its ranks.
 *
 * Round k sends chunk k up, sends chunk k - 1 down, and copies chunk k - 2 out. A broadcast works
 * in the same way, but with the root's elements instead of sums, and with the pieces owned by the
 * other hosts.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/algorithms/node_ranks.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/reduce.h"
#include "libcomm/shm/step.h"

#include <string.h>

enum {
	NOBODY = -1,
	SPARE = 128 /* bytes by which a later round's piece may be larger than the first's */
};

struct flow {
	struct node_ranks w;
	size_t acc;       /* bytes of an accumulator */
	size_t room;      /* bytes of a chunk */
	int source, sink; /* host of a broadcast's root; host of a reduce's root */
	const struct owned_piece *own;
	/* Working memory */
	const void **src;
	struct tree_leaf *leaves; /* by part */
	size_t leaf_room;
	char *leaf, *sums;
	char *piece[2]; /* this rank's result, by round */
};

static size_t round_line(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

static size_t acc_bytes(const struct flow *f, size_t bytes)
{
	return round_line(bytes / f->w.element * f->acc);
}

static struct flow begin_flow(struct comm *c, const struct op *op)
{
	const struct hosts *h = c->hosts;
	return (struct flow){ .w = comm_node_ranks_begin(c, op),
			      .acc = comm_reduce_acc_size(op->type),
			      .room = comm_node_ranks_slot_bytes(c),
			      .source = op->kind == OP_BROADCAST ? h->of[op->root] : NOBODY,
			      .sink = op->kind == OP_REDUCE ? h->of[op->root] : NOBODY };
}

/* The largest round is the first. */
static int allocate_flow(struct flow *f, struct err *e)
{
	struct comm *c = f->w.c;
	const struct hosts *h = f->w.h;
	size_t piece = round_line(f->own[c->rank].len + SPARE), sums = 0;
	int parts = h->part_begin[h->here + 1] - h->part_begin[h->here];
	for (int o = 0; o < c->size; o++)
		if (h->of[o] != h->here)
			sums += (size_t)parts *
				acc_bytes(f, hosts_slice(f->own[o].len + SPARE, f->w.size, 1));
	f->leaf_room = acc_bytes(f, piece);
	size_t src = round_line((size_t)h->most * sizeof *f->src);
	size_t leaves = round_line((size_t)h->part_count * sizeof *f->leaves);
	char *at = comm_group_scratch(
		c, src + leaves + 2 * piece + (size_t)h->part_count * f->leaf_room + sums, e);
	if (!at)
		return -1;
	f->src = (const void **)(void *)at;
	f->leaves = (struct tree_leaf *)(void *)(at += src);
	f->piece[0] = at += leaves;
	f->piece[1] = at += piece;
	f->leaf = at += piece;
	f->sums = at + (size_t)h->part_count * f->leaf_room;
	return 0;
}

/* --- The pieces of a round -------------------------------------------------------------------- */

/* Cuts len bytes of the vector from byte `at` on: each host's share, cut into its ranks' pieces. */
static void cut_chunk(const struct flow *f, size_t at, size_t len, struct owned_piece *own)
{
	const struct hosts *h = f->w.h;
	int ratio = (int)(f->acc / f->w.element);
	for (int a = 0; a < h->n; a++) {
		size_t begin = comm_hosts_share(h, ratio, len, a),
		       end = comm_hosts_share(h, ratio, len, a + 1);
		/* the root's host owns nothing, each other host an equal part */
		if (f->source != NOBODY) {
			int place = a < f->source ? a : a - 1;
			begin = a == f->source ? len : hosts_slice(len, h->n - 1, place);
			end = a == f->source ? len : hosts_slice(len, h->n - 1, place + 1);
		}
		int n = hosts_size(h, a);
		for (int i = 0; i < n; i++) {
			size_t b = begin + hosts_slice(end - begin, n, i),
			       e = begin + hosts_slice(end - begin, n, i + 1);
			own[h->ranks[h->begin[a] + i]] = (struct owned_piece){ b, at + b, e - b };
		}
	}
}

/* The contribution of a rank of this host to an owner's piece in this round. */
static const char *find_contribution(const struct flow *f, int rank, int owner)
{
	const struct node_ranks *w = &f->w;
	if (!w->node_group)
		return (const char *)w->op->in + f->own[owner].vector;
	return step_data(w->node_group, w->h->number[rank], f->room) + f->own[owner].slot;
}

/* --- Up --- */

/* The sum of a part of this host, over len bytes of owner's piece from byte `at` on. It is made in
 * room unless the part is one rank, whose elements are returned. */
static const char *sum_part(struct flow *f, struct tree_part part, int owner, size_t at, size_t len,
			    char *room)
{
	if (part.count == 1)
		return find_contribution(f, part.first, owner) + at;
	for (int i = 0; i < part.count; i++)
		f->src[i] = find_contribution(f, part.first + i, owner) + at;
	comm_reduce_partial(f->w.op->type, f->w.op->redop, f->src, part.count, room,
			    len / f->w.element);
	return room;
}

static size_t part_bytes(const struct flow *f, struct tree_part part, size_t bytes)
{
	return part.count == 1 ? bytes : bytes / f->w.element * f->acc;
}

/* Queues this rank's slice of the sums of the host's parts, for an owner on another host. */
static int queue_sum_sends(struct flow *f, int owner, char **room, struct err *e)
{
	const struct hosts *h = f->w.h;
	size_t at = hosts_slice(f->own[owner].len, f->w.size, f->w.me);
	size_t len = hosts_slice(f->own[owner].len, f->w.size, f->w.me + 1) - at;
	for (int i = h->part_begin[h->here]; len && i < h->part_begin[h->here + 1]; i++) {
		struct tree_part part = h->parts[h->part[i]];
		const char *sum = sum_part(f, part, owner, at, len, *room);
		if (comm_exchange_send(f->w.c, f->w.op, owner, sum, part_bytes(f, part, len), e) <
		    0)
			return -1;
		*room += sum == *room ? acc_bytes(f, len) : 0;
	}
	return 0;
}

/* Queues the receives of a host's sums for this rank's piece, from all its ranks. */
static int queue_sum_receives(struct flow *f, int host, struct err *e)
{
	const struct hosts *h = f->w.h;
	struct comm *c = f->w.c;
	int n = hosts_size(h, host);
	for (int j = 0; j < n; j++) {
		size_t at = hosts_slice(f->own[c->rank].len, n, j);
		size_t len = hosts_slice(f->own[c->rank].len, n, j + 1) - at;
		for (int i = h->part_begin[host]; len && i < h->part_begin[host + 1]; i++) {
			struct tree_part part = h->parts[h->part[i]];
			if (comm_exchange_recv(c, f->w.op, h->ranks[h->begin[host] + j],
					       f->leaves[h->part[i]].data + part_bytes(f, part, at),
					       part_bytes(f, part, len), e))
				return -1;
		}
	}
	return 0;
}

static int queue_sums(struct flow *f, struct err *e)
{
	struct comm *c = f->w.c;
	const struct hosts *h = f->w.h;
	char *room = f->sums;
	for (int i = 0; i < h->part_count; i++)
		f->leaves[i] = (struct tree_leaf){ h->parts[i],
						   h->parts[i].count == 1,
						   { f->leaf + (size_t)i * f->leaf_room } };
	for (int i = 1; i < c->size; i++) {
		int o = (c->rank + i) % c->size;
		if (h->of[o] != h->here && queue_sum_sends(f, o, &room, e))
			return -1;
	}
	for (int i = 1; i < h->n; i++)
		if (queue_sum_receives(f, (h->here + i) % h->n, e))
			return -1;
	return 0;
}

/* Folds the received sums and this host's own into this rank's piece. */
static void fold_piece(struct flow *f, char *out)
{
	const struct hosts *h = f->w.h;
	int rank = f->w.c->rank;
	size_t len = f->own[rank].len;
	for (int i = h->part_begin[h->here]; len && i < h->part_begin[h->here + 1]; i++) {
		struct tree_leaf *leaf = &f->leaves[h->part[i]];
		leaf->source = sum_part(f, leaf->part, rank, 0, len, leaf->data);
	}
	if (len)
		comm_tree_fold(f->w.op->type, f->w.op->redop, f->leaves, f->w.c->size, out,
			       len / f->w.element);
}

/* The way up of a broadcast: the root's elements to their owners. */
static int queue_elements(struct flow *f, char *piece, struct err *e)
{
	struct comm *c = f->w.c;
	const struct hosts *h = f->w.h;
	int n = hosts_size(h, f->source);
	for (int o = 0; h->here == f->source && o < c->size; o++) {
		size_t at = hosts_slice(f->own[o].len, n, f->w.me);
		size_t len = hosts_slice(f->own[o].len, n, f->w.me + 1) - at;
		if (len && comm_exchange_send(c, f->w.op, o,
					      find_contribution(f, f->w.op->root, o) + at, len, e))
			return -1;
	}
	for (int j = 0; h->here != f->source && j < n; j++) {
		size_t at = hosts_slice(f->own[c->rank].len, n, j);
		size_t len = hosts_slice(f->own[c->rank].len, n, j + 1) - at;
		if (len && comm_exchange_recv(c, f->w.op, h->ranks[h->begin[f->source] + j],
					      piece + at, len, e))
			return -1;
	}
	return 0;
}

/* --- Down --- */

/* Whether a host needs results: not if it has them already, nor if a reduce's root is elsewhere. */
static bool is_result_wanted(const struct flow *f, int host)
{
	return host != f->source && (f->sink == NOBODY || host == f->sink);
}

static bool takes_result(const struct flow *f)
{
	return f->w.op->kind != OP_REDUCE || f->w.op->root == f->w.c->rank;
}

/* The address of an owner's result of round k on this host. */
static char *find_result(const struct flow *f, const struct owned_piece *own, size_t k)
{
	if (!f->w.node_group)
		return (char *)f->w.op->out + own->vector;
	return segment_result(&f->w.node_group->segment, (unsigned)k) + own->slot;
}

/* The address where this rank computes its own result in round k. */
static char *find_own_piece(const struct flow *f, const struct owned_piece *own, size_t k)
{
	return !f->w.node_group && is_result_wanted(f, f->w.h->here) ? find_result(f, own, k)
								     : f->piece[k & 1];
}

/* Queues the results of round k, whose pieces are `own`. */
static int queue_results(struct flow *f, const struct owned_piece *own, size_t k, struct err *e)
{
	struct comm *c = f->w.c;
	const struct hosts *h = f->w.h;
	const struct owned_piece *mine = &own[c->rank];
	for (int i = 1; mine->len && i < h->n; i++) {
		int a = (h->here + i) % h->n, n = is_result_wanted(f, a) ? hosts_size(h, a) : 0;
		for (int j = 0; j < n; j++) {
			size_t at = hosts_slice(mine->len, n, j),
			       len = hosts_slice(mine->len, n, j + 1) - at;
			if (len && comm_exchange_send(c, f->w.op, h->ranks[h->begin[a] + j],
						      find_own_piece(f, mine, k) + at, len, e))
				return -1;
		}
	}
	for (int i = 1; is_result_wanted(f, h->here) && i < c->size; i++) {
		int o = (c->rank + c->size - i) % c->size;
		size_t at = hosts_slice(own[o].len, f->w.size, f->w.me);
		size_t len = hosts_slice(own[o].len, f->w.size, f->w.me + 1) - at;
		if (h->of[o] != h->here && len &&
		    comm_exchange_recv(c, f->w.op, o, find_result(f, &own[o], k) + at, len, e))
			return -1;
	}
	return 0;
}

/* --- The rounds --- */

static size_t chunk_bytes(const struct flow *f, size_t bytes, size_t k)
{
	size_t at = k * f->room;
	return at >= bytes ? 0 : bytes - at < f->room ? bytes - at : f->room;
}

/* Runs before the step of round k: copies chunk k into this rank's slot. */
static void write_chunk(const struct flow *f, size_t k, size_t len)
{
	bool gives = f->w.op->kind != OP_BROADCAST || f->w.op->root == f->w.c->rank;
	if (f->w.node_group && gives && len)
		memcpy(step_own_data(f->w.node_group, f->room),
		       (const char *)f->w.op->in + k * f->room, len);
}

/* Runs after the step of round k: copies out what is complete, and publishes this rank's result of
 * round k - 1. */
static void read_chunks(const struct flow *f, const struct owned_piece *before, size_t bytes,
			size_t k)
{
	const struct node_ranks *w = &f->w;
	const struct hosts *h = w->h;
	char *out = w->op->out;
	if (!w->node_group)
		return;
	if (h->here == f->source && w->op->root != w->c->rank && chunk_bytes(f, bytes, k))
		memcpy(out + k * f->room, step_data(w->node_group, h->number[w->op->root], f->room),
		       chunk_bytes(f, bytes, k));
	if (!is_result_wanted(f, h->here))
		return;
	if (k >= 2 && takes_result(f))
		memcpy(out + (k - 2) * f->room,
		       segment_result(&w->node_group->segment, (unsigned)k),
		       chunk_bytes(f, bytes, k - 2));
	if (k >= 1 && before[w->c->rank].len)
		memcpy(find_result(f, &before[w->c->rank], k - 1),
		       find_own_piece(f, &before[w->c->rank], k - 1), before[w->c->rank].len);
}

static int run_round(struct flow *f, const struct owned_piece *before, size_t k, struct err *e)
{
	struct comm *c = f->w.c;
	char *mine = find_own_piece(f, &f->own[c->rank], k);
	comm_exchange_begin(c);
	if ((f->source == NOBODY ? queue_sums(f, e) : queue_elements(f, mine, e)) < 0 ||
	    (k > 0 && queue_results(f, before, k - 1, e)) || comm_exchange_run(c, e))
		return -1;
	if (f->source == NOBODY)
		fold_piece(f, mine);
	return 0;
}

/* Implements all_reduce, reduce and broadcast. */
int comm_hybrid_flow(struct comm *c, const struct op *op, struct err *e)
{
	struct flow f = begin_flow(c, op);
	struct owned_piece *const *own = c->hosts->owned;
	size_t bytes = op->count * f.w.element, chunks = (bytes + f.room - 1) / f.room;
	for (size_t k = 0; k < chunks + 2; k++) {
		size_t len = chunk_bytes(&f, bytes, k);
		cut_chunk(&f, k * f.room, len, own[k & 1]);
		f.own = own[k & 1];
		if (k == 0 && allocate_flow(&f, e))
			return -1;
		write_chunk(&f, k, len);
		if (comm_node_ranks_step(&f.w, e))
			return -1;
		read_chunks(&f, own[(k + 1) & 1], bytes, k);
		if (run_round(&f, own[(k + 1) & 1], k, e))
			return -1;
	}
	return 0;
}

/* --- reduce_scatter: up only, every rank owns its block --- */

bool comm_hybrid_scatter_fits(const struct comm *c, size_t bytes)
{
	(void)bytes;
	return comm_node_ranks_fit(c) && (size_t)c->size <= comm_node_ranks_slot_bytes(c) / 64;
}

/* Cuts the k-th piece of every block; returns the length of the longest. */
static size_t cut_blocks(const struct comm *c, size_t k, size_t each, struct owned_piece *own)
{
	size_t most = 0;
	for (int r = 0; r < c->size; r++) {
		size_t block = c->off[r + 1] - c->off[r], at = k * each;
		size_t len = at >= block ? 0 : block - at < each ? block - at : each;
		own[r] = (struct owned_piece){ (size_t)r * each, c->off[r] + at, len };
		most = len > most ? len : most;
	}
	return most;
}

int comm_hybrid_reduce_scatter(struct comm *c, const struct op *op, struct err *e)
{
	struct flow f = begin_flow(c, op);
	struct owned_piece *own = c->hosts->owned[0];
	size_t each = f.room / (size_t)c->size & ~(size_t)63;
	comm_op_blocks(op, op->counts, c->size, c->off);
	f.own = own;
	for (size_t k = 0; cut_blocks(c, k, each, own) || k == 0; k++) {
		if (k == 0 && allocate_flow(&f, e))
			return -1;
		for (int o = 0; f.w.node_group && o < c->size; o++)
			if (own[o].len)
				memcpy(step_own_data(f.w.node_group, f.room) + own[o].slot,
				       (const char *)op->in + own[o].vector, own[o].len);
		if (comm_node_ranks_step(&f.w, e))
			return -1;
		comm_exchange_begin(c);
		if (queue_sums(&f, e) || comm_exchange_run(c, e))
			return -1;
		fold_piece(&f, (char *)op->out + k * each);
	}
	return 0;
}
