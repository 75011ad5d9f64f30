/*
 * Attention backward: an item of work is one k/v head with the query heads
 * that share it, since they add to the same dk and dv.
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/vmath.h"

#include <omp.h>
#include <string.h>

/* The op's arrays. */
struct arrays {
	float *dq, *dk, *dv;
	const float *dout, *o, *lse, *q, *k, *v;
};

static float row_dot(const float *a, const float *b, int n)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* p = exp(score - lse), and ds = p (dp - dot) scale over dp; both 0 where masked. */
static void harden(float *p, float *ds, float lse, float dot, float scale, int lo, int hi, int width)
{
	#pragma omp simd
	for (int j = 0; j < width; j++) {
		float w = v_exp(p[j] - lse), g = w * (ds[j] - dot) * scale;
		p[j] = j >= lo && j < hi ? w : 0;
		ds[j] = j >= lo && j < hi ? g : 0;
	}
}

/* The same when dropout multiplies the weights with keep. */
static void harden_dropped(float *p, float *ds, const float *keep, float lse, float dot, float scale,
			   int lo, int hi, int width)
{
	#pragma omp simd
	for (int j = 0; j < width; j++) {
		float w = v_exp(p[j] - lse), g = w * (ds[j] * keep[j] - dot) * scale;
		p[j] = j >= lo && j < hi ? w * keep[j] : 0;
		ds[j] = j >= lo && j < hi ? g : 0;
	}
}

static void harden_tile(float *p, float *ds, const struct head *a, const struct arrays *x,
			int64_t q0, int64_t qn, int64_t k0, int64_t kn)
{
	int width = padded(kn), dim = a->s->dim;
	for (int64_t i = 0; i < qn; i++) {
		struct span s = seen(a, q0 + i, k0, kn);
		int64_t at = a->o + (q0 + i) * a->orow;
		float dot = row_dot(x->o + at, x->dout + at, dim), lse = x->lse[a->lse + q0 + i];
		float *pr = p + i * TILE, *dr = ds + i * TILE;
		if (a->s->drop.p > 0) {
			float keep[TILE] = { 0 };
			keep_row(keep, a, q0 + i, k0, kn);
			harden_dropped(pr, dr, keep, lse, dot, a->scale, (int)s.lo, (int)s.hi, width);
		} else {
			harden(pr, dr, lse, dot, a->scale, (int)s.lo, (int)s.hi, width);
		}
	}
}

/* What the queries q0 … and the keys k0 … of one head add to the gradients. */
static void tile_bwd(const struct head *a, const struct arrays *x, int64_t q0, int64_t k0, float *scratch)
{
	const struct attn_shape *s = a->s;
	int64_t qn = cpu_min(TILE, s->q_len - q0), kn = cpu_min(TILE, s->k_len - k0);
	int64_t q = a->q + q0 * s->q_row, kv = a->kv + k0 * s->kv_row;
	const float *dout = x->dout + a->o + q0 * a->orow;
	float *p = scratch, *ds = p + TILE * TILE;
	blas_gemm(false, true, qn, kn, s->dim, a->scale, x->q + q, s->q_row, x->k + kv, s->kv_row, 0, p, TILE);
	blas_gemm(false, true, qn, kn, s->dim, 1, dout, a->orow, x->v + kv, s->kv_row, 0, ds, TILE);
	harden_tile(p, ds, a, x, q0, qn, k0, kn);
	blas_gemm(true, false, kn, s->dim, qn, 1, p, TILE, dout, a->orow, 1, x->dv + kv, s->kv_row);
	blas_gemm(true, false, kn, s->dim, qn, 1, ds, TILE, x->q + q, s->q_row, 1, x->dk + kv, s->kv_row);
	blas_gemm(false, false, qn, s->dim, kn, 1, ds, TILE, x->k + kv, s->kv_row, 1, x->dq + q, s->q_row);
}

static void clear(struct kern *k, float *x, int64_t batch, int64_t stride, int64_t len, int64_t row, int64_t width)
{
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, batch * len * width))
	for (int64_t i = 0; i < batch * len; i++)
		memset(x + i / len * stride + i % len * row, 0, (size_t)width * sizeof *x);
}

static void clear_all(struct kern *k, const struct arrays *x, const struct attn_shape *s)
{
	clear(k, x->dq, s->batch, s->q_batch, s->q_len, s->q_row, (int64_t)s->heads * s->dim);
	clear(k, x->dk, s->batch, s->kv_batch, s->k_len, s->kv_row, (int64_t)s->kv_heads * s->dim);
	clear(k, x->dv, s->batch, s->kv_batch, s->k_len, s->kv_row, (int64_t)s->kv_heads * s->dim);
}

/* dk and dv are summed over the queries in their order, dq over the keys in falling order. */
static void head_bwd(const struct head *a, const struct arrays *x, float *scratch)
{
	for (int64_t q0 = 0; q0 < a->s->q_len; q0 += TILE) {
		struct span keys = seen_by_tile(a, q0, cpu_min(TILE, a->s->q_len - q0));
		for (int64_t k0 = (keys.hi - 1) / TILE * TILE; keys.hi > 0 && k0 >= keys.lo; k0 -= TILE)
			tile_bwd(a, x, q0, k0, scratch);
	}
}

static void attention_bwd(struct kern *k, void *dq, void *dk, void *dv, const void *dout, const void *o, const float *lse,
			  const void *q, const void *key, const void *v, const struct attn_shape *s, bool add)
{
	struct arrays x = { dq, dk, dv, dout, o, lse, q, key, v };
	int group = s->heads / s->kv_heads;
	int64_t items = s->batch * s->kv_heads;
	if (!add)
		clear_all(k, &x, s);
	#pragma omp parallel for schedule(dynamic) num_threads(cpu_team(k, items * group * s->q_len * s->k_len))
	for (int64_t item = 0; item < items; item++)
		for (int i = 0; i < group; i++) {
			struct head a = head_at(s, item / s->kv_heads, (int)(item % s->kv_heads) * group + i);
			head_bwd(&a, &x, kern_scratch(k, omp_get_thread_num()));
		}
}

void CPU(attention_bwd)(struct ops *o)
{
	o->attention_bwd = attention_bwd;
}
