/*
 * Attention, one k/v head at a time with the query heads that share it. Its keys and queries are
 * converted in blocks that fit in a lane. Up to some thousands of positions this is one block. For
 * longer sequences the forward pass merges the blocks of keys in fp32, and the backward pass adds
 * to dq block by block, in the storage type.
 */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

#include <string.h>

struct attention {
	void *o, *dq, *dk, *dv;
	float *lse;
	const void *dout, *q, *k, *v;
	const struct attn_shape *s;
	bool add;
};

/* One query head, or k/v head, of one sequence. */
struct head {
	int64_t b, g, h;
};

/* Runs items in lanes, or, if there are fewer of them than threads, one after the other with all
 * threads. */
static void items_run(struct backend *k, int64_t items, tile_fn *fn, const void *call)
{
	if (items >= k->threads) {
		low_precision_tiles_run(k, items, 1, fn, call);
		return;
	}
	for (int64_t i = 0; i < items; i++) {
		struct tile t = low_precision_tile_team(k);
		fn(&t, call, i, 1);
	}
}

/* Positions of a block: a lane holds eight arrays of them, with their log-sum-exps. */
static int64_t block_length(const struct attn_shape *s)
{
	return LOW_PRECISION_LANE / (8 * s->dim + 16) / 64 * 64;
}

/* The shape of queries q0 … of head h over keys k0 …, with dense rows. */
static struct attn_shape piece_of(const struct attn_shape *s, struct head at, int64_t q0,
				  int64_t qn, int64_t k0, int64_t kn)
{
	struct attn_shape p = *s;
	p.batch = p.heads = p.kv_heads = 1;
	p.q_len = qn;
	p.k_len = kn;
	p.q_first += q0;
	p.k_first += k0;
	p.q_row = p.kv_row = s->dim;
	p.q_batch = p.o_batch = qn * s->dim;
	p.kv_batch = kn * s->dim;
	p.starts = s->starts ? s->starts + at.b * s->starts_batch + q0 : NULL;
	p.samples = s->samples ? s->samples + at.b : NULL;
	p.head_first += at.h;
	return p;
}

/* The offsets of position t. */
static int64_t q_at(const struct attn_shape *s, struct head at, int64_t t)
{
	return at.b * s->q_batch + t * s->q_row + at.h * s->dim;
}

static int64_t kv_at(const struct attn_shape *s, struct head at, int64_t u)
{
	return at.b * s->kv_batch + u * s->kv_row + at.g * s->dim;
}

static int64_t o_row(const struct attn_shape *s)
{
	return (int64_t)s->heads * s->dim;
}

static int64_t o_at(const struct attn_shape *s, struct head at, int64_t t)
{
	return at.b * s->o_batch + t * o_row(s) + at.h * s->dim;
}

static int64_t lse_at(const struct attn_shape *s, struct head at, int64_t t)
{
	return (at.b * s->heads + at.h) * s->q_len + t;
}

/* Queries q0 … of one head. If all keys fit in one block, they are converted once for all heads
 * that share them, and k and v point to them. */
static void queries_fwd(struct tile t, const struct attention *a, struct head at, int64_t q0,
			const float *k, const float *v)
{
	const struct attn_shape *s = a->s;
	int64_t length = block_length(s), qn = min_int64(length, s->q_len - q0);
	float *q = low_precision_tile_in_rows(&t, a->q, q_at(s, at, q0), s->q_row, qn, s->dim);
	float *o = low_precision_tile_room(&t, qn * s->dim), *lse = a->lse + lse_at(s, at, q0);
	float *o2 = k ? NULL : low_precision_tile_room(&t, qn * s->dim),
	      *lse2 = k ? NULL : low_precision_tile_room(&t, qn);
	for (int64_t k0 = 0; k0 == 0 || k0 < s->k_len; k0 += length) {
		int64_t kn = min_int64(length, s->k_len - k0);
		struct attn_shape p = piece_of(s, at, q0, qn, k0, kn);
		struct tile inner = t;
		const float *key = k ? k
				     : low_precision_tile_in_rows(&inner, a->k, kv_at(s, at, k0),
								  s->kv_row, kn, s->dim);
		const float *value = v ? v
				       : low_precision_tile_in_rows(&inner, a->v, kv_at(s, at, k0),
								    s->kv_row, kn, s->dim);
		t.fp32->attention_fwd(t.k, k0 ? o2 : o, k0 ? lse2 : lse, q, key, value, &p);
		if (k0)
			t.fp32->attention_merge(t.k, o, lse, o2, lse2, &p);
	}
	low_precision_tile_out_rows(&t, a->o, o_at(s, at, q0), o_row(s), qn, s->dim, o);
}

static void fwd_item(struct tile *t, const void *callv, int64_t item, int64_t one)
{
	(void)one;
	const struct attention *a = callv;
	const struct attn_shape *s = a->s;
	int group = s->heads / s->kv_heads;
	struct head at = { item / s->kv_heads, item % s->kv_heads, 0 };
	bool whole = s->k_len <= block_length(s);
	const float *k = whole ? low_precision_tile_in_rows(t, a->k, kv_at(s, at, 0), s->kv_row,
							    s->k_len, s->dim)
			       : NULL;
	const float *v = whole ? low_precision_tile_in_rows(t, a->v, kv_at(s, at, 0), s->kv_row,
							    s->k_len, s->dim)
			       : NULL;
	for (at.h = at.g * group; at.h < (at.g + 1) * group; at.h++)
		for (int64_t q0 = 0; q0 < s->q_len; q0 += block_length(s))
			queries_fwd(*t, a, at, q0, k, v);
}

