/*
 * Causal attention, one query at a time. p_j = exp(q·k_j / sqrt(dim) - lse); m_j is the factor that
 * dropout gives it.
 *     o = sum of p_j m_j v_j over the keys j that the query sees.
 * Backward, with do the gradient of o and D = do·o:
 *     ds_j = p_j (m_j do·v_j - D) / sqrt(dim),  dq = sum of ds_j k_j over j,
 *     dk_j = sum of ds_j q, dv_j = sum of p_j m_j do, both over the queries that see j.
 */
#include "base/numbers.h"
#include "kernels/reference/reference.h"

#include <math.h>

/* The inputs of attention. Only the backward pass reads all of them. */
struct given {
	const struct attn_shape *s;
	const real *q, *k, *v;
	const real *dout, *o, *lse;
};

/* One query: its offsets, and the keys lo … hi - 1 that it sees. */
struct query {
	int64_t q, kv; /* its own offset, and that of its k/v head's key 0 */
	int64_t o, lse;
	int64_t lo, hi;
	uint64_t number; /* by which dropout knows its weight for key 0 */
};

static struct query query_at(const struct attn_shape *s, int64_t b, int h, int64_t t)
{
	int64_t pos = s->q_first + t, start = s->starts ? s->starts[b * s->starts_batch + t] : 0;
	uint64_t head = (uint64_t)(s->samples ? s->samples[b] : 0) * (uint64_t)s->heads_all +
			(uint64_t)(s->head_first + h);
	int64_t lo = clamp_int64(start - s->k_first, 0, s->k_len);
	return (struct query){
		.q = b * s->q_batch + t * s->q_row + (int64_t)h * s->dim,
		.kv = b * s->kv_batch + (int64_t)(h / (s->heads / s->kv_heads)) * s->dim,
		.o = b * s->o_batch + (t * s->heads + h) * s->dim,
		.lse = (b * s->heads + h) * s->q_len + t,
		.lo = lo,
		.hi = clamp_int64(pos - s->k_first + 1, lo, s->k_len),
		.number = (head * (uint64_t)s->seq + (uint64_t)pos) * (uint64_t)s->seq +
			  (uint64_t)s->k_first,
	};
}

