/* collectives_run: how NCCL's double carries out operations. Ranks leave their calls in slots, which their peers
 * read. */
#include "tests/gpu/doubles/collectives_inside.h"

#include <stdlib.h>
#include <string.h>

/* --- Collectives --- */

static bool all_came(const struct ncclComm *c, uint32_t n)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->collective[r][n % SLOTS].came < n)
			return false;
	return true;
}

static bool all_read(const struct ncclComm *c, uint32_t n)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->collective[r][n % SLOTS].read < n)
			return false;
	return true;
}

static const struct call *call_of(const struct ncclComm *c, int rank, uint32_t n)
{
	return &c->area->collective[rank][n % SLOTS].call;
}

static void check_agreement(const struct ncclComm *c, const struct part *p)
{
	const struct call *mine = &p->call;
	for (int r = 0; r < c->ranks; r++) {
		const struct call *x = call_of(c, r, p->number);
		if (c->area->collective[r][p->number % SLOTS].captured != p->captured)
			double_misuse("collective %u is in a graph on rank %d only", p->number,
				      p->captured ? c->rank : r);
		if (mine->kind != REDUCE && mine->kind != BROADCAST &&
		    (x->in_registered != mine->in_registered ||
		     x->out_registered != mine->out_registered))
			double_misuse("collective %u: rank %d has its buffers registered, rank %d "
				      "has not",
				      p->number, mine->in_registered ? c->rank : r,
				      mine->in_registered ? r : c->rank);
		if (x->kind != mine->kind || x->count != mine->count || x->type != mine->type ||
		    x->op != mine->op || x->peer != mine->peer)
			double_misuse("collective %u: rank %d calls %d(%zu, type %d, op %d, root "
				      "%d), rank %d "
				      "%d(%zu, type %d, op %d, root %d)",
				      p->number, c->rank, mine->kind, mine->count, (int)mine->type,
				      (int)mine->op, mine->peer, r, x->kind, x->count, (int)x->type,
				      (int)x->op, x->peer);
	}
}

size_t double_result_bytes(const struct ncclComm *c, const struct call *call)
{
	size_t bytes = call->count * double_type_size(call->type);
	if (call->kind == REDUCE && call->peer != c->rank)
		return 0;
	return call->kind == ALL_GATHER ? bytes * (size_t)c->ranks : bytes;
}

/* Bytes of them that NCCL 2.28.9 writes. Its kernel for the average over one rank gives each block
 * an equal part of the elements, rounded down before it is rounded up to 16 bytes, so that the last
 * elements can belong to no block (src/device/onerank.cu; NCCL 2.29.7 rounds up). */
static size_t written_bytes(const struct ncclComm *c, const struct call *call)
{
	enum { PACK = 16, PART = 16 << 10, BLOCKS = 32 };
	size_t bytes = double_result_bytes(c, call), element = double_type_size(call->type);
	bool is_reduced = call->kind == ALL_REDUCE || call->kind == REDUCE ||
			  call->kind == REDUCE_SCATTER;
	if (c->ranks > 1 || !bytes || !is_reduced || call->op != ncclAvg)
		return bytes;
	size_t blocks = (bytes + PART - 1) / PART;
	blocks = blocks < BLOCKS ? blocks : BLOCKS;
	size_t part = (call->count / blocks * element + PACK - 1) / PACK * PACK;
	return part * blocks < bytes ? part * blocks : bytes;
}

/* Into p->result. */
static void compute(const struct ncclComm *c, struct part *p)
{
	const struct call *call = &p->call;
	size_t block = call->count * double_type_size(call->type),
	       bytes = double_result_bytes(c, call);
	size_t at = call->kind == REDUCE_SCATTER ? (size_t)c->rank * block : 0;
	if (!bytes)
		return;
	p->result = malloc(bytes);
	if (call->kind == BROADCAST) {
		memcpy(p->result, call_of(c, call->peer, p->number)->in, bytes);
		return;
	}
	for (int r = c->ranks - 1; r >= 0; r--) {
		const char *in = (const char *)call_of(c, r, p->number)->in + at;
		if (call->kind == ALL_GATHER)
			memcpy((char *)p->result + (size_t)r * block, in, block);
		else if (r == c->ranks - 1)
			memcpy(p->result, in, block);
		else
			double_fold(call->type, call->op, p->result, in, call->count);
	}
	if (call->kind != ALL_GATHER && call->op == ncclAvg)
		double_average(call->type, p->result, call->count, c->ranks);
}

static bool post(struct slot *slot, struct part *p)
{
	if (!p->posted && (p->number <= SLOTS || slot->read >= p->number - SLOTS)) {
		slot->call = p->call;
		slot->captured = p->captured;
		slot->came = p->number;
		p->posted = true;
	}
	return p->posted;
}

static bool collective(struct ncclComm *c, struct part *p)
{
	struct slot *slot = &c->area->collective[c->rank][p->number % SLOTS];
	if (!p->posted && p->number > SLOTS && !all_read(c, p->number - SLOTS))
		return false;
	if (!post(slot, p) || !all_came(c, p->number))
		return false;
	if (slot->read < p->number) {
		check_agreement(c, p);
		compute(c, p);
		slot->read = p->number;
	}
	if (!all_read(c, p->number))
		return false;
	if (p->result)
		memcpy(p->call.out, p->result, written_bytes(c, &p->call));
	free(p->result);
	return true;
}

/* --- Messages --- */

static bool message(struct ncclComm *c, struct part *p)
{
	const struct call *call = &p->call;
	if (call->kind == SEND) {
		struct slot *slot = &c->area->message[c->rank][call->peer][p->number % SLOTS];
		return post(slot, p) && slot->read >= p->number;
	}
	struct slot *slot = &c->area->message[call->peer][c->rank][p->number % SLOTS];
	if (slot->came < p->number)
		return false;
	if (slot->call.count != call->count || slot->call.type != call->type)
		double_misuse("message %u from rank %d to rank %d: %zu of type %d are sent, %zu of "
			      "type %d taken",
			      p->number, call->peer, c->rank, slot->call.count,
			      (int)slot->call.type, call->count, (int)call->type);
	memcpy(call->out, slot->call.in, call->count * double_type_size(call->type));
	slot->read = p->number;
	return true;
}

/* --- Groups --- */

bool double_group_run(void *arg)
{
	struct group *g = arg;
	bool ended = g->comm->over || g->comm->family->aborted;
	bool here = !ended && double_order_begin(g), done = here;
	for (int i = 0; here && i < g->count; i++) {
		struct part *p = &g->part[i];
		if (!p->done)
			p->done = p->call.kind >= SEND ? message(g->comm, p)
						       : collective(g->comm, p);
		done &= p->done;
	}
	if (done || ended) {
		double_order_end(g);
		return true;
	}
	return false;
}
