/*
 * Causal attention, one query at a time; p_j = exp(q·k_j / sqrt(dim) - lse).
 * Backward, with do the gradient of o and D = do·o:
 *     ds_j = p_j (do·v_j - D) / sqrt(dim),  dq = sum of ds_j k_j over j,
 *     dk_j = sum of ds_j q, dv_j = sum of p_j do, both over the queries that see j.
 */
#include "kernels/plain/plain.h"

#include <math.h>

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
	double l = log_sum_exp(qkv, a), sum[ATTN_DIM_MAX] = { 0 };
	for (int64_t j = 0; j <= a->pos; j++) {
		double p = exp(score(qkv, a, j) - l);
		for (int i = 0; i < a->dim; i++)
			sum[i] += p * (double)qkv[a->v + j * a->row + i];
	}
	for (int i = 0; i < a->dim; i++)
		o[a->o + i] = (real)sum[i];
	lse[a->lse] = (real)l;
}

/* What the backward pass reads. */
struct given {
	const real *dout, *o, *lse, *qkv;
};

/* p_j and ds_j of one query. */
static void weight(const struct given *in, const struct query *a, int64_t j, double *p, double *ds)
{
	const real *d = in->dout + a->o;
	double big_d = dot(d, in->o + a->o, a->dim);
	*p = exp(score(in->qkv, a, j) - (double)in->lse[a->lse]);
	*ds = *p * (dot(d, in->qkv + a->v + j * a->row, a->dim) - big_d) * a->scale;
}

static void query_bwd(real *dqkv, const struct given *in, const struct query *a)
{
	double dq[ATTN_DIM_MAX] = { 0 }, p, ds;
	for (int64_t j = 0; j <= a->pos; j++) {
		weight(in, a, j, &p, &ds);
		for (int i = 0; i < a->dim; i++)
			dq[i] += ds * (double)in->qkv[a->k + j * a->row + i];
	}
	for (int i = 0; i < a->dim; i++)
		dqkv[a->q + i] = (real)dq[i];
}

/* dk and dv of place j of k/v head g: all queries from j on, of all heads that share it. */
static void key_bwd(real *dqkv, const struct given *in, const struct attn_shape *s, int64_t b, int g, int64_t j)
{
	int group = s->heads / s->kv_heads;
	double dk[ATTN_DIM_MAX] = { 0 }, dv[ATTN_DIM_MAX] = { 0 }, p, ds;
	for (int h = g * group; h < (g + 1) * group; h++)
		for (int64_t pos = j; pos < s->seq; pos++) {
			struct query a = query_at(s, b, h, pos);
			weight(in, &a, j, &p, &ds);
			for (int i = 0; i < s->dim; i++) {
				dk[i] += ds * (double)in->qkv[a.q + i];
				dv[i] += p * (double)in->dout[a.o + i];
			}
		}
	struct query a = query_at(s, b, g * group, j);
	for (int i = 0; i < s->dim; i++) {
		dqkv[a.k + j * a.row + i] = (real)dk[i];
		dqkv[a.v + j * a.row + i] = (real)dv[i];
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
	struct given in = { dout, o, (const real *)lse, qkv };
	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t pos = 0; pos < s->seq; pos++) {
			for (int h = 0; h < s->heads; h++) {
				struct query a = query_at(s, b, h, pos);
				query_bwd(dqkv, &in, &a);
			}
			for (int g = 0; g < s->kv_heads; g++)
				key_bwd(dqkv, &in, s, b, g, pos);
		}
}

void PLAIN(attention)(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_bwd = attention_bwd;
}
