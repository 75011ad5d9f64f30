/*
 * Operations over several hosts of several ranks, for small vectors, whose time is latency alone.
 * The first rank of each host is its leader, and only leaders use the network. The ranks of a host
 * put their contributions into the slots first, and read the result there afterwards.
 */
#include "libcomm/algorithms/algorithms.h"
#include "libcomm/algorithms/node_ranks.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/reduce.h"
#include "libcomm/shm/step.h"

#include <string.h>

/* At most this many leaders exchange all parts. More leaders pass sums up the tree. */
enum { FEW_HOSTS = 4 };

bool comm_leaders_fit(const struct comm *c, size_t bytes)
{
	return comm_node_ranks_fit(c) && bytes <= SEG_SLOT;
}

struct leaders_op { /* a reduction among the leaders */
	struct node_ranks w;
	size_t bytes, acc_bytes;
	size_t stride; /* of the areas below, in scratch */
	const void **src;
	struct tree_leaf *leaves; /* by part */
	char *room;               /* one stride per part, and a spare one */
	/* where this host's ranks expect the result; NULL: they do not need it */
	char *result;
	const struct tree_part *next;
};

static size_t round_line(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

static int allocate_leaders(struct leaders_op *m, struct err *e)
{
	const struct hosts *h = m->w.h;
	size_t parts = (size_t)h->part_count, src = round_line((size_t)h->most * sizeof *m->src);
	size_t leaves = round_line(parts * sizeof *m->leaves);
	m->stride = round_line(m->acc_bytes);
	char *at = comm_group_scratch(m->w.c, src + leaves + (parts + 1) * m->stride, e);
	if (!at)
		return -1;
	m->src = (const void **)(void *)at;
	m->leaves = (struct tree_leaf *)(void *)(at + src);
	m->room = at + src + leaves;
	m->next = h->parts;
	return 0;
}

static const char *find_contribution(const struct leaders_op *m, int rank)
{
	const struct node_ranks *w = &m->w;
	return w->node_group ? step_data(w->node_group, w->h->number[rank], m->bytes)
			     : (const char *)w->op->in;
}

static void sum_part(const struct leaders_op *m, struct tree_part part, void *acc)
{
	for (int i = 0; i < part.count; i++)
		m->src[i] = find_contribution(m, part.first + i);
	comm_reduce_partial(m->w.op->type, m->w.op->redop, m->src, part.count, acc, m->w.op->count);
}

static bool is_result_wanted(const struct node_ranks *w, int host)
{
	return w->op->kind != OP_REDUCE || host == w->h->of[w->op->root];
}

/* --- Few hosts: every leader that needs the result gets all parts ----------------------------- */

static int queue_parts(struct leaders_op *m, struct err *e)
{
	const struct node_ranks *w = &m->w;
	const struct hosts *h = w->h;
	for (int i = 0; i < h->part_count; i++) {
		struct tree_leaf *leaf = &m->leaves[i];
		int host = h->of[h->parts[i].first];
		*leaf = (struct tree_leaf){ h->parts[i],
					    h->parts[i].count == 1,
					    { m->room + (size_t)i * m->stride } };
		size_t len = leaf->raw ? m->bytes : m->acc_bytes;
		if (host != h->here) {
			if (m->result &&
			    comm_exchange_recv(w->c, w->op, h->leader[host], leaf->data, len, e))
				return -1;
			continue;
		}
		if (leaf->raw)
			leaf->source = find_contribution(m, leaf->part.first);
		else
			sum_part(m, leaf->part, leaf->data);
		for (int k = 1; k < h->n; k++) {
			int to = (h->here + k) % h->n;
			if (is_result_wanted(w, to) &&
			    comm_exchange_send(w->c, w->op, h->leader[to], leaf->data, len, e))
				return -1;
		}
	}
	return 0;
}

static int exchange_parts(struct leaders_op *m, struct err *e)
{
	const struct node_ranks *w = &m->w;
	comm_exchange_begin(w->c);
	if (queue_parts(m, e) || comm_exchange_run(w->c, e))
		return -1;
	if (m->result)
		comm_tree_fold(w->op->type, w->op->redop, m->leaves, w->c->size, m->result,
			       w->op->count);
	return 0;
}

/* --- Many hosts: sums go up the tree, the result comes down ----------------------------------- */

static int send_now(struct comm *c, const struct op *op, int to, const void *data, size_t bytes,
		    struct err *e)
{
	comm_exchange_begin(c);
	return comm_exchange_send(c, op, to, data, bytes, e) ? -1 : comm_exchange_run(c, e);
}

static int recv_now(struct comm *c, const struct op *op, int from, void *data, size_t bytes,
		    struct err *e)
{
	comm_exchange_begin(c);
	return comm_exchange_recv(c, op, from, data, bytes, e) ? -1 : comm_exchange_run(c, e);
}

/* Brings the sum of a node to the host of its first rank: *acc there, NULL elsewhere. */
static int sum_up_tree(struct leaders_op *m, int first, int width, char **acc, struct err *e)
{
	const struct node_ranks *w = &m->w;
	const struct hosts *h = w->h;
	*acc = NULL;
	if (m->next->first == first &&
	    m->next->count == (width < w->c->size - first ? width : w->c->size - first)) {
		if (h->of[first] == h->here) {
			*acc = m->room + (m->next - h->parts) * (ptrdiff_t)m->stride;
			sum_part(m, *m->next, *acc);
		}
		m->next++;
		return 0;
	}
	int middle = first + width / 2;
	char *right = NULL;
	if (sum_up_tree(m, first, width / 2, acc, e) ||
	    (middle < w->c->size && sum_up_tree(m, middle, width / 2, &right, e)))
		return -1;
	if (middle >= w->c->size || (!*acc && !right))
		return 0;
	if (!*acc)
		return send_now(w->c, w->op, h->leader[h->of[first]], right, m->acc_bytes, e);
	if (!right) {
		right = m->room + (size_t)h->part_count * m->stride;
		if (recv_now(w->c, w->op, h->leader[h->of[middle]], right, m->acc_bytes, e))
			return -1;
	}
	comm_reduce_fold(w->op->type, w->op->redop, *acc, right, w->op->count);
	return 0;
}

static int reduce_by_tree(struct leaders_op *m, struct err *e)
{
	const struct node_ranks *w = &m->w;
	const struct hosts *h = w->h;
	const struct op *op = w->op;
	int width = 1, top = h->of[0];
	char *acc;
	while (width < w->c->size)
		width *= 2;
	if (sum_up_tree(m, 0, width, &acc, e))
		return -1;
	char *sum = m->result ? m->result : m->room + (size_t)h->part_count * m->stride;
	if (h->here == top)
		comm_reduce_store(op->type, op->redop, sum, acc, op->count, w->c->size);
	if (op->kind != OP_REDUCE)
		return comm_broadcast_among(w->c, op, h->leader, h->n, top, h->here, sum, m->bytes,
					    e);
	int to = h->of[op->root];
	if (h->here == top && to != top)
		return send_now(w->c, op, h->leader[to], sum, m->bytes, e);
	return h->here == to && to != top ? recv_now(w->c, op, h->leader[top], sum, m->bytes, e)
					  : 0;
}

/* Implements all_reduce and reduce. */
int comm_leaders_reduce(struct comm *c, const struct op *op, struct err *e)
{
	struct leaders_op m = { .w = comm_node_ranks_begin(c, op),
				.bytes = op->count * comm_type_size(op->type),
				.acc_bytes = op->count * comm_reduce_acc_size(op->type) };
	struct node_ranks *w = &m.w;
	bool here = is_result_wanted(w, w->h->here),
	     takes = op->kind != OP_REDUCE || op->root == c->rank;
	if (w->node_group && m.bytes)
		memcpy(step_own_data(w->node_group, m.bytes), op->in, m.bytes);
	if (comm_node_ranks_step(w, e))
		return -1;
	char *shared = w->node_group ? segment_result(&w->node_group->segment, w->node_group->step)
				     : op->out;
	m.result = here ? shared : NULL;
	if (w->me == 0 && m.bytes &&
	    (allocate_leaders(&m, e) ||
	     (w->h->n <= FEW_HOSTS ? exchange_parts(&m, e) : reduce_by_tree(&m, e)) < 0))
		return -1;
	if (!w->node_group || !here)
		return 0;
	if (comm_node_ranks_step(w, e))
		return -1;
	if (takes && m.bytes)
		memcpy(op->out, shared, m.bytes);
	return 0;
}

/* --- Without reduction ------------------------------------------------------------------------ */

/* The root's host has the data first. On the other hosts the leader receives it, forwards it, then
 * publishes it. */
int comm_leaders_broadcast(struct comm *c, const struct op *op, struct err *e)
{
	struct node_ranks w = comm_node_ranks_begin(c, op);
	const struct hosts *h = w.h;
	size_t bytes = op->count * w.element;
	int source = h->of[op->root], giver = h->here == source ? h->number[op->root] : 0;
	bool near = h->here == source;
	if (near && w.node_group && op->root == c->rank && bytes)
		memcpy(step_own_data(w.node_group, bytes), op->out, bytes);
	if (near && comm_node_ranks_step(&w, e))
		return -1;
	if (w.node_group && near && op->root != c->rank && bytes)
		memcpy(op->out, step_data(w.node_group, giver, bytes), bytes);
	if (w.me == 0 && bytes &&
	    comm_broadcast_among(c, op, h->leader, h->n, source, h->here, op->out, bytes, e))
		return -1;
	if (near || !w.node_group)
		return 0;
	if (w.me == 0 && bytes)
		memcpy(step_own_data(w.node_group, bytes), op->out, bytes);
	if (comm_node_ranks_step(&w, e))
		return -1;
	if (w.me != 0 && bytes)
		memcpy(op->out, step_data(w.node_group, giver, bytes), bytes);
	return 0;
}

int comm_leaders_barrier(struct comm *c, const struct op *op, struct err *e)
{
	struct node_ranks w = comm_node_ranks_begin(c, op);
	const struct hosts *h = w.h;
	if (comm_node_ranks_step(&w, e) ||
	    (w.me == 0 && comm_barrier_among(c, op, h->leader, h->n, h->here, e)))
		return -1;
	return comm_node_ranks_step(&w, e);
}