static void attention_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s)
{
	items_run(k, s->batch * s->kv_heads, fwd_item,
		  &(struct attention){ .o = o, .lse = lse, .q = q, .k = key, .v = v, .s = s });
}

static float *zeros(struct tile *t, int64_t count)
{
	float *x = low_precision_tile_room(t, count);
	memset(x, 0, (size_t)count * sizeof *x);
	return x;
}

/* A gradient to add to: the stored one, or zeros. */
static float *gradient(struct tile *t, bool stored, const void *x, int64_t first, int64_t ld,
		       int64_t rows, int64_t dim)
{
	return stored ? low_precision_tile_in_rows(t, x, first, ld, rows, dim)
		      : zeros(t, rows * dim);
}

/* A block of keys and its gradients, in fp32. */
struct keys {
	int64_t first, n;
	float *k, *v, *dk, *dv;
};

static void queries_bwd(struct tile t, const struct attention *a, struct head at, int64_t q0,
			const struct keys *ks)
{
	const struct attn_shape *s = a->s;
	int64_t qn = min_int64(block_length(s), s->q_len - q0), dim = s->dim,
		first = q_at(s, at, q0);
	struct attn_shape p = piece_of(s, at, q0, qn, ks->first, ks->n);
	float *q = low_precision_tile_in_rows(&t, a->q, first, s->q_row, qn, dim);
	float *dq = gradient(&t, a->add || ks->first, a->dq, first, s->q_row, qn, dim);
	float *o = low_precision_tile_in_rows(&t, a->o, o_at(s, at, q0), o_row(s), qn, dim);
	float *dout = low_precision_tile_in_rows(&t, a->dout, o_at(s, at, q0), o_row(s), qn, dim);
	t.fp32->attention_bwd(t.k, dq, ks->dk, ks->dv, dout, o, a->lse + lse_at(s, at, q0), q,
			      ks->k, ks->v, &p, true);
	low_precision_tile_out_rows(&t, a->dq, first, s->q_row, qn, dim, dq);
}

static void bwd_item(struct tile *whole, const void *callv, int64_t item, int64_t one)
{
	(void)one;
	const struct attention *a = callv;
	const struct attn_shape *s = a->s;
	int64_t length = block_length(s), group = s->heads / s->kv_heads;
	struct head at = { item / s->kv_heads, item % s->kv_heads, 0 };
	for (int64_t k0 = 0; k0 == 0 || k0 < s->k_len; k0 += length) {
		struct tile t = *whole;
		int64_t kn = min_int64(length, s->k_len - k0), first = kv_at(s, at, k0);
		struct keys ks = {
			k0,
			kn,
			low_precision_tile_in_rows(&t, a->k, first, s->kv_row, kn, s->dim),
			low_precision_tile_in_rows(&t, a->v, first, s->kv_row, kn, s->dim),
			gradient(&t, a->add, a->dk, first, s->kv_row, kn, s->dim),
			gradient(&t, a->add, a->dv, first, s->kv_row, kn, s->dim)
		};
		for (at.h = at.g * group; at.h < (at.g + 1) * group; at.h++)
			for (int64_t q0 = 0; q0 < s->q_len; q0 += length)
				queries_bwd(t, a, at, q0, &ks);
		low_precision_tile_out_rows(&t, a->dk, first, s->kv_row, kn, s->dim, ks.dk);
		low_precision_tile_out_rows(&t, a->dv, first, s->kv_row, kn, s->dim, ks.dv);
	}
}

static void attention_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	items_run(k, s->batch * s->kv_heads, bwd_item,
		  &(struct attention){ (void *)o, dq, dk, dv, (float *)lse, dout, q, key, v, s,
				       add });
}

/* --- merge: an item is one head of one sequence --- */

struct merge {
	void *o;
	const void *o2;
	float *lse;
	const float *lse2;
	const struct attn_shape *s;
};

static void merge_item(struct tile *whole, const void *callv, int64_t item, int64_t one)
{
	(void)one;
	const struct merge *a = callv;
	const struct attn_shape *s = a->s;
	struct head at = { item / s->heads, 0, item % s->heads };
	for (int64_t q0 = 0, most = low_precision_tile_rows(2 * s->dim); q0 < s->q_len;
	     q0 += most) {
		struct tile t = *whole;
		int64_t qn = min_int64(most, s->q_len - q0), first = o_at(s, at, q0),
			l = lse_at(s, at, q0);
		struct attn_shape p = piece_of(s, at, q0, qn, 0, s->k_len);
		float *o = low_precision_tile_in_rows(&t, a->o, first, o_row(s), qn, s->dim);
		float *o2 = low_precision_tile_in_rows(&t, a->o2, first, o_row(s), qn, s->dim);
		t.fp32->attention_merge(t.k, o, a->lse + l, o2, a->lse2 + l, &p);
		low_precision_tile_out_rows(&t, a->o, first, o_row(s), qn, s->dim, o);
	}
}

static void attention_merge(struct backend *k, void *o, float *lse, const void *o2,
			    const float *lse2, const struct attn_shape *s)
{
	items_run(k, s->batch * s->heads, merge_item, &(struct merge){ o, o2, lse, lse2, s });
}

void low_precision_attention(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_bwd = attention_bwd;
	o->attention_merge = attention_merge;
}
