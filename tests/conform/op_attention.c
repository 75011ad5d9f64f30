/*
 * Attention. The arguments are o lse qkv starts samples / o lse o2 lse2 / dqkv dout o lse qkv
 * starts samples.
 *
 * q, k and v are one array. They are either fused rows [heads q | kv_heads k | kv_heads v], or they
 * follow each other with gaps between rows and between sequences. The gaps must stay unchanged. c
 * is the width of the gaps; 0 means irregular widths.
 */
#include "tests/conform/op_vary.h"

#include <math.h>

enum { ROW_GAP = 3, BATCH_GAP = 5 };

/* The shape without its arrays. */
static struct attn_shape shape_of(const struct dims *d)
{
	struct attn_shape s = d->s;
	int64_t q = (int64_t)s.heads * s.dim, kv = (int64_t)s.kv_heads * s.dim;
	int64_t gap = d->c ? d->c : ROW_GAP, batch_gap = d->fused ? 0 : d->c ? d->c : BATCH_GAP;
	s.q_row = d->fused ? q + 2 * kv : q + gap;
	s.kv_row = d->fused ? q + 2 * kv : kv + gap;
	s.q_batch = s.q_len * s.q_row + batch_gap;
	s.kv_batch = s.k_len * s.kv_row + batch_gap;
	s.o_batch = s.q_len * q + batch_gap;
	s.starts_batch = s.q_len + 2;
	s.drop = (struct dropout){ philox_key(5, PHILOX_DROPOUT, 6), d->p };
	s.heads_all = 3 * s.heads;
	s.head_first = s.heads;
	s.seq = s.q_first + s.q_len > s.k_first + s.k_len ? s.q_first + s.q_len
							  : s.k_first + s.k_len;
	return s;
}

static struct attn_shape shape_with(const struct dims *d, void *starts, void *samples)
{
	struct attn_shape s = shape_of(d);
	s.starts = d->documents ? starts : NULL;
	s.samples = d->p > 0 ? samples : NULL;
	return s;
}

/* The number of elements before k, before v, and in total. */
struct extent {
	int64_t k, v, all;
};

static struct extent extent_of(const struct dims *d)
{
	struct attn_shape s = shape_of(d);
	int64_t q = (int64_t)s.heads * s.dim, kv = (int64_t)s.kv_heads * s.dim;
	if (d->fused)
		return (struct extent){ q, q + kv, s.batch * s.q_batch };
	int64_t k = s.batch * s.q_batch;
	return (struct extent){ k, k + s.batch * s.kv_batch, k + 2 * s.batch * s.kv_batch };
}

static void *part(struct backend *k, void *qkv, int64_t at)
{
	return (char *)qkv + (size_t)at * backend_width(k);
}

/* The first sequence has documents of 37 positions, the next one of 48, and so on. */
static void make_starts(const struct dims *d, int32_t *starts)
{
	struct attn_shape s = shape_of(d);
	for (int64_t b = 0; b < s.batch; b++)
		for (int64_t t = 0; t < s.starts_batch; t++)
			starts[b * s.starts_batch + t] =
				(int32_t)((s.q_first + t) / (37 + 11 * b) * (37 + 11 * b));
}

/* The arguments starts and samples, from index `at` on. */
static void place_args(const struct dims *d, struct arg *a, int at)
{
	a[at] = (struct arg){ TOKENS, d->s.batch * (d->s.q_len + 2), 1, STORED };
	a[at + 1] = (struct arg){ ROWS, d->s.batch, 1 << 20, STORED };
}

static void attention_fwd_args(const struct dims *d, struct arg *a)
{
	struct attn_shape s = shape_of(d);
	a[0] = (struct arg){ d->fused ? SET : INOUT, s.batch * s.o_batch, 1, STORED };
	a[1] = (struct arg){ SET, s.batch * s.heads * s.q_len, 1, SINGLE };
	a[2] = (struct arg){ IN, extent_of(d).all, 1.5, STORED };
	place_args(d, a, 3);
}

static void attention_fwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	(void)o;
	(void)k;
	make_starts(d, p[3]);
}

static void attention_fwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	struct attn_shape s = shape_with(d, p[3], p[4]);
	struct extent e = extent_of(d);
	o->attention_fwd(k, p[0], p[1], p[2], part(k, p[2], e.k), part(k, p[2], e.v), &s);
}

static void attention_bwd_args(const struct dims *d, struct arg *a)
{
	struct attn_shape s = shape_of(d);
	a[0] = (struct arg){ d->with ? ADD : d->fused ? SET : INOUT, extent_of(d).all, 1, STORED };
	a[1] = (struct arg){ IN, s.batch * s.o_batch, 1, STORED };
	a[2] = (struct arg){ IN, s.batch * s.o_batch, 1, STORED };
	a[3] = (struct arg){ IN, s.batch * s.heads * s.q_len, 1, SINGLE };
	a[4] = (struct arg){ IN, extent_of(d).all, 1, STORED };
	place_args(d, a, 5);
}

static void attention_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	make_starts(d, p[5]);
	struct attn_shape s = shape_with(d, p[5], p[6]);
	struct extent e = extent_of(d);
	o->attention_fwd(k, p[2], p[3], p[4], part(k, p[4], e.k), part(k, p[4], e.v), &s);
}

