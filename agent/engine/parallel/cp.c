#include "agent/engine/parallel/cp.h"

#include "base/clock.h"

#include <stdbool.h>

enum { PIECES = 2 }; /* the early and the late piece of a rank's tokens */

void cp_init(struct cp *c, struct comm *group, struct comm *values, enum comm_type type)
{
	*c = (struct cp){
		.comm = group,
		.values = values,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
		.type = type,
	};
}

/* The index of a rank's early (0) or late (1) piece among the 2 × size pieces of a sequence. */
static int piece_index(const struct cp *c, int rank, int piece)
{
	return piece ? 2 * c->size - 1 - rank : rank;
}

int64_t cp_position(const struct cp *c, int64_t seq, int64_t t)
{
	int64_t length = seq / (2 * c->size);
	if (c->size == 1)
		return t;
	return piece_index(c, c->rank, (int)(t / length)) * length + t % length;
}

static void *element_at(const struct backend *k, void *base, int64_t elements)
{
	return (char *)base + (size_t)elements * backend_width(k);
}

static const void *const_element_at(const struct backend *k, const void *base, int64_t elements)
{
	return (const char *)base + (size_t)elements * backend_width(k);
}

/* One call's attention, with sizes that follow from its shape. */
struct ring {
	struct cp *c;
	struct backend *k;
	const struct ops *ops;
	struct attn_shape s;
	int64_t tokens;        /* of one sequence on this rank */
	int64_t length;        /* tokens of a piece */
	int64_t rows;          /* tokens of all sequences on this rank */
	int64_t q, kv, row;    /* elements of a row: queries, keys and values, all three */
	const int32_t *starts; /* [batch, tokens] or NULL */
};

static struct ring ring_of(struct cp *c, struct backend *k, const struct attn_shape *s)
{
	struct ring r = {
		.c = c,
		.k = k,
		.ops = backend_ops(k),
		.s = *s,
		.tokens = s->seq / c->size,
		.q = (int64_t)s->heads * s->dim,
		.kv = (int64_t)2 * s->kv_heads * s->dim,
		.starts = s->starts,
	};
	r.length = c->size == 1 ? r.tokens : r.tokens / PIECES;
	r.rows = s->batch * r.tokens;
	r.row = r.q + r.kv;
	r.s.q_row = r.row;
	r.s.q_batch = r.tokens * r.row;
	r.s.o_batch = r.tokens * r.q;
	r.s.starts_batch = r.tokens;
	return r;
}

/* --- One rank alone: whole sequences ------------------------------------------- */

static struct attn_shape whole_shape(const struct ring *r)
{
	struct attn_shape s = r->s;
	s.q_len = s.k_len = r->tokens;
	s.kv_row = r->row;
	s.kv_batch = s.q_batch;
	return s;
}

/* --- A piece of queries over a piece of keys --- */

/* The arguments of one call of the op. q, o, kv and lse are offsets in elements: into the rows of q
 * and o, into the packed rows of keys and values, and into lse. */
struct piece_pair {
	struct attn_shape s;
	int64_t q, o, kv, lse;
};

/* Whether any query of this rank's piece `mine` sees a key of rank `owner`'s piece `theirs`. */
static bool sees(const struct ring *r, int mine, int owner, int theirs)
{
	return piece_index(r->c, owner, theirs) <= piece_index(r->c, r->c->rank, mine);
}

static struct piece_pair pair_of_pieces(const struct ring *r, int mine, int owner, int theirs)
{
	struct piece_pair m = {
		.s = r->s,
		.q = mine * r->length * r->row,
		.o = mine * r->length * r->q,
		.kv = theirs * r->length * r->kv,
		.lse = mine * r->length * r->s.batch * r->s.heads,
	};
	m.s.q_len = m.s.k_len = r->length;
	m.s.q_first = piece_index(r->c, r->c->rank, mine) * r->length;
	m.s.k_first = piece_index(r->c, owner, theirs) * r->length;
	m.s.kv_row = r->kv;
	m.s.kv_batch = r->tokens * r->kv;
	m.s.starts = r->starts ? r->starts + mine * r->length : NULL;
	return m;
}

