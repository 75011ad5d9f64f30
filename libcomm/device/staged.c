/*
 * staged — operations on device memory through the host. Each block of the operation is cut into
 * slices; the k-th slices of all blocks are a chunk. A chunk is copied into pinned memory, given to
 * the group's host operation, and the result is copied back. Two slots alternate, so that the
 * copies of the next and the previous chunk run while the host computes. An element's reduction
 * depends on nothing but the ranks, so the result equals that of the same operation on host memory,
 * bit for bit.
 *
 * An all_to_all is sent as messages, because only the two ranks concerned know how many slices
 * there are; a slice of a message has the same size on both sides.
 */
#include "libcomm/device/device_group.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, MESSAGE = 256 << 10, ALIGN = 64 };

struct block { /* of device memory */
	union {
		char *data;
		const char *source; /* the same pointer; an input is only read */
	};
	size_t bytes;
	int peer; /* of a message */
};

struct buffer { /* pinned */
	void *memory;
	size_t size;
};

struct staging_slot {
	struct buffer in, out;
	void *loaded, *stored; /* events: the copies to this slot, and from it */
};

struct staged {
	struct staging_slot slot[2];
	void *load, *store; /* streams */
	struct block *ins, *outs;
	int in_count, out_count, block_room;
	size_t *counts; /* of a chunk's host operation, by rank */
	struct comm_p2p *messages;
};

/* The division of an operation into chunks. */
struct chunk_plan {
	const struct op *op;
	size_t element, slice; /* bytes */
	size_t chunks;
};

/* --- Blocks --- */

static int reserve_blocks(struct staged *s, int want, struct err *e)
{
	if (want <= s->block_room)
		return 0;
	struct block *ins = realloc(s->ins, (size_t)want * sizeof *ins);
	if (ins)
		s->ins = ins;
	struct block *outs = realloc(s->outs, (size_t)want * sizeof *outs);
	if (outs)
		s->outs = outs;
	struct comm_p2p *messages = realloc(s->messages, 2 * (size_t)want * sizeof *messages);
	if (messages)
		s->messages = messages;
	if (!ins || !outs || !messages)
		return err_set(e, ERR_NOMEM, "no memory for %d blocks", want);
	s->block_room = want;
	return 0;
}

static size_t count_of(const struct op *op, const size_t *counts, int rank)
{
	return counts ? counts[rank] : op->count;
}

static void add_block(struct staged *s, bool in, struct block b)
{
	if (in)
		s->ins[s->in_count++] = b;
	else
		s->outs[s->out_count++] = b;
}

/* Lists one buffer of this rank: one block, or one block per rank. */
static void add_share(struct comm *c, const struct op *op, bool in, enum op_share share,
		      const size_t *counts)
{
	struct staged *s = c->device_group->staged;
	struct block b = { .peer = 0 };
	if (in)
		b.source = op->in;
	else
		b.data = op->out;
	if (share == SHARE_BLOCK || (share == SHARE_WHOLE && comm_op_has(op->kind, OP_ONE_BLOCK))) {
		b.bytes = comm_op_share_bytes(op, share, counts, c->rank, c->size);
		add_block(s, in, b);
	} else if (share == SHARE_WHOLE) {
		for (int r = 0; r < c->size; r++) {
			b.bytes = count_of(op, counts, r) * comm_type_size(op->type);
			b.peer = r;
			add_block(s, in, b);
			b.source += b.bytes;
		}
	}
}

static void list_messages(struct staged *s, const struct op *op)
{
	for (int i = 0; i < op->n; i++) {
		const struct comm_p2p *p = &op->p2p[i];
		add_block(s, p->send,
			  (struct block){ .data = p->data,
					  .bytes = p->count * comm_type_size(p->type),
					  .peer = p->peer });
	}
}

static void list_blocks(struct comm *c, const struct op *op)
{
	struct staged *s = c->device_group->staged;
	bool pairwise = comm_op_has(op->kind, OP_PAIRWISE);
	s->in_count = s->out_count = 0;
	if (op->kind == OP_P2P) {
		list_messages(s, op);
		return;
	}
	add_share(c, op, true, comm_op_in_share(op, c->rank), op->counts);
	add_share(c, op, false, comm_op_out_share(op, c->rank),
		  pairwise ? op->out_counts : op->counts);
}

static bool is_messages(const struct op *op)
{
	return op->kind == OP_P2P || comm_op_has(op->kind, OP_PAIRWISE);
}

