/*
 * Causal attention in tiles (Dao et al., arXiv 2205.14135): a tile of scores
 * lives in the thread's scratch, its products are done by the BLAS, tiles
 * above the diagonal are left out. Outputs accumulate in place, in the order of the tiles.
 *
 * Forward: an item of work is a tile of queries of one head; a running maximum
 * and sum for each query rescale what was summed before a larger score came.
 * Backward: an item is one k/v head with the query heads that share it, since
 * they add to the same dk and dv.
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vmath.h"

#include <math.h>
#include <omp.h>

enum { TILE = 64 };

/* One head of one sequence. Rows of q, k, v (and their gradients) are `row` apart, rows of o `orow`. */
struct head {
	const float *q, *k, *v;
	float *dq, *dk, *dv;
	const float *o, *dout;
	const float *lse;
	int64_t row, orow, seq;
	int dim;
	float scale;
};

static struct head head_at(const float *qkv, float *dqkv, const struct attn_shape *s, int64_t b, int h)
{
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim, first = b * s->seq * row;
	int g = h / (s->heads / s->kv_heads);
	int64_t q = first + (int64_t)h * s->dim;
	int64_t k = first + (int64_t)(s->heads + g) * s->dim;
	int64_t v = first + (int64_t)(s->heads + s->kv_heads + g) * s->dim;
	struct head a = {
		.q = qkv + q, .k = qkv + k, .v = qkv + v,
		.row = row, .orow = (int64_t)s->heads * s->dim, .seq = s->seq, .dim = s->dim,
		.scale = (float)(1 / sqrt(s->dim)),
	};
	if (dqkv) {
		a.dq = dqkv + q;
		a.dk = dqkv + k;
		a.dv = dqkv + v;
	}
	return a;
}

/* Where head h of sequence b lies in o and in lse. */
static int64_t o_at(const struct attn_shape *s, int64_t b, int h)
{
	return (b * s->seq * s->heads + h) * s->dim;
}

static int64_t lse_at(const struct attn_shape *s, int64_t b, int h)
{
	return (b * s->heads + h) * s->seq;
}

static void scale_row(float *x, float by, int n)
{
	#pragma omp simd
	for (int i = 0; i < n; i++)
		x[i] *= by;
}

/*
 * The loops over a row of scores run to a multiple of 16, so that they are
 * whole vectors; what does not count, behind the n first, is masked.
 */
static int padded(int64_t n)
{
	return (int)((n + 15) / 16 * 16);
}

static float max_row(float *x, int n, int width, float max)
{
	#pragma omp simd reduction(max : max)
	for (int i = 0; i < width; i++) {
		x[i] = i < n ? x[i] : -INFINITY;
		max = x[i] > max ? x[i] : max;
	}
	return max;
}

/* x = exp(x - max), which is 0 where x was masked; returns the sum. */
static float exp_row(float *x, int width, float max)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < width; i++) {
		x[i] = v_exp(x[i] - max);
		sum += x[i];
	}
	return sum;
}

/* Running state of a tile's queries. */
struct running {
	float max[TILE], sum[TILE];
};

/* Turns a tile of scores into weights; where a larger score came, o is rescaled. */
static void soften(float *scores, struct running *run, float *o, const struct head *a,
		   int64_t qn, int64_t kn, bool first, bool diagonal)
{
	int width = padded(kn);
	for (int64_t i = 0; i < qn; i++) {
		float *row = scores + i * TILE;
		int n = (int)(diagonal ? i + 1 : kn);
		float before = first ? -INFINITY : run->max[i];
		float max = max_row(row, n, width, before);
		float sum = exp_row(row, width, max);
		if (!first && max > before) {
			float shrink = v_exp(before - max);
			scale_row(o + i * a->orow, shrink, a->dim);
			run->sum[i] *= shrink;
		}
		run->max[i] = max;
		run->sum[i] = first ? sum : run->sum[i] + sum;
	}
}

static void queries_fwd(float *o, float *lse, const struct head *a, int64_t q0, float *scores)
{
	struct running run;
	int64_t qn = cpu_min(TILE, a->seq - q0);
	for (int64_t k0 = 0; k0 <= q0; k0 += TILE) {
		int64_t kn = cpu_min(TILE, a->seq - k0);
		blas_gemm(false, true, qn, kn, a->dim, a->scale, a->q + q0 * a->row, a->row,
			  a->k + k0 * a->row, a->row, 0, scores, TILE);
		soften(scores, &run, o + q0 * a->orow, a, qn, kn, k0 == 0, k0 == q0);
		blas_gemm(false, false, qn, a->dim, kn, 1, scores, TILE, a->v + k0 * a->row, a->row,
			  k0 ? 1 : 0, o + q0 * a->orow, a->orow);
	}
	for (int64_t i = 0; i < qn; i++) {
		scale_row(o + (q0 + i) * a->orow, 1 / run.sum[i], a->dim);
		lse[q0 + i] = run.max[i] + logf(run.sum[i]);
	}
}

