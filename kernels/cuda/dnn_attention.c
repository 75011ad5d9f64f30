#include "kernels/cuda/dnn_attention.h"

#ifdef HAVE_CUDNN

typedef cudnnBackendDescriptor_t tensor;

/* The shapes of a graph, and what both passes share. */
struct parts {
	struct dnn_graph *g;
	cudnnDataType_t type;
	bool causal;
	int64_t batch, heads, q_len, k_len, dim;
	bool grouped;                      /* several heads share a k/v head */
	struct dnn_extent q, kv, o, stats; /* in memory */
	struct dnn_extent scores, queries; /* [b, h, q_len, k_len], [b, h, q_len, 1] */
	bool documents;
	struct dnn_extent starts; /* in memory */
	tensor scale;
};

enum { ALIGN = 16, NUMBER = sizeof(float) };
static const cudnnDataType_t FP32 = CUDNN_DATA_FLOAT;

static struct dnn_extent rows(int64_t batch, int64_t heads, int64_t len, int64_t dim,
			      int64_t batch_stride, int64_t row)
{
	return (struct dnn_extent){ { batch, heads, len, dim }, { batch_stride, dim, row, 1 } };
}

static struct parts parts_of(struct dnn_graph *g, const struct dnn_attention *a)
{
	const struct attn_shape *s = a->s;
	int64_t b = a->piece.batch, h = a->piece.heads, kv = a->piece.kv_heads, dim = s->dim;
	struct parts p = {
		.g = g,
		.type = a->type,
		.causal = a->causal,
		.batch = b,
		.heads = h,
		.q_len = s->q_len,
		.k_len = s->k_len,
		.dim = dim,
		.grouped = h > kv,
		.q = rows(b, h, s->q_len, dim, s->q_batch, s->q_row),
		.kv = rows(b, kv, s->k_len, dim, s->kv_batch, s->kv_row),
		.o = rows(b, h, s->q_len, dim, s->o_batch, (int64_t)s->heads * dim),
		.scores = dnn_dense(b, h, s->q_len, s->k_len),
		.queries = dnn_dense(b, h, s->q_len, 1),
		.documents = s->starts != NULL,
		.scale = dnn_number(g, DNN_SCALE),
	};
	p.stats = p.queries;
	p.stats.stride[0] = s->heads * s->q_len;
	p.starts = dnn_dense(b, 1, s->q_len, 1);
	p.starts.stride[0] = s->starts_batch;
	return p;
}

static tensor stored(const struct parts *p, int64_t uid, struct dnn_extent x)
{
	return dnn_tensor(p->g, uid, p->type, x, ALIGN);
}

static tensor inner(const struct parts *p, struct dnn_extent x)
{
	return dnn_virtual(p->g, FP32, x);
}

/* A result of an fp32 operation with the shape of the scores, or of one number per query. */
static tensor on(const struct parts *p, cudnnPointwiseMode_t mode, tensor x, tensor b,
		 struct dnn_extent shape)
{
	tensor y = inner(p, shape);
	dnn_pointwise(p->g, mode, FP32, x, b, NULL, y);
	return y;
}

static tensor product(const struct parts *p, tensor a, tensor b, struct dnn_extent shape)
{
	tensor c = inner(p, shape);
	dnn_matmul(p->g, a, b, c);
	return c;
}

static tensor reduced(const struct parts *p, cudnnReduceTensorOp_t op, tensor x)
{
	tensor y = inner(p, p->queries);
	dnn_reduce(p->g, op, x, y);
	return y;
}

/* Each score's index along an axis. */
static tensor index_of(const struct parts *p, int64_t axis, tensor scores)
{
	tensor i = dnn_virtual(p->g, CUDNN_DATA_INT32, p->scores);
	dnn_index(p->g, axis, scores, i);
	return i;
}

/* The scores where a >= b, elsewhere the number `other`. */
static tensor selected(const struct parts *p, tensor scores, tensor a, tensor b, int64_t other)
{
	struct dnn_graph *g = p->g;
	tensor seen = dnn_virtual(g, CUDNN_DATA_BOOLEAN, p->scores), out = inner(p, p->scores);
	dnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, a, b, NULL, seen);
	dnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, FP32, scores, dnn_number(g, other), seen,
		      out);
	return out;
}

/* Scores of keys in documents before the query's become DNN_HIDDEN_SCORE. */
static tensor in_document(const struct parts *p, tensor scores)
{
	if (!p->documents)
		return scores;
	tensor column = index_of(p, 3, scores),
	       starts = dnn_tensor(p->g, DNN_STARTS, CUDNN_DATA_INT32, p->starts, sizeof(int32_t));
	return selected(p, scores, column, starts, DNN_HIDDEN);
}

/* Scores of keys after the query become -INFINITY. */
static tensor masked(const struct parts *p, tensor scores)
{
	if (!p->causal)
		return scores;
	tensor row = index_of(p, 2, scores), column = index_of(p, 3, scores);
	return selected(p, scores, row, column, DNN_MASKED);
}

