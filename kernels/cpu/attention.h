/*
 * attention — what the passes of attention over tiles share (Dao et al., arXiv 2205.14135): a
 * head's offsets, the keys that a query sees, and the factors of dropout for a row of weights.
 *
 * A tile is TILE queries by TILE keys of one head. Its scores are in the thread's scratch, and the
 * BLAS computes its products. Tiles of which no query sees anything are skipped.
 */
#ifndef MUSTER_KERNELS_CPU_ATTENTION_H
#define MUSTER_KERNELS_CPU_ATTENTION_H

#include "base/numbers.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vmath.h"

#include <math.h>

enum { TILE = 64 };

/* One head of one sequence, as offsets. */
struct head {
	const struct attn_shape *s;
	int64_t q, kv, o, lse; /* of its first query and key */
	int64_t orow;          /* from one row of o to the next */
	const int32_t *starts; /* of its queries; NULL: all are 0 */
	uint64_t number;       /* by which dropout knows the weight of query 0 and key 0 */
	float scale;
};

static inline struct head head_at(const struct attn_shape *s, int64_t b, int h)
{
	uint64_t head = (uint64_t)(s->samples ? s->samples[b] : 0) * (uint64_t)s->heads_all +
			(uint64_t)(s->head_first + h);
	return (struct head){
		.s = s,
		.q = b * s->q_batch + (int64_t)h * s->dim,
		.kv = b * s->kv_batch + (int64_t)(h / (s->heads / s->kv_heads)) * s->dim,
		.o = b * s->o_batch + (int64_t)h * s->dim,
		.lse = (b * s->heads + h) * s->q_len,
		.orow = (int64_t)s->heads * s->dim,
		.starts = s->starts ? s->starts + b * s->starts_batch : NULL,
		.number = (head * (uint64_t)s->seq + (uint64_t)s->q_first) * (uint64_t)s->seq +
			  (uint64_t)s->k_first,
		.scale = (float)(1 / sqrt(s->dim)),
	};
}

/* Columns lo … hi - 1 of a row of scores. */
struct columns {
	int64_t lo, hi;
};

/* The keys of k0 … k0 + kn - 1 that query t sees, counted from k0. */
static inline struct columns seen(const struct head *a, int64_t t, int64_t k0, int64_t kn)
{
	int64_t first = a->s->k_first + k0;
	int64_t lo = clamp_int64((a->starts ? a->starts[t] : 0) - first, 0, kn);
	return (struct columns){ lo, clamp_int64(a->s->q_first + t - first + 1, lo, kn) };
}

/* A range that contains all keys that queries q0 … q0 + qn - 1 see. Its begin is rounded down to a
 * multiple of TILE. */
static inline struct columns seen_by_tile(const struct head *a, int64_t q0, int64_t qn)
{
	struct columns all = { 0, 0 };
	for (int64_t t = q0; t < q0 + qn; t++) {
		struct columns one = seen(a, t, 0, a->s->k_len);
		if (one.lo >= one.hi)
			continue;
		all.lo = all.hi ? min_int64(all.lo, one.lo) : one.lo;
		all.hi = one.hi > all.hi ? one.hi : all.hi;
	}
	all.lo -= all.lo % TILE;
	return all;
}

/* Sets keep[j] to the factor that dropout gives the weight of query t and key k0 + j. */
static inline void keep_row(float keep[TILE], const struct head *a, int64_t t, int64_t k0,
			    int64_t kn)
{
	dropout_keep(keep, &a->s->drop,
		     a->number + (uint64_t)t * (uint64_t)a->s->seq + (uint64_t)k0, kn);
}

/* The loops over a row of scores run to a multiple of 16, so that they are whole vectors. Keys that
 * the query does not see are masked. */
static inline int padded(int64_t n)
{
	return (int)((n + 15) / 16 * 16);
}

static inline void scale_row(float *x, float by, int n)
{
	#pragma omp simd
	for (int i = 0; i < n; i++)
		x[i] *= by;
}

/* x = exp(x - max), which is 0 where x was masked. Returns the sum. */
static inline float exp_row(float *x, int width, float max)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < width; i++) {
		x[i] = v_exp(x[i] - max);
		sum += x[i];
	}
	return sum;
}

static inline void drop_row(float *x, const float *keep, int n)
{
	#pragma omp simd
	for (int i = 0; i < n; i++)
		x[i] *= keep[i];
}

/* attention_fwd of one query per sequence, with the keys split into pieces. false: its scratch does
 * not suffice. */
bool CPU(attention_one)(struct backend *k, float *o, float *lse, const float *q, const float *key,
			const float *v, const struct attn_shape *s);

#endif