/* The size of a slice, and the number of slices. In a collective, both are equal on all ranks. */
static struct chunk_plan plan_chunks(struct comm *c, const struct op *op)
{
	struct staged *s = c->device_group->staged;
	struct chunk_plan plan = { .op = op,
				   .element = comm_type_size(op->type),
				   .slice = MESSAGE };
	size_t longest = 0;
	if (is_messages(op)) {
		for (int i = 0; i < s->in_count; i++)
			longest = s->ins[i].bytes > longest ? s->ins[i].bytes : longest;
		for (int i = 0; i < s->out_count; i++)
			longest = s->outs[i].bytes > longest ? s->outs[i].bytes : longest;
	} else {
		bool one = comm_op_has(op->kind, OP_ONE_BLOCK);
		plan.slice = CHUNK / (size_t)(one ? 1 : c->size) / ALIGN * ALIGN;
		plan.slice = plan.slice ? plan.slice : ALIGN;
		for (int r = 0; r < c->size; r++) {
			size_t bytes = count_of(op, op->counts, r) * plan.element;
			longest = bytes > longest ? bytes : longest;
		}
	}
	plan.chunks = (longest + plan.slice - 1) / plan.slice;
	/* an operation without data still needs all ranks */
	plan.chunks = plan.chunks ? plan.chunks : 1;
	return plan;
}

static size_t slice_bytes(const struct chunk_plan *plan, size_t bytes, size_t k)
{
	size_t at = k * plan->slice;
	size_t left = bytes > at ? bytes - at : 0;
	return left < plan->slice ? left : plan->slice;
}

/* --- Pinned memory --- */

static void buffer_close(struct comm *c, struct buffer *b)
{
	if (!b->memory)
		return;
	c->device_group->api->unpin(c->device_group->device, b->memory);
	comm_free(c, b->memory);
	*b = (struct buffer){ NULL, 0 };
}

/* Memory that the device copies fast and that the host's operations read in place. */
static int reserve_buffer(struct comm *c, struct buffer *b, size_t want, struct err *e)
{
	if (want <= b->size)
		return 0;
	void *memory;
	buffer_close(c, b);
	if (comm_alloc(c, want, &memory, e))
		return -1;
	if (c->device_group->api->pin(c->device_group->device, memory, want, e)) {
		comm_free(c, memory);
		return -1;
	}
	*b = (struct buffer){ memory, want };
	return 0;
}

