/*
 * Attention of one query a sequence, as when a text is written token by token: bound by the memory that keys and
 * values take. They are cut into pieces, so that one long sequence has work for every thread; the heads that share
 * a piece read it from the cache. A piece leaves the largest score, the sum of the weights and the weighted sum of
 * its values, which are then put together in the order of the pieces: the same bits for any number of threads.
 */
#include "kernels/cpu/attention.h"

#include <string.h>

/* Keys whose scores are at hand at a time; a piece is some of these. */
enum { BLOCK = 256 };

/* What a piece leaves for one head; `dim` floats follow. */
struct part {
	float max, sum;
	float o[];
};

struct parts {
	char *at;            /* [batch, heads, pieces] */
	size_t bytes;        /* of one */
	int64_t pieces, len; /* keys a piece */
};

static struct part *part_at(const struct parts *p, int64_t head, int64_t piece)
{
	return (struct part *)(void *)(p->at + (size_t)(head * p->pieces + piece) * p->bytes);
}

/* Cut as finely as the scratch of one thread has room for. */
static struct parts cut(struct kern *k, const struct attn_shape *s)
{
	struct parts p = { .at = kern_scratch(k, 0), .bytes = sizeof(struct part) + (size_t)s->dim * sizeof(float) };
	int64_t heads = s->batch * s->heads, blocks = (s->k_len + BLOCK - 1) / BLOCK;
	int64_t room = heads ? (int64_t)(KERN_SCRATCH / p.bytes) / heads : 0;
	if (room < 1 || blocks < 1)
		return p;
	p.len = (blocks + cpu_min(room, blocks) - 1) / cpu_min(room, blocks) * BLOCK;
	p.pieces = (s->k_len + p.len - 1) / p.len;
	return p;
}

/* w[j] = scale q · k_j for j of n; returns the largest. */
static float scores(float *w, const float *q, const float *k, int64_t row, int64_t n, int dim, float scale)
{
	float max = -INFINITY;
	for (int64_t j = 0; j < n; j++) {
		const float *kj = k + j * row;
		float sum = 0;
		#pragma omp simd reduction(+ : sum)
		for (int i = 0; i < dim; i++)
			sum += q[i] * kj[i];
		w[j] = sum * scale;
		max = w[j] > max ? w[j] : max;
	}
	return max;
}

/* o += sum of w[j] v_j over j of n */
static void weigh(float *restrict o, const float *restrict w, const float *restrict v, int64_t row, int64_t n, int dim)
{
	int64_t j = 0;
	for (; j + 4 <= n; j += 4) {
		const float *v0 = v + j * row, *v1 = v0 + row, *v2 = v1 + row, *v3 = v2 + row;
		#pragma omp simd
		for (int i = 0; i < dim; i++)
			o[i] += w[j] * v0[i] + w[j + 1] * v1[i] + (w[j + 2] * v2[i] + w[j + 3] * v3[i]);
	}
	for (; j < n; j++)
		for (int i = 0; i < dim; i++)
			o[i] += w[j] * v[j * row + i];
}

/* Keys j0 … j0 + n - 1, all of which the query sees. */
static void add_block(struct part *p, const float *q, const float *k, const float *v, const struct head *a, int64_t j0, int64_t n)
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
	weigh(p->o, w, v + j0 * s->kv_row, s->kv_row, n, s->dim);
}

static void piece_fwd(struct part *p, const float *q, const float *k, const float *v, const struct head *a, int64_t j0, int64_t n)
{
	struct span keys = seen(a, 0, j0, n);
	*p = (struct part){ .max = -INFINITY };
	memset(p->o, 0, (size_t)a->s->dim * sizeof *p->o);
	for (int64_t j = keys.lo; j < keys.hi; j += BLOCK)
		add_block(p, q, k, v, a, j0 + j, cpu_min(BLOCK, keys.hi - j));
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

bool CPU(attention_one)(struct kern *k, float *o, float *lse, const float *q, const float *key, const float *v,
			const struct attn_shape *s)
{
	struct parts p = cut(k, s);
	if (!p.pieces)
		return false;
	int group = s->heads / s->kv_heads;
	int64_t items = s->batch * s->kv_heads * p.pieces;
	#pragma omp parallel num_threads(cpu_team(k, s->batch * s->heads * s->k_len * s->dim))
	{
		#pragma omp for schedule(dynamic)
		for (int64_t item = 0; item < items; item++)
			for (int i = 0; i < group; i++) {
				int64_t piece = item % p.pieces, shared = item / p.pieces, head = shared * group + i;
				struct head a = head_at(s, head / s->heads, (int)(head % s->heads));
				piece_fwd(part_at(&p, head, piece), q + a.q, key + a.kv, v + a.kv, &a,
					  piece * p.len, cpu_min(p.len, s->k_len - piece * p.len));
			}
		#pragma omp for schedule(static)
		for (int64_t head = 0; head < s->batch * s->heads; head++) {
			struct head a = head_at(s, head / s->heads, (int)(head % s->heads));
			join(o + a.o, lse + a.lse, &p, head, s->dim);
		}
	}
	return true;
}