/* --- The ring ---------------------------------------------------------------------- */

static void *half_of_buffer(const struct ring *r, void *pair, int which)
{
	return element_at(r->k, pair, which * r->rows * r->kv);
}

/* Sends `out` to the next rank and receives `in` from the previous one. */
static int send_to_next(struct ring *r, void *out, void *in, struct comm_request **req,
			struct err *e)
{
	struct cp *c = r->c;
	size_t count = (size_t)(r->rows * r->kv);
	const struct comm_p2p ops[] = {
		{ .send = true,
		  .data = out,
		  .count = count,
		  .type = c->type,
		  .peer = (c->rank + 1) % c->size },
		{ .send = false,
		  .data = in,
		  .count = count,
		  .type = c->type,
		  .peer = (c->rank + c->size - 1) % c->size },
	};
	return comm_batch_send_recv_start(c->comm, ops, 2, req, e);
}

static int wait_transfer(struct ring *r, struct comm_request **req, struct err *e)
{
	struct comm_request *under_way = *req;
	double start = clock_s();
	*req = NULL;
	int rc = comm_wait(under_way, e);
	r->c->seconds += clock_s() - start;
	return rc;
}

/* Copies keys and values from the fused rows. */
static void pack_kv(const struct ring *r, void *packed, const void *qkv)
{
	r->ops->copy_rows(r->k, packed, r->kv, const_element_at(r->k, qkv, r->q), r->row, r->rows,
			  r->kv);
}

static void unpack_kv(const struct ring *r, void *qkv, const void *packed)
{
	r->ops->copy_rows(r->k, element_at(r->k, qkv, r->q), r->row, packed, r->kv, r->rows, r->kv);
}

/* --- Forward --- */

struct forward {
	void *o;
	float *lse;
	const void *qkv;
	bool begun[PIECES]; /* o and lse of this piece hold a result */
};

static void attend_forward(const struct ring *r, struct forward *f, const void *kv, int mine,
			   int owner, int theirs)
{
	struct piece_pair m = pair_of_pieces(r, mine, owner, theirs);
	const struct cp_buffers *b = &r->c->buffers;
	void *o = f->begun[mine] ? b->o : f->o;
	float *lse = f->begun[mine] ? b->lse : f->lse;

	r->ops->attention_fwd(r->k, element_at(r->k, o, m.o), lse + m.lse,
			      const_element_at(r->k, f->qkv, m.q), const_element_at(r->k, kv, m.kv),
			      const_element_at(r->k, kv, m.kv + r->kv / 2), &m.s);
	if (f->begun[mine])
		r->ops->attention_merge(r->k, element_at(r->k, f->o, m.o), f->lse + m.lse,
					const_element_at(r->k, b->o, m.o), b->lse + m.lse, &m.s);
	f->begun[mine] = true;
}

static int ring_forward(struct ring *r, struct forward *f, struct err *e)
{
	struct comm_request *req = NULL;
	int size = r->c->size;

	pack_kv(r, r->c->buffers.kv, f->qkv);
	for (int step = 0; step < size; step++) {
		int owner = (r->c->rank + size - step) % size;
		void *kv = half_of_buffer(r, r->c->buffers.kv, step % 2);
		if (step + 1 < size &&
		    send_to_next(r, kv, half_of_buffer(r, r->c->buffers.kv, (step + 1) % 2), &req,
				 e))
			return -1;
		for (int mine = 0; mine < PIECES; mine++)
			for (int theirs = 0; theirs < PIECES; theirs++)
				if (sees(r, mine, owner, theirs))
					attend_forward(r, f, kv, mine, owner, theirs);
		if (wait_transfer(r, &req, e))
			return -1;
	}
	return 0;
}

int cp_attention_forward(struct cp *c, struct backend *k, void *o, float *lse, const void *qkv,
			 const struct attn_shape *s, struct err *e)
{
	struct ring r = ring_of(c, k, s);
	struct forward f = { .o = o, .lse = lse, .qkv = qkv };
	if (c->size > 1)
		return ring_forward(&r, &f, e);
	struct attn_shape all = whole_shape(&r);
	r.ops->attention_fwd(k, o, lse, qkv, const_element_at(k, qkv, r.q),
			     const_element_at(k, qkv, r.q + r.kv / 2), &all);
	return 0;
}

