/*
 * Attention of one query per sequence, as in generating text token by token. It is bound by the
 * bandwidth of reading keys and values. They are split into pieces, so that one long sequence has
 * work for every thread. All heads go through a piece block by block, so that memory is read in
 * order. A piece results in the largest score, the sum of the weights and the weighted sum of its
 * values. These are then joined in the order of the pieces, so any number of threads gives the same
 * bits.
 */
#include "base/numbers.h"
#include "kernels/cpu/attention.h"

#include <string.h>

/* Keys whose scores are kept at a time. A piece is PIECE keys, or a multiple. */
enum { BLOCK = 32, PIECE = 256 };

/* The result of a piece for one head; `dim` floats follow. */
struct part {
	float max, sum;
	float o[];
};

struct parts {
	char *at;            /* [batch, heads, pieces] */
	size_t bytes;        /* of one part */
	int64_t pieces, len; /* number of pieces, keys per piece */
};

static struct part *part_at(const struct parts *p, int64_t head, int64_t piece)
{
	return (struct part *)(void *)(p->at + (size_t)(head * p->pieces + piece) * p->bytes);
}

/* Splits the keys as finely as the scratch of one thread allows. */
static struct parts split_keys(struct backend *k, const struct attn_shape *s)
{
	struct parts p = { .at = backend_scratch(k, 0),
			   .bytes = sizeof(struct part) + (size_t)s->dim * sizeof(float) };
	int64_t heads = s->batch * s->heads, least = (s->k_len + PIECE - 1) / PIECE;
	int64_t room = heads ? (int64_t)(BACKEND_SCRATCH / p.bytes) / heads : 0;
	if (room < 1 || least < 1)
		return p;
	p.len = (least + min_int64(room, least) - 1) / min_int64(room, least) * PIECE;
	p.pieces = (s->k_len + p.len - 1) / p.len;
	return p;
}

/* w[j] = scale q · k_j for j < n. Returns the largest. Four keys at a time, whose sums do not
 * depend on each other. */
static float scores(float *w, const float *q, const float *k, int64_t row, int64_t n, int dim,
		    float scale)
{
	float max = -INFINITY;
	for (int64_t j = 0; j < n; j += 4) {
		const float *k0 = k + j * row, *k1 = k + min_int64(j + 1, n - 1) * row;
		const float *k2 = k + min_int64(j + 2, n - 1) * row,
			    *k3 = k + min_int64(j + 3, n - 1) * row;
		float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
		#pragma omp simd reduction(+ : s0, s1, s2, s3)
		for (int i = 0; i < dim; i++) {
			s0 += q[i] * k0[i];
			s1 += q[i] * k1[i];
			s2 += q[i] * k2[i];
			s3 += q[i] * k3[i];
		}
		const float sums[] = { s0, s1, s2, s3 };
		for (int64_t l = 0; l < min_int64(4, n - j); l++)
			w[j + l] = sums[l] * scale;
	}
	#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < n; j++)
		max = w[j] > max ? w[j] : max;
	return max;
}

/* o += sum of w[j] v_j over j < n */
static void add_weighted(float *restrict o, const float *restrict w, const float *restrict v,
			 int64_t row, int64_t n, int dim)
{
	int64_t j = 0;
	for (; j + 4 <= n; j += 4) {
		const float *v0 = v + j * row, *v1 = v0 + row, *v2 = v1 + row, *v3 = v2 + row;
		#pragma omp simd
		for (int i = 0; i < dim; i++)
			o[i] += w[j] * v0[i] + w[j + 1] * v1[i] +
				(w[j + 2] * v2[i] + w[j + 3] * v3[i]);
	}
	for (; j < n; j++)
		for (int i = 0; i < dim; i++)
			o[i] += w[j] * v[j * row + i];
}

/* Adds keys j0 … j0 + n - 1, all of which the query sees. */
static void add_block(struct part *p, const float *q, const float *k, const float *v,
		      const struct head *a, int64_t j0, int64_t n)
{
	const struct attn_shape *s = a->s;
	float w[BLOCK], max = scores(w, q, k + j0 * s->kv_row, s->kv_row, n, s->dim, a->scale);
	if (max > p->max) {
		float shrink = v_exp(p->max - max);
		p->sum *= shrink;
		scale_row(p->o, shrink, s->dim);
		p->max = max;
	}
	p->sum += exp_row(w, (int)n, p->max);
	if (s->drop.p > 0) {
		float keep[BLOCK];
		dropout_keep(keep, &s->drop, a->number + (uint64_t)j0, n);
		drop_row(w, keep, (int)n);
	}
	add_weighted(p->o, w, v + j0 * s->kv_row, s->kv_row, n, s->dim);
}

/* What attention reads. */
struct given {
	const float *q, *k, *v;
};

static void block_fwd(const struct parts *p, const struct given *in, const struct attn_shape *s,
		      int64_t b, int64_t j0, int64_t n)
{
	for (int h = 0; h < s->heads; h++) {
		struct head a = head_at(s, b, h);
		struct columns keys = seen(&a, 0, j0, n);
		if (keys.lo < keys.hi)
			add_block(part_at(p, b * s->heads + h, j0 / p->len), in->q + a.q,
				  in->k + a.kv, in->v + a.kv, &a, j0 + keys.lo, keys.hi - keys.lo);
	}
}

static void piece_fwd(const struct parts *p, const struct given *in, const struct attn_shape *s,
		      int64_t b, int64_t piece)
{
	for (int h = 0; h < s->heads; h++) {
		struct part *one = part_at(p, b * s->heads + h, piece);
		one->max = -INFINITY;
		one->sum = 0;
		memset(one->o, 0, (size_t)s->dim * sizeof *one->o);
	}
	int64_t end = min_int64((piece + 1) * p->len, s->k_len);
	for (int64_t j = piece * p->len; j < end; j += BLOCK)
		block_fwd(p, in, s, b, j, min_int64(BLOCK, end - j));
}

static void join(float *o, float *lse, const struct parts *p, int64_t head, int dim)
{
	float max = -INFINITY, sum = 0;
	for (int64_t i = 0; i < p->pieces; i++)
		max = part_at(p, head, i)->max > max ? part_at(p, head, i)->max : max;
	memset(o, 0, (size_t)dim * sizeof *o);
	for (int64_t i = 0; i < p->pieces; i++) {
		const struct part *one = part_at(p, head, i);
		if (one->sum == 0)
			continue;
		float by = v_exp(one->max - max);
		sum += one->sum * by;
		#pragma omp simd
		for (int j = 0; j < dim; j++)
			o[j] += one->o[j] * by;
	}
	if (sum != 0)
		scale_row(o, 1 / sum, dim);
	*lse = max + logf(sum);
}

bool CPU(attention_one)(struct backend *k, float *o, float *lse, const float *q, const float *key,
			const float *v, const struct attn_shape *s)
{
	struct parts p = split_keys(k, s);
	if (!p.pieces)
		return false;
	const struct given in = { q, key, v };
	#pragma omp parallel num_threads(cpu_team(k, s->batch * s->heads * s->k_len * s->dim))
	{
		#pragma omp for schedule(dynamic)
		for (int64_t item = 0; item < s->batch * p.pieces; item++)
			piece_fwd(&p, &in, s, item / p.pieces, item % p.pieces);
		#pragma omp for schedule(static)
		for (int64_t head = 0; head < s->batch * s->heads; head++) {
			struct head a = head_at(s, head / s->heads, (int)(head % s->heads));
			join(o + a.o, lse + a.lse, &p, head, s->dim);
		}
	}
	return true;
}