static size_t pad_bytes(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes of the first slices of these blocks, which are the largest. */
static size_t chunk_bytes(const struct chunk_plan *plan, const struct block *b, int n)
{
	size_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += pad_bytes(slice_bytes(plan, b[i].bytes, 0));
	return sum;
}

static int reserve_slots(struct comm *c, const struct chunk_plan *plan, struct err *e)
{
	struct staged *s = c->device_group->staged;
	size_t in = chunk_bytes(plan, s->ins, s->in_count),
	       out = chunk_bytes(plan, s->outs, s->out_count);
	for (size_t i = 0; i < 2 && i < plan->chunks; i++) {
		struct staging_slot *slot = &s->slot[i];
		if (out > slot->out.size &&
		    comm_device_group_await(c, slot->stored, "the copy to the device", e))
			return -1;
		if (reserve_buffer(c, &slot->in, in, e) || reserve_buffer(c, &slot->out, out, e))
			return -1;
	}
	return 0;
}

/* --- A chunk --- */

static int load_chunk(struct comm *c, const struct chunk_plan *plan, size_t k, struct err *e)
{
	struct device_group *d = c->device_group;
	struct staged *s = d->staged;
	struct staging_slot *slot = &s->slot[k % 2];
	char *at = slot->in.memory;
	for (int i = 0; i < s->in_count; i++) {
		size_t bytes = slice_bytes(plan, s->ins[i].bytes, k);
		if (bytes && d->api->copy(d->device, at, s->ins[i].source + k * plan->slice, bytes,
					  s->load, e))
			return -1;
		at += bytes;
	}
	return d->api->event_record(d->device, slot->loaded, s->load, e);
}

static int store_chunk(struct comm *c, const struct chunk_plan *plan, size_t k, struct err *e)
{
	struct device_group *d = c->device_group;
	struct staged *s = d->staged;
	struct staging_slot *slot = &s->slot[k % 2];
	const char *at = slot->out.memory;
	for (int i = 0; i < s->out_count; i++) {
		size_t bytes = slice_bytes(plan, s->outs[i].bytes, k);
		if (bytes && d->api->copy(d->device, s->outs[i].data + k * plan->slice, at, bytes,
					  s->store, e))
			return -1;
		at += bytes;
	}
	return d->api->event_record(d->device, slot->stored, s->store, e);
}

static int add_messages(const struct chunk_plan *plan, size_t k, const struct block *b, int count,
			bool send, char *at, struct comm_p2p *out)
{
	int n = 0;
	for (int i = 0; i < count; i++) {
		size_t bytes = slice_bytes(plan, b[i].bytes, k);
		/* A message that is empty as a whole is still a message. */
		if (bytes || (k == 0 && plan->op->kind == OP_P2P))
			out[n++] = (struct comm_p2p){ send, { at }, bytes, COMM_U8, b[i].peer };
		at += bytes;
	}
	return n;
}

static int exchange_chunk(struct comm *c, const struct chunk_plan *plan, size_t k, struct err *e)
{
	struct staged *s = c->device_group->staged;
	struct staging_slot *slot = &s->slot[k % 2];
	int n = add_messages(plan, k, s->ins, s->in_count, true, slot->in.memory, s->messages);
	n += add_messages(plan, k, s->outs, s->out_count, false, slot->out.memory, s->messages + n);
	struct op op = {
		.kind = OP_P2P, .p2p = s->messages, .n = n, .record = k ? 0 : plan->op->record
	};
	return comm_group_run_host(c, &op, e);
}

/* Runs the operation itself on the k-th slices. */
static int run_host_chunk(struct comm *c, const struct chunk_plan *plan, size_t k, struct err *e)
{
	struct staged *s = c->device_group->staged;
	struct staging_slot *slot = &s->slot[k % 2];
	if (is_messages(plan->op))
		return exchange_chunk(c, plan, k, e);
	struct op op = *plan->op;
	op.mark = NULL;
	op.record = k ? 0 : op.record;
	op.in = s->in_count ? slot->in.memory : NULL;
	op.out = s->out_count ? slot->out.memory : NULL;
	if (comm_op_has(op.kind, OP_ONE_BUFFER))
		op.in = op.out = s->in_count ? slot->in.memory : slot->out.memory;
	op.count = slice_bytes(plan, op.count * plan->element, k) / plan->element;
	for (int r = 0; op.counts && r < c->size; r++)
		s->counts[r] = slice_bytes(plan, plan->op->counts[r] * plan->element, k) /
			       plan->element;
	if (op.counts)
		op.counts = s->counts;
	return comm_group_run_host(c, &op, e);
}

/* The host's part of chunk k, while the device loads the next chunk and stores the previous one. */
static int run_chunk(struct comm *c, const struct chunk_plan *plan, size_t k, struct err *e)
{
	struct staging_slot *slot = &c->device_group->staged->slot[k % 2];
	if (k + 1 < plan->chunks && load_chunk(c, plan, k + 1, e))
		return -1;
	if (comm_device_group_await(c, slot->loaded,
				    "the device's work before it, or the copy from the device",
				    e) ||
	    comm_device_group_await(c, slot->stored, "the copy to the device", e) ||
	    run_host_chunk(c, plan, k, e))
		return -1;
	return store_chunk(c, plan, k, e);
}

int comm_staged_run(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e)
{
	struct device_group *d = c->device_group;
	struct staged *s = d->staged;
	if (reserve_blocks(s, op->kind == OP_P2P ? op->n : c->size, e))
		return -1;
	list_blocks(c, op);
	struct chunk_plan plan = plan_chunks(c, op);
	if (reserve_slots(c, &plan, e) || d->api->stream_wait(d->device, s->load, m->begin, e) ||
	    d->api->stream_wait(d->device, s->store, m->begin, e) || load_chunk(c, &plan, 0, e))
		return -1;
	for (size_t k = 0; k < plan.chunks; k++)
		if (run_chunk(c, &plan, k, e))
			return -1;
	return d->api->event_record(d->device, m->end, s->store, e);
}

int comm_staged_sync(struct comm *c, struct err *e)
{
	struct staged *s = c->device_group->staged;
	for (int i = 0; i < 2; i++)
		if (comm_device_group_await(c, s->slot[i].stored, "the copy to the device", e))
			return -1;
	return 0;
}

/* --- Opening and closing --- */

int comm_staged_open(struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	struct staged *s = d->staged = calloc(1, sizeof *s);
	if (s)
		s->counts = calloc((size_t)c->size, sizeof *s->counts);
	if (!s || !s->counts)
		return err_set(e, ERR_NOMEM, "no memory for copies of device memory");
	if (d->api->stream_open(d->device, &s->load, e) ||
	    d->api->stream_open(d->device, &s->store, e))
		return -1;
	for (int i = 0; i < 2; i++)
		if (d->api->event_open(d->device, &s->slot[i].loaded, e) ||
		    d->api->event_open(d->device, &s->slot[i].stored, e))
			return -1;
	return 0;
}

void comm_staged_close(struct comm *c)
{
	struct device_group *d = c->device_group;
	struct staged *s = d->staged;
	if (!s)
		return;
	if (s->load)
		d->api->stream_close(d->device, s->load);
	if (s->store)
		d->api->stream_close(d->device, s->store);
	for (int i = 0; i < 2; i++) {
		buffer_close(c, &s->slot[i].in);
		buffer_close(c, &s->slot[i].out);
		if (s->slot[i].loaded)
			d->api->event_close(d->device, s->slot[i].loaded);
		if (s->slot[i].stored)
			d->api->event_close(d->device, s->slot[i].stored);
	}
	free(s->ins);
	free(s->outs);
	free(s->counts);
	free(s->messages);
	free(s);
	d->staged = NULL;
}
