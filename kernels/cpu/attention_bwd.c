/*
 * Attention backward. The tiles of one k/v head, with the query heads that share it, add to the
 * same dk and dv, and the tiles of the same queries add to the same dq. So an item of work is a k/v
 * head. If there are too few of them for the threads, it is a tile of a diagonal, on which no two
 * tiles share a query or a key.
 *
 * Both ways sum dk and dv head by head and over the queries in order, and dq over the keys in
 * falling order. So they give the same bits.
 */
#include "base/numbers.h"
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

/* p = exp(score - lse), and ds = p (dp - dot) scale, in place of the score and of dp. Both are 0
 * where masked. */
static void softmax_bwd_row(float *p, float *ds, float lse, float dot, float scale, int lo, int hi,
			    int width)
{
	#pragma omp simd
	for (int j = 0; j < width; j++) {
		float w = v_exp(p[j] - lse), g = w * (ds[j] - dot) * scale;
		p[j] = j >= lo && j < hi ? w : 0;
		ds[j] = j >= lo && j < hi ? g : 0;
	}
}

/* As harden, when dropout multiplies the weights by keep. */
static void softmax_bwd_row_dropout(float *p, float *ds, const float *keep, float lse, float dot,
				    float scale, int lo, int hi, int width)
{
	#pragma omp simd
	for (int j = 0; j < width; j++) {
		float w = v_exp(p[j] - lse), g = w * (ds[j] * keep[j] - dot) * scale;
		p[j] = j >= lo && j < hi ? w * keep[j] : 0;
		ds[j] = j >= lo && j < hi ? g : 0;
	}
}

/* A tile: queries q0 … against keys k0 …, dout · o of these queries, and whether it sets dq, and dk
 * and dv, or adds to them. */
struct tile {
	int64_t q0, k0;
	const float *dots;
	bool sets_q, sets_kv;
};

static void softmax_bwd_tile(float *p, float *ds, const struct head *a, const struct arrays *x,
			     const struct tile *t, int64_t qn, int64_t kn)
{
	int width = padded(kn);
	for (int64_t i = 0; i < qn; i++) {
		struct columns s = seen(a, t->q0 + i, t->k0, kn);
		float dot = t->dots[i], lse = x->lse[a->lse + t->q0 + i];
		float *pr = p + i * TILE, *dr = ds + i * TILE;
		if (a->s->drop.p > 0) {
			float keep[TILE] = { 0 };
			keep_row(keep, a, t->q0 + i, t->k0, kn);
			softmax_bwd_row_dropout(pr, dr, keep, lse, dot, a->scale, (int)s.lo,
						(int)s.hi, width);
		} else {
			softmax_bwd_row(pr, dr, lse, dot, a->scale, (int)s.lo, (int)s.hi, width);
		}
	}
}

/* Adds one tile of a head to the gradients. */
static void tile_bwd(const struct head *a, const struct arrays *x, const struct tile *t,
		     float *scratch)
{
	const struct attn_shape *s = a->s;
	int64_t qn = min_int64(TILE, s->q_len - t->q0), kn = min_int64(TILE, s->k_len - t->k0);
	int64_t q = a->q + t->q0 * s->q_row, kv = a->kv + t->k0 * s->kv_row;
	const float *dout = x->dout + a->o + t->q0 * a->orow;
	float *p = scratch, *ds = p + TILE * TILE;
	blas_gemm(false, true, qn, kn, s->dim, a->scale, x->q + q, s->q_row, x->k + kv, s->kv_row,
		  0, p, TILE);
	blas_gemm(false, true, qn, kn, s->dim, 1, dout, a->orow, x->v + kv, s->kv_row, 0, ds, TILE);
	softmax_bwd_tile(p, ds, a, x, t, qn, kn);
	blas_gemm(true, false, kn, s->dim, qn, 1, p, TILE, dout, a->orow, !t->sets_kv, x->dv + kv,
		  s->kv_row);
	blas_gemm(true, false, kn, s->dim, qn, 1, ds, TILE, x->q + q, s->q_row, !t->sets_kv,
		  x->dk + kv, s->kv_row);
	blas_gemm(false, false, qn, s->dim, kn, 1, ds, TILE, x->k + kv, s->kv_row, !t->sets_q,
		  x->dq + q, s->q_row);
}

/* A range that contains all keys that a tile's queries see. */
static struct columns keys_of(const struct head *a, int64_t q0)
{
	return seen_by_tile(a, q0, min_int64(TILE, a->s->q_len - q0));
}

/* dots[i] = dout · o of query q0 + i, for i of n. */
static void dots_of(float *dots, const struct head *a, const struct arrays *x, int64_t q0,
		    int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t at = a->o + (q0 + i) * a->orow;
		dots[i] = row_dot(x->o + at, x->dout + at, a->s->dim);
	}
}

static void clear_rows(float *x, int64_t n, int64_t row, int width)
{
	for (int64_t i = 0; i < n; i++)
		memset(x + i * row, 0, (size_t)width * sizeof *x);
}

static void clear_queries(const struct head *a, const struct arrays *x, int64_t q0, int64_t qn)
{
	clear_rows(x->dq + a->q + q0 * a->s->q_row, qn, a->s->q_row, a->s->dim);
}

static void clear_keys(const struct head *a, const struct arrays *x, int64_t k0, int64_t kn)
{
	clear_rows(x->dk + a->kv + k0 * a->s->kv_row, kn, a->s->kv_row, a->s->dim);
	clear_rows(x->dv + a->kv + k0 * a->s->kv_row, kn, a->s->kv_row, a->s->dim);
}