static double dot(const real *a, const real *b, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

static double score(const struct given *in, const struct query *a, int64_t j)
{
	return dot(in->q + a->q, in->k + a->kv + j * in->s->kv_row, in->s->dim) / sqrt(in->s->dim);
}

static double log_sum_exp(const struct given *in, const struct query *a)
{
	double max = -INFINITY, sum = 0;
	for (int64_t j = a->lo; j < a->hi; j++)
		max = fmax(max, score(in, a, j));
	for (int64_t j = a->lo; j < a->hi; j++)
		sum += exp(score(in, a, j) - max);
	return max + log(sum);
}

static void query_fwd(real *o, real *lse, const struct given *in, const struct query *a)
{
	double l = log_sum_exp(in, a), sum[ATTN_DIM_MAX] = { 0 };
	for (int64_t j = a->lo; j < a->hi; j++) {
		double p = exp(score(in, a, j) - l) *
			   REFERENCE(keep)(&in->s->drop, a->number + (uint64_t)j);
		for (int i = 0; i < in->s->dim; i++)
			sum[i] += p * (double)in->v[a->kv + j * in->s->kv_row + i];
	}
	for (int i = 0; i < in->s->dim; i++)
		o[a->o + i] = (real)sum[i];
	lse[a->lse] = (real)l;
}

/* p_j m_j and ds_j of one query. */
static void weight(const struct given *in, const struct query *a, int64_t j, double *pm, double *ds)
{
	int dim = in->s->dim;
	const real *d = in->dout + a->o;
	double m = REFERENCE(keep)(&in->s->drop, a->number + (uint64_t)j);
	double p = exp(score(in, a, j) - (double)in->lse[a->lse]);
	double big_d = dot(d, in->o + a->o, dim);
	*pm = p * m;
	*ds = p * (m * dot(d, in->v + a->kv + j * in->s->kv_row, dim) - big_d) / sqrt(dim);
}

static void put(real *to, const double *from, int dim, bool add)
{
	for (int i = 0; i < dim; i++)
		to[i] = (real)((add ? (double)to[i] : 0) + from[i]);
}

static void query_bwd(real *dq, const struct given *in, const struct query *a, bool add)
{
	double sum[ATTN_DIM_MAX] = { 0 }, pm, ds;
	for (int64_t j = a->lo; j < a->hi; j++) {
		weight(in, a, j, &pm, &ds);
		for (int i = 0; i < in->s->dim; i++)
			sum[i] += ds * (double)in->k[a->kv + j * in->s->kv_row + i];
	}
	put(dq + a->q, sum, in->s->dim, add);
}

/* The gradients of key j of k/v head g, over all queries that see it, of all heads that share
 * it. */
static void key_bwd(real *dk, real *dv, const struct given *in, int64_t b, int g, int64_t j,
		    bool add)
{
	const struct attn_shape *s = in->s;
	int group = s->heads / s->kv_heads;
	double dk_sum[ATTN_DIM_MAX] = { 0 }, dv_sum[ATTN_DIM_MAX] = { 0 }, pm, ds;
	for (int h = g * group; h < (g + 1) * group; h++)
		for (int64_t t = 0; t < s->q_len; t++) {
			struct query a = query_at(s, b, h, t);
			if (j < a.lo || j >= a.hi)
				continue;
			weight(in, &a, j, &pm, &ds);
			for (int i = 0; i < s->dim; i++) {
				dk_sum[i] += ds * (double)in->q[a.q + i];
				dv_sum[i] += pm * (double)in->dout[a.o + i];
			}
		}
	int64_t at = b * s->kv_batch + j * s->kv_row + (int64_t)g * s->dim;
	put(dk + at, dk_sum, s->dim, add);
	put(dv + at, dv_sum, s->dim, add);
}

static void attention_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s)
{
	(void)k;
	struct given in = { .s = s, .q = q, .k = key, .v = v };
	for (int64_t b = 0; b < s->batch; b++)
		for (int h = 0; h < s->heads; h++)
			for (int64_t t = 0; t < s->q_len; t++) {
				struct query a = query_at(s, b, h, t);
				query_fwd(o, (real *)lse, &in, &a);
			}
}

static void attention_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	(void)k;
	struct given in = { s, q, key, v, dout, o, (const real *)lse };
	for (int64_t b = 0; b < s->batch; b++) {
		for (int64_t t = 0; t < s->q_len; t++)
			for (int h = 0; h < s->heads; h++) {
				struct query a = query_at(s, b, h, t);
				query_bwd(dq, &in, &a, add);
			}
		for (int64_t j = 0; j < s->k_len; j++)
			for (int g = 0; g < s->kv_heads; g++)
				key_bwd(dk, dv, &in, b, g, j, add);
	}
}

/* lse = log(exp(l) + exp(l2)). Each o is weighted by its share of that. */
static void merge_query(real *o, real *lse, const real *o2, double l2, int dim)
{
	double l = (double)*lse, max = fmax(l, l2);
	if (max == -INFINITY)
		return; /* neither result saw a key */
	double both = max + log(exp(l - max) + exp(l2 - max));
	for (int i = 0; i < dim; i++)
		o[i] = (real)(exp(l - both) * (double)o[i] + exp(l2 - both) * (double)o2[i]);
	*lse = (real)both;
}

static void attention_merge(struct backend *k, void *ov, float *lsef, const void *o2v,
			    const float *lse2f, const struct attn_shape *s)
{
	(void)k;
	real *o = ov, *lse = (real *)lsef;
	const real *o2 = o2v, *lse2 = (const real *)lse2f;
	for (int64_t b = 0; b < s->batch; b++)
		for (int h = 0; h < s->heads; h++)
			for (int64_t t = 0; t < s->q_len; t++) {
				struct query a = query_at(s, b, h, t);
				merge_query(o + a.o, lse + a.lse, o2 + a.o, (double)lse2[a.lse],
					    s->dim);
			}
}

void REFERENCE(attention)(struct ops *o)
{
	o->attention_fwd = attention_fwd;
	o->attention_merge = attention_merge;
	o->attention_bwd = attention_bwd;
}
