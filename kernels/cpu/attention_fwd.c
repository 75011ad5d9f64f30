/*
 * Attention forward. An item of work is a tile of queries of one head. Each query has a running
 * maximum and sum: when a larger score comes, what was summed before is rescaled. Outputs
 * accumulate in place, in the order of the tiles.
 */
#include "base/numbers.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/blas.h"

#include <omp.h>
#include <string.h>

static float max_row(float *x, int lo, int hi, int width, float max)
{
	#pragma omp simd reduction(max : max)
	for (int i = 0; i < width; i++) {
		x[i] = i >= lo && i < hi ? x[i] : -INFINITY;
		max = x[i] > max ? x[i] : max;
	}
	return max;
}

/* A tile's queries, with the maximum and the sum of each so far. */
struct queries {
	const struct head *a;
	int64_t q0, qn;
	float *o; /* of the first query */
	float max[TILE], sum[TILE];
};

/* Turns row i of the scores against keys k0 … into weights. If a larger score came, o is
 * rescaled. */
static void softmax_row_online(float *x, struct queries *t, int64_t i, int64_t k0, int64_t kn)
{
	struct columns s = seen(t->a, t->q0 + i, k0, kn);
	int width = padded(kn);
	if (s.lo >= s.hi) {
		memset(x, 0, (size_t)width * sizeof *x);
		return;
	}
	float before = t->max[i];
	float max = max_row(x, (int)s.lo, (int)s.hi, width, before);
	float sum = exp_row(x, width, max);
	if (max > before && t->sum[i] != 0) {
		float shrink = v_exp(before - max);
		scale_row(t->o + i * t->a->orow, shrink, t->a->s->dim);
		t->sum[i] *= shrink;
	}
	t->max[i] = max;
	t->sum[i] += sum;
	if (t->a->s->drop.p > 0) {
		float keep[TILE];
		keep_row(keep, t->a, t->q0 + i, k0, kn);
		drop_row(x, keep, (int)kn);
	}
}

static void queries_fwd(struct queries *t, float *lse, const float *q, const float *k,
			const float *v, float *scores)
{
	const struct head *a = t->a;
	const struct attn_shape *s = a->s;
	struct columns keys = seen_by_tile(a, t->q0, t->qn);
	for (int64_t i = 0; i < t->qn; i++) {
		t->max[i] = -INFINITY;
		t->sum[i] = 0;
		if (keys.lo >= keys.hi)
			memset(t->o + i * a->orow, 0, (size_t)s->dim * sizeof *t->o);
	}
	for (int64_t k0 = keys.lo; k0 < keys.hi; k0 += TILE) {
		int64_t kn = min_int64(TILE, keys.hi - k0);
		blas_gemm(false, true, t->qn, kn, s->dim, a->scale, q + t->q0 * s->q_row, s->q_row,
			  k + k0 * s->kv_row, s->kv_row, 0, scores, TILE);
		for (int64_t i = 0; i < t->qn; i++)
			softmax_row_online(scores + i * TILE, t, i, k0, kn);
		blas_gemm(false, false, t->qn, s->dim, kn, 1, scores, TILE, v + k0 * s->kv_row,
			  s->kv_row, k0 > keys.lo ? 1 : 0, t->o, a->orow);
	}
	for (int64_t i = 0; i < t->qn; i++) {
		if (t->sum[i] != 0)
			scale_row(t->o + i * a->orow, 1 / t->sum[i], s->dim);
		lse[t->q0 + i] = t->max[i] + logf(t->sum[i]);
	}
}

static void attention_fwd(struct backend *k, void *ov, float *lse, const void *qv, const void *keyv,
			  const void *vv, const struct attn_shape *s)
{
	float *o = ov;
	const float *q = qv, *key = keyv, *v = vv;
	if (s->q_len == 1 && CPU(attention_one)(k, o, lse, q, key, v, s))
		return;
	int64_t heads = s->batch * s->heads, tiles = (s->q_len + TILE - 1) / TILE,
		items = heads * tiles;
	#pragma omp parallel for schedule(dynamic) num_threads(cpu_team(k, heads * s->q_len * s->k_len * s->dim / TILE))
	for (int64_t item = 0; item < items; item++) {
		int64_t tile = tiles - 1 - item / heads; /* the longest first */
		struct head a = head_at(s, item % heads / s->heads, (int)(item % s->heads));
		struct queries t = { .a = &a,
				     .q0 = tile * TILE,
				     .qn = min_int64(TILE, s->q_len - tile * TILE) };
		t.o = o + a.o + t.q0 * a.orow;
		queries_fwd(&t, lse + a.lse, q + a.q, key + a.kv, v + a.kv,
			    backend_scratch(k, omp_get_thread_num()));
	}
}

static void merge_row(float *restrict o, const float *restrict o2, float w, float w2, int n)
{
	#pragma omp simd
	for (int i = 0; i < n; i++)
		o[i] = o[i] * w + o2[i] * w2;
}

/* Each o is weighted by its share of exp(l) + exp(l2). */
static void merge_query(float *o, float *lse, const float *o2, float l2, int dim)
{
	float l = *lse, max = l > l2 ? l : l2;
	if (l2 == -INFINITY)
		return; /* the second result saw no key, and perhaps neither did */
	float w = v_exp(l - max), w2 = v_exp(l2 - max), sum = w + w2;
	merge_row(o, o2, w / sum, w2 / sum, dim);
	*lse = max + logf(sum);
}

static void attention_merge(struct backend *k, void *ov, float *lse, const void *o2v,
			    const float *lse2, const struct attn_shape *s)
{
	float *o = ov;
	const float *o2 = o2v;
	int64_t rows = s->batch * s->q_len;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, rows * s->heads * s->dim))
	for (int64_t row = 0; row < rows; row++) {
		int64_t b = row / s->q_len, t = row % s->q_len;
		int64_t at = b * s->o_batch + t * s->heads * s->dim,
			l = b * s->heads * s->q_len + t;
		for (int h = 0; h < s->heads; h++, at += s->dim, l += s->q_len)
			merge_query(o + at, lse + l, o2 + at, lse2[l], s->dim);
	}
}

void CPU(attention_fwd)(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_merge = attention_merge;
}