void dnn_attention_fwd(struct dnn_graph *g, const struct dnn_attention *a)
{
	const struct parts p = parts_of(g, a);
	tensor q = stored(&p, DNN_Q, p.q), k = stored(&p, DNN_K, dnn_transposed(p.kv)),
	       v = stored(&p, DNN_V, p.kv), o = stored(&p, DNN_O, p.o),
	       stats = dnn_tensor(g, DNN_STATS, FP32, p.stats, NUMBER);
	tensor scores = product(&p, q, k, p.scores);
	scores = on(&p, CUDNN_POINTWISE_MUL, scores, p.scale, p.scores);
	scores = masked(&p, in_document(&p, scores));
	tensor max = reduced(&p, CUDNN_REDUCE_TENSOR_MAX, scores);
	tensor less = on(&p, CUDNN_POINTWISE_SUB, scores, max, p.scores);
	tensor power = on(&p, CUDNN_POINTWISE_EXP, less, NULL, p.scores);
	tensor sum = reduced(&p, CUDNN_REDUCE_TENSOR_ADD, power);
	tensor log = on(&p, CUDNN_POINTWISE_LOG, sum, NULL, p.queries);
	dnn_pointwise(g, CUDNN_POINTWISE_ADD, FP32, max, log, NULL, stats);
	tensor weights = dnn_virtual(g, p.type, p.scores);
	dnn_pointwise(g, CUDNN_POINTWISE_DIV, FP32, power, sum, NULL, weights);
	dnn_matmul(g, weights, v, o);
}

/* out = the transpose of x · rows, summed over the heads of each group if there are groups. */
static void gradient_of_keys(const struct parts *p, tensor x, tensor of_rows, tensor out)
{
	struct dnn_graph *g = p->g;
	struct dnn_extent turned = dnn_dense(p->batch, p->heads, p->k_len, p->q_len);
	turned.stride[2] = 1;
	turned.stride[3] = p->k_len;
	tensor flipped = dnn_virtual(g, p->type, turned);
	dnn_reshape(g, x, flipped);
	if (!p->grouped) {
		dnn_matmul(g, flipped, of_rows, out);
		return;
	}
	tensor each = dnn_virtual(g, p->type, dnn_dense(p->batch, p->heads, p->k_len, p->dim));
	dnn_matmul(g, flipped, of_rows, each);
	dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* The rows of dout * o, summed, times 1 (where a graph with dropout has its factor). */
static tensor sums_of_rows(const struct parts *p, tensor dout, tensor o)
{
	struct dnn_graph *g = p->g;
	struct dnn_extent x = dnn_dense(p->batch, p->heads, p->q_len, p->dim);
	tensor both = on(p, CUDNN_POINTWISE_MUL, dout, o, x);
	tensor sum = reduced(p, CUDNN_REDUCE_TENSOR_ADD, both);
	tensor out = dnn_tensor(g, DNN_SUM, FP32, p->queries, ALIGN);
	dnn_pointwise(g, CUDNN_POINTWISE_MUL, FP32, sum, dnn_number(g, DNN_ONE), NULL, out);
	return out;
}

void dnn_attention_bwd(struct dnn_graph *g, const struct dnn_attention *a)
{
	const struct parts p = parts_of(g, a);
	tensor q = stored(&p, DNN_Q, p.q), k = stored(&p, DNN_K, dnn_transposed(p.kv)),
	       v = stored(&p, DNN_V, dnn_transposed(p.kv)), o = stored(&p, DNN_O, p.o),
	       dout = stored(&p, DNN_DOUT, p.o), dq = stored(&p, DNN_DQ, p.q),
	       dk = stored(&p, DNN_DK, p.kv), dv = stored(&p, DNN_DV, p.kv),
	       stats = dnn_tensor(g, DNN_STATS, FP32, p.stats, NUMBER);
	tensor sum = sums_of_rows(&p, dout, o);
	tensor scores = product(&p, q, k, p.scores);
	scores = on(&p, CUDNN_POINTWISE_MUL, scores, p.scale, p.scores);
	scores = on(&p, CUDNN_POINTWISE_SUB, in_document(&p, scores), stats, p.scores);
	scores = masked(&p, scores);
	tensor weights = on(&p, CUDNN_POINTWISE_EXP, scores, NULL, p.scores);
	gradient_of_keys(&p, weights, dout, dv);
	tensor slope = product(&p, dout, v, p.scores);
	slope = on(&p, CUDNN_POINTWISE_SUB, slope, sum, p.scores);
	slope = on(&p, CUDNN_POINTWISE_MUL, slope, weights, p.scores);
	slope = on(&p, CUDNN_POINTWISE_MUL, slope, p.scale, p.scores);
	gradient_of_keys(&p, slope, q, dk);
	tensor straight = dnn_virtual(g, p.type, p.kv);
	dnn_reshape(g, k, straight);
	if (!a->any_order) {
		dnn_matmul(g, slope, straight, dq);
		return;
	}
	tensor sums = dnn_tensor(g, DNN_DQ_SUMS, FP32, dnn_dense(p.batch, p.heads, p.q_len, p.dim),
				 ALIGN);
	dnn_matmul(g, slope, straight, sums);
	dnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, FP32, sums, NULL, NULL, dq);
}

#endif