static void attention_bwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	struct attn_shape s = shape_with(d, p[5], p[6]);
	struct extent e = extent_of(d);
	o->attention_bwd(k, p[0], part(k, p[0], e.k), part(k, p[0], e.v), p[1], p[2], p[3], p[4],
			 part(k, p[4], e.k), part(k, p[4], e.v), &s, d->with);
}

/* --- merge: o lse o2 lse2; some rows have no key on one side or on both --- */

static void attention_merge_args(const struct dims *d, struct arg *a)
{
	struct attn_shape s = shape_of(d);
	a[0] = (struct arg){ INOUT, s.batch * s.o_batch, 1, STORED };
	a[1] = (struct arg){ INOUT, s.batch * s.heads * s.q_len, 3, SINGLE };
	a[2] = (struct arg){ IN, s.batch * s.o_batch, 1, STORED };
	a[3] = (struct arg){ IN, s.batch * s.heads * s.q_len, 3, SINGLE };
}

static void attention_merge_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				    void **p)
{
	(void)o;
	(void)k;
	double *lse = p[1], *lse2 = p[3];
	for (int64_t i = 0; i < d->s.batch * d->s.heads * d->s.q_len; i++) {
		lse[i] = i % 5 == 1 ? (double)-INFINITY : lse[i];
		lse2[i] = i % 7 == 2 ? (double)-INFINITY : lse2[i];
	}
}

static void attention_merge_run(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	struct attn_shape s = shape_of(d);
	o->attention_merge(k, p[0], p[1], p[2], p[3], &s);
}

#define SHAPE(b, q, qf, kl, kf, h, g, w) \
	.s = { .batch = b, \
	       .q_len = q, \
	       .k_len = kl, \
	       .q_first = qf, \
	       .k_first = kf, \
	       .heads = h, \
	       .kv_heads = g, \
	       .dim = w }
#define WHOLE(b, t, h, g, w) SHAPE(b, t, 0, t, 0, h, g, w), .fused = true

#define WHOLE_DIMS \
	{ WHOLE(1, 1, 1, 1, 2) }, { WHOLE(2, 5, 2, 1, 10) }, { WHOLE(3, 64, 4, 4, 8) }, \
		{ WHOLE(1, 130, 6, 2, 64) }, { WHOLE(2, 67, 2, 1, 128), .with = true }, \
		{ WHOLE(1, 65, 1, 1, 256) }, { WHOLE(1, 193, 2, 2, 16) }, \
		{ WHOLE(2, 150, 4, 2, 16), .documents = true }, \
	{ \
		WHOLE(2, 100, 3, 1, 16), .p = 0.3f, .with = true \
	}
/* Queries are after the keys, among them, and before them. There is one query, or more keys than
 * queries, or fewer. */
#define PIECE_DIMS \
	{ SHAPE(2, 70, 200, 130, 3, 4, 2, 16), .with = true }, \
		{ SHAPE(1, 65, 40, 90, 7, 2, 1, 32) }, { SHAPE(2, 10, 0, 20, 12, 2, 2, 8) }, \
		{ SHAPE(3, 130, 0, 140, 70, 2, 1, 16) }, { SHAPE(2, 1, 300, 301, 0, 8, 2, 64) }, \
		{ SHAPE(3, 1, 1500, 1400, 90, 3, 1, 48), .documents = true }, \
		{ SHAPE(1, 1, 2000, 1900, 90, 4, 1, 16), .p = 0.2f }, \
	{ \
		SHAPE(2, 140, 60, 75, 64, 2, 1, 16), .documents = true, .p = 0.1f, .with = true \
	}
/* There are more keys, and more queries, than 2-byte storage converts at once. */
#define LONG_DIMS \
	{ SHAPE(1, 3, 4090, 4093, 0, 2, 1, 256) }, \
	{ \
		SHAPE(1, 2100, 7, 20, 0, 2, 2, 256), .with = true \
	}
/* Several tiles of the tensor-core kernels, with aligned rows. Some tiles are incomplete, some
 * documents span tiles, and some queries have no key. */
#define TILE_DIMS \
	{ SHAPE(1, 200, 150, 330, 20, 4, 2, 64), .c = 8, .documents = true, .with = true }, \
		{ SHAPE(1, 170, 0, 200, 100, 2, 2, 128), .c = 8, .p = 0.2f }, \
		{ WHOLE(1, 290, 3, 1, 128), .documents = true, .p = 0.1f }, \
	{ \
		SHAPE(2, 135, 70, 205, 0, 2, 1, 40), .c = 24, .p = 0.3f, .with = true \
	}
#define ATTENTION_DIMS \
	{ \
		WHOLE_DIMS, PIECE_DIMS, LONG_DIMS, TILE_DIMS \
	}

/* clang-format off */
const struct op_test attention_ops[] = {
	{ "attention_fwd", vary_attention, true, attention_fwd_args, attention_fwd_prepare, attention_fwd_run, ATTENTION_DIMS },
	{ "attention_merge", vary_attention, true, attention_merge_args, attention_merge_prepare, attention_merge_run, ATTENTION_DIMS },
	{ "attention_bwd", vary_attention, true, attention_bwd_args, attention_bwd_prepare, attention_bwd_run, ATTENTION_DIMS },
	{ 0 }
};
/* clang-format on */
