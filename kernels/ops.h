/*
 * ops — the Transformer's operations, one table a backend.
 *
 * Shapes are row-major. Activations and weights have the backend's storage
 * type (`void *` here; fp32 today); statistics, losses, gradients of weights
 * and optimizer state are always fp32 (`float *`). n counts tokens (micro-batch
 * × sequence), b sequences, t tokens of a sequence. "sets" overwrites an
 * output, "adds" accumulates into it. No op allocates or fails: scratch belongs
 * to the kern.
 *
 * The plain backend ("plain", kernels/plain/) is the specification: loops one
 * can read, sums in double. Every other backend is held against it by
 * tests/conform.
 *
 * Each op gives the same bits for the same inputs and the same number of threads.
 *
 * To add an op: (1) a line here with its shapes, (2) its loops in
 * kernels/plain/, (3) its fast form in the other backends, (4) its row in
 * tests/conform/.
 */
#ifndef MUSTER_KERNELS_OPS_H
#define MUSTER_KERNELS_OPS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kern; /* an opened backend: threads, scratch, later a stream. One thread at a time uses it. */

/* How attention sees the fused projection qkv [n, (heads + 2 kv_heads) * dim]:
 * in each row first all q heads, then k, then v. Causal. Query head h uses
 * k/v head h / (heads / kv_heads), so kv_heads divides heads; dim is even. */
enum { ATTN_DIM_MAX = 256 };
struct attn_shape {
	int64_t batch, seq; /* n = batch * seq */
	int heads, kv_heads, dim;
};

/* One slice of the flat parameter buffer for the optimizer. */
struct adamw_args {
	float lr, beta1, beta2, eps, weight_decay;
	float grad_scale;      /* multiplies the gradient first: clipping */
	int64_t step;          /* from 1, for the bias correction */
};

struct ops {
	const char *name;

	/* y[n,out] = x[n,in] · w[out,in]ᵀ + bias[out]; bias may be NULL. Sets y. */
	void (*linear_fwd)(struct kern *k, void *y, const void *x, const void *w, const void *bias,
			   int64_t n, int64_t in, int64_t out);
	/* dx[n,in] = dy · w (sets; NULL to skip). */
	void (*linear_bwd_input)(struct kern *k, void *dx, const void *dy, const void *w,
				 int64_t n, int64_t in, int64_t out);
	/* dw[out,in] += dyᵀ · x; dbias[out] += column sums of dy (NULL to skip). */
	void (*linear_bwd_weight)(struct kern *k, float *dw, float *dbias, const void *dy, const void *x,
				  int64_t n, int64_t in, int64_t out);

	/* sum = x + r when r is not NULL (then sum must not be NULL; sum may be x), else the input is x.
	 * y = (input - mean) * rstd * w + bias. mean, rstd: [n], kept for the backward pass. */
	void (*layernorm_fwd)(struct kern *k, void *y, void *sum, float *mean, float *rstd,
			      const void *x, const void *r, const void *w, const void *bias,
			      int64_t n, int64_t c, float eps);
	/* dx = gradient through the norm + dres (dres may be NULL, may be dx). Adds dw, dbias. x is the norm's input (sum). */
	void (*layernorm_bwd)(struct kern *k, void *dx, float *dw, float *dbias, const void *dy, const void *dres,
			      const void *x, const float *mean, const float *rstd, const void *w,
			      int64_t n, int64_t c);
	/* The same with y = input * rstd * w, rstd = 1/sqrt(mean(input²) + eps). */
	void (*rmsnorm_fwd)(struct kern *k, void *y, void *sum, float *rstd,
			    const void *x, const void *r, const void *w, int64_t n, int64_t c, float eps);
	void (*rmsnorm_bwd)(struct kern *k, void *dx, float *dw, const void *dy, const void *dres,
			    const void *x, const float *rstd, const void *w, int64_t n, int64_t c);

	/* GELU by the tanh formula (GPT-2's). In place allowed. */
	void (*gelu_fwd)(struct kern *k, void *y, const void *x, int64_t count);
	/* dx = dy * gelu'(x); dx may be dy. */
	void (*gelu_bwd)(struct kern *k, void *dx, const void *dy, const void *x, int64_t count);
	/* gu [n, 2f]: gate then up in each row. y[n,f] = silu(gate) * up. */
	void (*swiglu_fwd)(struct kern *k, void *y, const void *gu, int64_t n, int64_t f);
	/* dgu [n, 2f] is set. */
	void (*swiglu_bwd)(struct kern *k, void *dgu, const void *dy, const void *gu, int64_t n, int64_t f);