/* --- Backward --- */

struct backward {
	void *dqkv;
	const void *dout, *o, *qkv;
	const float *lse;
};

/* Adds to the gradients, which begin as zeros: no call is the first for both its queries and its
 * keys. */
static void attend_backward(const struct ring *r, struct backward *b, const void *kv, void *dkv,
			    int mine, int owner, int theirs)
{
	struct piece_pair m = pair_of_pieces(r, mine, owner, theirs);
	r->ops->attention_bwd(r->k, element_at(r->k, b->dqkv, m.q), element_at(r->k, dkv, m.kv),
			      element_at(r->k, dkv, m.kv + r->kv / 2),
			      const_element_at(r->k, b->dout, m.o),
			      const_element_at(r->k, b->o, m.o), b->lse + m.lse,
			      const_element_at(r->k, b->qkv, m.q), const_element_at(r->k, kv, m.kv),
			      const_element_at(r->k, kv, m.kv + r->kv / 2), &m.s, true);
}

static void attend_all_backward(const struct ring *r, struct backward *b, const void *kv, void *dkv,
				int owner)
{
	for (int mine = 0; mine < PIECES; mine++)
		for (int theirs = 0; theirs < PIECES; theirs++)
			if (sees(r, mine, owner, theirs))
				attend_backward(r, b, kv, dkv, mine, owner, theirs);
}

/* The gradients of a rank's keys and values follow these along the ring, one step later, and are
 * back at the rank after the last step. */
static int ring_backward(struct ring *r, struct backward *b, struct err *e)
{
	struct comm_request *keys = NULL, *grads = NULL;
	const struct cp_buffers *buf = &r->c->buffers;
	int size = r->c->size;

	pack_kv(r, buf->kv, b->qkv);
	backend_zero(r->k, b->dqkv, (size_t)(r->rows * r->row) * backend_width(r->k));
	backend_zero(r->k, buf->dkv, (size_t)(r->rows * r->kv) * backend_width(r->k));
	for (int step = 0; step < size; step++) {
		int owner = (r->c->rank + size - step) % size;
		void *kv = half_of_buffer(r, buf->kv, step % 2),
		     *dkv = half_of_buffer(r, buf->dkv, step % 2);
		if (step + 1 < size &&
		    send_to_next(r, kv, half_of_buffer(r, buf->kv, (step + 1) % 2), &keys, e))
			goto fail;
		if (wait_transfer(r, &grads, e))
			goto fail;
		attend_all_backward(r, b, kv, dkv, owner);
		if (wait_transfer(r, &keys, e) ||
		    send_to_next(r, dkv, half_of_buffer(r, buf->dkv, (step + 1) % 2), &grads, e))
			goto fail;
	}
	if (wait_transfer(r, &grads, e))
		return -1;
	unpack_kv(r, b->dqkv, half_of_buffer(r, buf->dkv, size % 2));
	return 0;
fail:
	comm_wait(keys, NULL);
	comm_wait(grads, NULL);
	return -1;
}

int cp_attention_backward(struct cp *c, struct backend *k, void *dqkv, const void *dout,
			  const void *o, const float *lse, const void *qkv,
			  const struct attn_shape *s, struct err *e)
{
	struct ring r = ring_of(c, k, s);
	struct backward b = { .dqkv = dqkv, .dout = dout, .o = o, .qkv = qkv, .lse = lse };
	if (c->size > 1)
		return ring_backward(&r, &b, e);
	struct attn_shape all = whole_shape(&r);
	r.ops->attention_bwd(k, dqkv, element_at(k, dqkv, r.q), element_at(k, dqkv, r.q + r.kv / 2),
			     dout, o, lse, qkv, const_element_at(k, qkv, r.q),
			     const_element_at(k, qkv, r.q + r.kv / 2), &all, false);
	return 0;
}
