/*
 * Causal attention, one query at a time; p_j = exp(q·k_j / sqrt(dim) - lse).
 * Backward, with do the gradient of o and D = do·o:
 *     dv_j += p_j do,  ds_j = p_j (do·v_j - D) / sqrt(dim),  dq += ds_j k_j,  dk_j += ds_j q.
 */
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

/* One query: where its parts lie. Rows of k and v are `row` apart. */
struct query {
	int64_t q, k, v;    /* offsets into qkv: q's own, the first k and v of its sequence */
	int64_t o, lse;     /* offsets into o and lse */
	int64_t pos, row;
	int dim;
	double scale;
};

static struct query query_at(const struct attn_shape *s, int64_t b, int h, int64_t pos)
{
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim;
	int64_t token = b * s->seq + pos;
	int g = h / (s->heads / s->kv_heads);
	return (struct query){
		.q = token * row + (int64_t)h * s->dim,
		.k = b * s->seq * row + (int64_t)(s->heads + g) * s->dim,
		.v = b * s->seq * row + (int64_t)(s->heads + s->kv_heads + g) * s->dim,
		.o = (token * s->heads + h) * s->dim,
		.lse = (b * s->heads + h) * s->seq + pos,
		.pos = pos, .row = row, .dim = s->dim, .scale = 1 / sqrt(s->dim),
	};
}

static double dot(const real *a, const real *b, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

static double score(const real *qkv, const struct query *a, int64_t j)
{
	return dot(qkv + a->q, qkv + a->k + j * a->row, a->dim) * a->scale;
}

static double log_sum_exp(const real *qkv, const struct query *a)
{
	double max = -INFINITY, sum = 0;
	for (int64_t j = 0; j <= a->pos; j++)
		max = fmax(max, score(qkv, a, j));
	for (int64_t j = 0; j <= a->pos; j++)
		sum += exp(score(qkv, a, j) - max);
	return max + log(sum);
}

static void query_fwd(real *o, real *lse, const real *qkv, const struct query *a)
{
	double l = log_sum_exp(qkv, a);
	for (int i = 0; i < a->dim; i++) {
		double sum = 0;
		for (int64_t j = 0; j <= a->pos; j++)
			sum += exp(score(qkv, a, j) - l) * (double)qkv[a->v + j * a->row + i];
		o[a->o + i] = (real)sum;
	}
	lse[a->lse] = (real)l;
}

static void query_bwd(real *dqkv, const real *dout, const real *o, const real *lse, const real *qkv,
		      const struct query *a)
{
	const real *d = dout + a->o;
	double big_d = dot(d, o + a->o, a->dim);
	for (int64_t j = 0; j <= a->pos; j++) {
		int64_t kj = a->k + j * a->row, vj = a->v + j * a->row;
		double p = exp(score(qkv, a, j) - (double)lse[a->lse]);
		double ds = p * (dot(d, qkv + vj, a->dim) - big_d) * a->scale;
		for (int i = 0; i < a->dim; i++) {
			dqkv[a->q + i] += (real)(ds * (double)qkv[kj + i]);
			dqkv[kj + i] += (real)(ds * (double)qkv[a->q + i]);
			dqkv[vj + i] += (real)(p * (double)d[i]);
		}
	}
}

static void attention_fwd(struct kern *k, void *o, float *lse, const void *qkv, const struct attn_shape *s)
{
	(void)k;
	for (int64_t b = 0; b < s->batch; b++)
		for (int h = 0; h < s->heads; h++)
			for (int64_t pos = 0; pos < s->seq; pos++) {
				struct query a = query_at(s, b, h, pos);
				query_fwd(o, (real *)lse, qkv, &a);
			}
}

static void attention_bwd(struct kern *k, void *dqkv, const void *dout, const void *o, const float *lse,
			  const void *qkv, const struct attn_shape *s)
{
	(void)k;
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim;
	memset(dqkv, 0, (size_t)(s->batch * s->seq * row) * sizeof(real));
	for (int64_t b = 0; b < s->batch; b++)
		for (int h = 0; h < s->heads; h++)
			for (int64_t pos = 0; pos < s->seq; pos++) {
				struct query a = query_at(s, b, h, pos);
				query_bwd(dqkv, dout, o, (const real *)lse, qkv, &a);
			}
}

void PLAIN(attention)(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_bwd = attention_bwd;
}