static void attention_fwd(struct kern *k, void *ov, float *lse, const void *qkv, const struct attn_shape *s)
{
	float *o = ov;
	int64_t tiles = (s->seq + TILE - 1) / TILE, items = s->batch * s->heads * tiles;
	#pragma omp parallel for schedule(dynamic) num_threads(cpu_team(k, items * TILE * TILE))
	for (int64_t item = 0; item < items; item++) {
		int64_t head = item % (s->batch * s->heads);
		int64_t tile = tiles - 1 - item / (s->batch * s->heads); /* the longest first */
		int64_t b = head / s->heads;
		int h = (int)(head % s->heads);
		struct head a = head_at(qkv, NULL, s, b, h);
		queries_fwd(o + o_at(s, b, h), lse + lse_at(s, b, h), &a, tile * TILE,
			    kern_scratch(k, omp_get_thread_num()));
	}
}

/* dots[i] = dout_i · o_i */
static void row_dots(float *dots, const struct head *a)
{
	for (int64_t i = 0; i < a->seq; i++) {
		const float *o = a->o + i * a->orow, *d = a->dout + i * a->orow;
		float sum = 0;
		#pragma omp simd reduction(+ : sum)
		for (int j = 0; j < a->dim; j++)
			sum += o[j] * d[j];
		dots[i] = sum;
	}
}

/* p = exp(score - lse), and ds = p (dp - dot) scale over dp; both 0 where masked. */
static void harden(float *p, float *ds, const float *lse, const float *dots, float scale,
		   int64_t qn, int64_t kn, bool diagonal)
{
	int width = padded(kn);
	for (int64_t i = 0; i < qn; i++) {
		float *pr = p + i * TILE, *dr = ds + i * TILE;
		float l = lse[i], dot = dots[i];
		int n = (int)(diagonal ? i + 1 : kn);
		#pragma omp simd
		for (int j = 0; j < width; j++) {
			float w = v_exp(pr[j] - l), g = w * (dr[j] - dot) * scale;
			pr[j] = j < n ? w : 0;
			dr[j] = j < n ? g : 0;
		}
	}
}

/* One tile of scores: k/v tile k0 against query tile q0. `add` says that dk, dv hold something. */
static void tile_bwd(const struct head *a, int64_t q0, int64_t k0, bool add, const float *dots, float *p, float *ds)
{
	int64_t qn = cpu_min(TILE, a->seq - q0), kn = cpu_min(TILE, a->seq - k0), row = a->row;
	const float *q = a->q + q0 * row, *k = a->k + k0 * row, *v = a->v + k0 * row, *d = a->dout + q0 * a->orow;
	blas_gemm(false, true, qn, kn, a->dim, a->scale, q, row, k, row, 0, p, TILE);
	blas_gemm(false, true, qn, kn, a->dim, 1, d, a->orow, v, row, 0, ds, TILE);
	harden(p, ds, a->lse + q0, dots + q0, a->scale, qn, kn, k0 == q0);
	blas_gemm(true, false, kn, a->dim, qn, 1, p, TILE, d, a->orow, add, a->dv + k0 * row, row);
	blas_gemm(true, false, kn, a->dim, qn, 1, ds, TILE, q, row, add, a->dk + k0 * row, row);
	blas_gemm(false, false, qn, a->dim, kn, 1, ds, TILE, k, row, k0 ? 1 : 0, a->dq + q0 * row, row);
}

static void head_bwd(const struct head *a, bool add, float *scratch)
{
	float *p = scratch, *ds = p + TILE * TILE, *dots = ds + TILE * TILE;
	row_dots(dots, a);
	for (int64_t k0 = 0; k0 < a->seq; k0 += TILE)
		for (int64_t q0 = k0; q0 < a->seq; q0 += TILE)
			tile_bwd(a, q0, k0, add || q0 > k0, dots, p, ds);
}

static void attention_bwd(struct kern *k, void *dqkv, const void *doutv, const void *ov, const float *lse,
			  const void *qkv, const struct attn_shape *s)
{
	const float *o = ov, *dout = doutv;
	int group = s->heads / s->kv_heads;
	int64_t items = s->batch * s->kv_heads;
	#pragma omp parallel for schedule(dynamic) num_threads(cpu_team(k, items * group * s->seq * s->seq))
	for (int64_t item = 0; item < items; item++) {
		int64_t b = item / s->kv_heads;
		for (int i = 0; i < group; i++) {
			int h = (int)(item % s->kv_heads) * group + i;
			struct head a = head_at(qkv, dqkv, s, b, h);
			a.o = o + o_at(s, b, h);
			a.dout = dout + o_at(s, b, h);
			a.lse = lse + lse_at(s, b, h);
			head_bwd(&a, i > 0, kern_scratch(k, omp_get_thread_num()));
		}
	}
}

void CPU(attention)(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_bwd = attention_bwd;
}