	/* Rotates q and k inside qkv in place; pairs (i, i + dim/2), angle = pos * theta^(-2i/dim),
	 * pos = the token's place in its sequence. bwd rotates back. */
	void (*rope_fwd)(struct kern *k, void *qkv, const struct attn_shape *s, float theta);
	void (*rope_bwd)(struct kern *k, void *dqkv, const struct attn_shape *s, float theta);

	/* o [n, heads * dim]; lse [batch, heads, seq] = log-sum-exp of the scaled scores. Never stores seq × seq. */
	void (*attention_fwd)(struct kern *k, void *o, float *lse, const void *qkv, const struct attn_shape *s);
	/* dqkv is set. */
	void (*attention_bwd)(struct kern *k, void *dqkv, const void *dout, const void *o, const float *lse,
			      const void *qkv, const struct attn_shape *s);

	/* y[n,c] = wte[token - lo] for tokens in [lo, hi), else 0; + wpe[place in sequence] when wpe is not NULL. Sets y. */
	void (*embed_fwd)(struct kern *k, void *y, const int32_t *tokens, const void *wte, const void *wpe,
			  int64_t batch, int64_t seq, int64_t c, int32_t lo, int32_t hi);
	/* Adds to dwte [hi-lo, c] and dwpe [seq_max, c] (NULL to skip). Same bits for any thread count. */
	void (*embed_bwd)(struct kern *k, float *dwte, float *dwpe, const void *dy, const int32_t *tokens,
			  int64_t batch, int64_t seq, int64_t c, int32_t lo, int32_t hi);

	/* Vocabulary-parallel cross-entropy over this shard's logits [n, v], columns lo … lo + v of the vocabulary.
	 * 1. max[n] = max of the row.   (all-reduce max over tp)
	 * 2. logits = exp(logits - max) in place; sum[n] = row sum; target[n] = (logit - max) of the target when it
	 *    is in this shard, else 0.  (all-reduce sum of both over tp)
	 * 3. logits = (exp / sum - onehot) * scale in place: the gradient. The loss of token i is log(sum) - target. */
	void (*xent_max)(struct kern *k, float *max, const void *logits, int64_t n, int64_t v);
	void (*xent_exp)(struct kern *k, void *logits, float *sum, float *target, const float *max,
			 const int32_t *targets, int64_t n, int64_t v, int32_t lo);
	void (*xent_grad)(struct kern *k, void *logits, const float *sum, const int32_t *targets,
			  float scale, int64_t n, int64_t v, int32_t lo);

	/* y += x (fp32 sum of activations), count elements. */
	void (*add)(struct kern *k, void *y, const void *x, int64_t count);
	/* x[n,c] += bias[c] */
	void (*add_bias)(struct kern *k, void *x, const void *bias, int64_t n, int64_t c);
	/* out[c] += column sums of x[n,c] */
	void (*sum_rows)(struct kern *k, float *out, const void *x, int64_t n, int64_t c);
	/* Sum of squares, in double. */
	double (*sqnorm)(struct kern *k, const float *x, int64_t count);
	/* AdamW (Loshchilov and Hutter, arXiv 1711.05101): decoupled decay p -= lr * weight_decay * p. */
	void (*adamw)(struct kern *k, float *p, const float *g, float *m, float *v, int64_t count,
		      const struct adamw_args *a);
};

/* One list of backends: "plain", "cpu" (later "cuda"). threads >= 1. For tests and measurements also "cpu-v2", "cpu-v3",
 * "cpu-v4", the same built for one level of x86-64 (refused where the processor lacks it), and "plain64": plain on
 * doubles, where every void * and float * of the ops points at doubles. */
int kern_open(const char *backend, int threads, struct kern **out, struct err *e);
void kern_close(struct kern *k);
const struct ops *kern_ops(const struct kern *k);
int kern_threads(const struct kern *k);

/* Memory of the backend's device, zeroed, 64-byte aligned or better; huge pages where they help. */
void *kern_alloc(struct kern *k, size_t bytes);
void kern_free(struct kern *k, void *p);
/* Largest sum of kern_alloc'ed bytes so far. */
size_t kern_peak(const struct kern *k);

/* Square matrix products of size n for about `seconds`: FLOP/s of the fastest one by the backend's own BLAS, with the
 * kern's threads. 0 when there is no memory for the matrices. */
double kern_gemm_flops(struct kern *k, int64_t n, double seconds);

#endif
