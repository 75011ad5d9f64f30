/*
 * dnn_attention — attention as cuDNN's operation graphs.
 *
 * cuDNN has no descriptor of its own for causal attention with a backward pass (the SDPA operations
 * of 9.13 to 9.20 have no mask). Its engines recognize a pattern of products, pointwise operations
 * and reductions, and run it as one kernel forward, and a few backward. The pattern is that of
 * cudnn-frontend 1.x: nodes CompositeSDPANode, CompositeSDPABackwardNode, CompositeSoftmaxNode and
 * CompositeDiagonalBandMaskNode (include/cudnn_frontend/node/). The order of operations, the types
 * and the shapes of tensors are part of it.
 *
 *     s = q · kᵀ * scale;  s = column >= starts[row] ? s : hidden;  s = row >= column ? s : -inf
 *     stats = max(s) + log(sum(exp(s - max)));  o = exp(s - max) / sum · v
 *
 * The first of the two masks is there if the sequences hold documents (a->s->starts). It is where
 * cudnn-frontend has a score modifier, and reads the starts where they are: nothing is built from
 * them, their number is not bounded, and a recorded graph follows them. hidden is finite, because
 * an engine goes through a row's keys tile by tile, and all of a tile may be in other documents:
 * exp(s - max) must not become exp(-inf + inf). Each row sees itself, so its maximum ends far
 * above hidden, and the sums over such tiles are multiplied by exp(hidden - max) = 0.
 *
 * stats is the log-sum-exp of the scaled scores, natural logarithm, in fp32, which is attn_shape's
 * lse; so each pass may run by cuDNN or by muster's own kernels.
 *
 *     p = exp(s - stats), sum = rows of (dout * o),  ds = p * (dout · vᵀ - sum) * scale
 *     dv = pᵀ · dout,  dk = dsᵀ · q,  dq = ds · k;  dk and dv are summed over the heads of a group
 *
 * The pattern has two forms. In the deterministic one dq is the output of the last product, for which
 * the engines keep ds in memory. In the other one (a->any_order) that product goes to an fp32 tensor
 * in memory, to which blocks add their parts in any order, and dq is a copy of it. The caller sets
 * that tensor to zero: whether the engines do was not seen on a GPU. cuDNN 9.19 has the same engines for both forms, none of which has the note
 * NONDETERMINISTIC: the form alone decides.
 */
#ifndef MUSTER_KERNELS_CUDA_DNN_ATTENTION_H
#define MUSTER_KERNELS_CUDA_DNN_ATTENTION_H

#include "kernels/cuda/dnn.h"

#ifdef HAVE_CUDNN

#include "base/attention_room.h"
#include "kernels/ops.h"

/* The numbers of the tensors in a variant pack. */
enum dnn_attention_tensor {
	DNN_Q = 1,
	DNN_K,
	DNN_V,
	DNN_O,
	DNN_STATS,   /* fp32 [batch, heads, q_len] */
	DNN_SCALE,   /* fp32 in host memory: 1 / sqrt(dim) */
	DNN_MASKED,  /* fp32 in host memory: -INFINITY */
	DNN_STARTS,  /* int32 [batch, 1, q_len]: attn_shape's starts */
	DNN_HIDDEN,  /* fp32 in host memory: DNN_HIDDEN_SCORE */
	DNN_FORWARD, /* the number of tensors of a forward pass, plus 1 */
	DNN_DOUT = DNN_FORWARD,
	DNN_DQ,
	DNN_DK,
	DNN_DV,
	DNN_SUM,     /* fp32 [batch, heads, q_len], which the backward pass uses as memory */
	DNN_ONE,     /* fp32 in host memory: 1 */
	DNN_DQ_SUMS, /* fp32 [batch, heads, q_len, dim], likewise, with any_order */
	DNN_BACKWARD
};

#define DNN_HIDDEN_SCORE (-1e30f)

/* A pass over a piece of s, whose tensors have the strides of s. DNN_SUM and DNN_DQ_SUMS have no
 * gaps. */
struct dnn_attention {
	const struct attn_shape *s;
	struct attention_piece piece;
	bool causal;          /* otherwise each query sees all keys, and s has no starts */
	cudnnDataType_t type; /* CUDNN_DATA_BFLOAT16 or CUDNN_DATA_HALF */
	bool any_order;       /* backward: dq may be added up in any order */
};

void dnn_attention_fwd(struct dnn_graph *g, const struct dnn_attention *a);
void dnn_attention_bwd(struct dnn_graph *g, const struct dnn_attention *a);

#endif /* HAVE_CUDNN */

#endif