/* Goes over all query tiles against the key tile k0. With sets_kv, the first one sets dk and dv. */
static void keys_bwd(const struct head *a, const struct arrays *x, int64_t k0, const float *dots,
		     bool sets_q, bool sets_kv, float *scratch)
{
	/* the first query that may see this tile */
	int64_t q0 = a->s->k_first + k0 - a->s->q_first;
	for (q0 = q0 > 0 ? q0 / TILE * TILE : 0; q0 < a->s->q_len; q0 += TILE) {
		struct columns keys = keys_of(a, q0);
		if (k0 < keys.lo || k0 >= keys.hi)
			continue;
		bool last = keys.hi - k0 <= TILE; /* this is the first tile of these queries */
		tile_bwd(a, x, &(struct tile){ q0, k0, dots + q0, sets_q && last, sets_kv },
			 scratch);
		sets_kv = false;
	}
	if (sets_kv)
		clear_keys(a, x, k0, min_int64(TILE, a->s->k_len - k0));
}

static void head_bwd(const struct head *a, const struct arrays *x, bool sets_q, bool sets_kv,
		     float *scratch)
{
	const struct attn_shape *s = a->s;
	float *dots = scratch + 2 * TILE * TILE;
	dots_of(dots, a, x, 0, s->q_len);
	for (int64_t q0 = 0; sets_q && q0 < s->q_len; q0 += TILE)
		if (!keys_of(a, q0).hi)
			clear_queries(a, x, q0, min_int64(TILE, s->q_len - q0));
	for (int64_t k0 = (s->k_len - 1) / TILE * TILE; k0 >= 0; k0 -= TILE)
		keys_bwd(a, x, k0, dots, sets_q, sets_kv, scratch);
}

static void by_heads(struct backend *k, const struct arrays *x, const struct attn_shape *s,
		     bool add, int threads)
{
	int group = s->heads / s->kv_heads;
	int64_t items = s->batch * s->kv_heads;
	#pragma omp parallel for schedule(dynamic) num_threads(threads)
	for (int64_t item = 0; item < items; item++)
		for (int i = 0; i < group; i++) {
			struct head a = head_at(s, item / s->kv_heads,
						(int)(item % s->kv_heads) * group + i);
			head_bwd(&a, x, !add, !add && i == 0,
				 backend_scratch(k, omp_get_thread_num()));
		}
}

/* On diagonal d, query tile t is computed against key tile t + last - d. last is the distance from
 * a query tile to the last key tile that it sees. */
struct diagonals {
	int64_t q_tiles, k_tiles, last;
	int64_t first, end; /* diagonals that may contain tiles to compute */
};

static struct diagonals diagonals_of(const struct attn_shape *s)
{
	struct diagonals d = { .q_tiles = (s->q_len + TILE - 1) / TILE,
			       .k_tiles = (s->k_len + TILE - 1) / TILE };
	int64_t ahead = s->q_first + TILE - 1 - s->k_first;
	d.last = (ahead < 0 ? ahead - TILE + 1 : ahead) / TILE;
	d.first = d.last >= d.k_tiles ? d.last - d.k_tiles + 1 : 0;
	d.end = d.q_tiles + d.last;
	return d;
}

/* Computes diagonal n of the i-th query head of every k/v head. All threads of a team call this
 * together. */
static void diagonal_bwd(struct backend *k, const struct arrays *x, const struct attn_shape *s,
			 const struct diagonals *d, int64_t n, int i)
{
	int64_t q_lo = n > d->last ? n - d->last : 0;
	int64_t q_hi = min_int64(d->q_tiles, d->k_tiles + n - d->last),
		tiles = q_hi > q_lo ? q_hi - q_lo : 0;
	#pragma omp for schedule(dynamic)
	for (int64_t at = 0; at < s->batch * s->kv_heads * tiles; at++) {
		int64_t item = at / tiles, tile = q_lo + at % tiles;
		int h = (int)(item % s->kv_heads) * (s->heads / s->kv_heads) + i;
		struct head a = head_at(s, item / s->kv_heads, h);
		float dots[TILE];
		struct tile t = { tile * TILE, (tile + d->last - n) * TILE, dots, false, false };
		struct columns keys = keys_of(&a, t.q0);
		if (t.k0 < keys.lo || t.k0 >= keys.hi)
			continue;
		dots_of(dots, &a, x, t.q0, min_int64(TILE, s->q_len - t.q0));
		tile_bwd(&a, x, &t, backend_scratch(k, omp_get_thread_num()));
	}
}

static void clear_all(const struct arrays *x, const struct attn_shape *s, int threads)
{
	int group = s->heads / s->kv_heads;
	#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < s->batch * s->heads; i++) {
		struct head a = head_at(s, i / s->heads, (int)(i % s->heads));
		clear_queries(&a, x, 0, s->q_len);
		if (i % s->heads % group == 0)
			clear_keys(&a, x, 0, s->k_len);
	}
}

static void by_diagonals(struct backend *k, const struct arrays *x, const struct attn_shape *s,
			 bool add, int threads)
{
	struct diagonals d = diagonals_of(s);
	if (!add)
		clear_all(x, s, threads);
	#pragma omp parallel num_threads(threads)
	for (int i = 0; i < s->heads / s->kv_heads; i++)
		for (int64_t n = d.first; n < d.end; n++)
			diagonal_bwd(k, x, s, &d, n, i);
}

static void attention_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	struct arrays x = { dq, dk, dv, dout, o, lse, q, key, v };
	int64_t items = s->batch * s->kv_heads;
	int threads = cpu_team(k, s->batch * s->heads * s->q_len * s->k_len);
	if (items % threads == 0 || items >= 4 * threads || min_int64(s->q_len, s->k_len) <= TILE)
		by_heads(k, &x, s, add, threads);
	else
		by_diagonals(k, &x, s, add, threads);
}

void CPU(attention_bwd)(struct ops *o)
{
	o->attention_bwd = attention_bwd;
}
