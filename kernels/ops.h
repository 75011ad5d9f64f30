/*
 * ops — the Transformer's operations, one table a backend.
 *
 * Shapes are row-major. Activations and weights have the backend's storage type (`void *` here: fp32,
 * bf16 or fp16); statistics, losses, gradients of weights, tables and optimizer state are always
 * fp32 (`float *`), and every sum is accumulated in fp32 or wider. n counts tokens, b sequences.
 * "sets" overwrites an output, "adds" accumulates into it. All arrays lie in the backend's memory,
 * which may be a device's, unless "host" is said. On a device a call queues the op and returns. No
 * op allocates or fails: scratch belongs to the backend. A row (a token's logits, its ffn, what its
 * experts give) has at most 512 Ki elements.
 *
 * The plain backend ("plain", kernels/reference/) is the specification: loops one
 * can read, sums in double. Every other backend is held against it by
 * tests/conform.
 *
 * Each op gives the same bits for the same inputs, the same alignment of its arrays and the same
 * number of threads.
 *
 * To add an op: (1) a line here with its shapes, (2) its loops in
 * kernels/reference/, (3) its fast form in the other backends, (4) its row in
 * tests/conform/.
 */
#ifndef MUSTER_KERNELS_OPS_H
#define MUSTER_KERNELS_OPS_H

#include "base/err.h"
#include "base/philox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* an opened backend: threads and scratch, or a device and its stream. One thread at a time uses
 * it. */
struct backend;
struct backend_tape; /* calls that were noted, for backend_replay */

/* Dropout: element i of the global tensor is kept when word i % 4 of philox4(key, i / 4), as a
 * number in [0, 1), is at least p. Kept ones are multiplied by 1 / (1 - p), the others become 0.
 * The same whatever part of the tensor an op sees. */
struct dropout {
	struct philox_key key; /* of (seed, PHILOX_DROPOUT, layer and site) */
	float p;               /* in [0, 1); 0: nothing is dropped, nothing is drawn */
};

/*
 * Causal attention of one piece of each sequence's queries over one piece of its keys and values:
 * the whole of both, or what context parallelism and a KV cache have of them. Query t stands at
 * position q_first + t of its sequence, key u at k_first + u, and
 *
 *     t sees u when start <= k_first + u <= q_first + t,   start = starts[b * starts_batch + t], or
 *                                                          0 without starts
 *
 * where start is the position at which the query's document begins.
 *
 * q, k and v are given by their first element, with rows of any length: element (b, t, h, i) of q
 * is q[b * q_batch + t * q_row + h * dim + i], and (b, u, g, i) of k and of v is at b * kv_batch +
 * u * kv_row + g * dim + i. Separate arrays or parts of the fused projection's rows [heads q |
 * kv_heads k | kv_heads v] both fit. The gradients dq, dk, dv lie as q, k, v do. What lies between
 * rows is neither read nor written.
 */
enum { ATTN_DIM_MAX = 256 };
struct attn_shape {
	int64_t batch;
	int64_t q_len, k_len;
	int64_t q_first, k_first;
	/* of this shard; head h uses k/v head h / (heads / kv_heads), dim is even */
	int heads, kv_heads, dim;
	/* elements from a token's row, and from a sequence, to the next */
	int64_t q_row, q_batch;
	int64_t kv_row, kv_batch;
	int64_t o_batch; /* the same of o and dout; their rows are heads * dim long */

	const int32_t *starts; /* of this piece's queries; NULL: all 0 */
	int64_t starts_batch;  /* elements from a sequence's starts to the next's */

	/* Of the weights, after the softmax. Weight (b, h, t, u) has the number ((samples[b] *
	 * heads_all + head_first + h) * seq + q_first + t) * seq + k_first + u, modulo 2^64. */
	struct dropout drop;
	const int64_t *samples; /* [batch] global sample numbers; NULL when nothing is dropped */
	int64_t heads_all, head_first;
	int64_t seq; /* positions of a whole sequence */
};

/* The first `heads` heads of each of n rows rotate: those of q and k in a fused projection. */
struct rope_shape {
	int64_t n, row; /* row: elements from one token's row to the next */
	int heads, dim;
	int64_t seq; /* rows of the tables; token i of n uses row i % seq */
};

/* A stretch of parameters that the optimizer updates. Lists of them are the host's. */
struct update {
	float *p;
	const float *g;
	float *m, *v; /* moments; v: adamw's alone */
	int64_t count;
	float weight_decay;
	/* NULL, or the storage form of p, which is set too: rounded to the nearest even, or, when
	 * `random`, as `narrow` does with this key and first. */
	void *stored;
	bool random;
	struct philox_key key;
	uint64_t first;
};

/*
 * Numbers of 8 bits (Micikevicius et al., arXiv 2209.05433): e4m3 up to 448, without infinity; e5m2
 * up to 57344. A tensor is stored as fp8(scale x), rounded to the nearest even; what is too large
 * becomes the largest, NaN stays. Products divide by the scales again.
 */
enum fp8 { FP8_E4M3, FP8_E5M2 };
enum { SCALE8_HISTORY = 16 };

/* Of one tensor, in the backend's memory. At first the host puts { .scale = 1, .inverse = 1 }. */
struct scale8 {
	float scale, inverse;          /* powers of 2; 1 / scale */
	float largest;                 /* |x| met since the last scale8_update */
	float history[SCALE8_HISTORY]; /* those of the updates before */
	int32_t updates;               /* whose entry is next: updates % SCALE8_HISTORY */
};

/* A matrix as products read it; a host's struct. */
struct tensor8 {
	const uint8_t *at;
	const struct scale8 *scale;
	enum fp8 format;
};

struct adamw_args {
	float lr, beta1, beta2, eps;
	float grad_scale; /* multiplies the gradient first: clipping */
	int64_t step;     /* from 1, for the bias correction */
};

struct sgd_args {
	float lr, momentum;
	float grad_scale;
	int64_t step; /* from 1 */
};

struct ops {
	const char *name;

	/* y[n,out] = x[n,in] · w[out,in]ᵀ + bias[out]; bias may be NULL. Sets y. */
	void (*linear_fwd)(struct backend *k, void *y, const void *x, const void *w,
			   const void *bias, int64_t n, int64_t in, int64_t out);
	/* dx[n,in] = dy · w (sets; NULL to skip). */
	void (*linear_bwd_input)(struct backend *k, void *dx, const void *dy, const void *w,
				 int64_t n, int64_t in, int64_t out);
	/* dw[out,in] += dyᵀ · x; dbias[out] += column sums of dy (NULL to skip). */
	void (*linear_bwd_weight)(struct backend *k, float *dw, float *dbias, const void *dy,
				  const void *x, int64_t n, int64_t in, int64_t out);

	/* GELU fused with the product before it: pre[n,out] = x · wᵀ + bias (bias may be NULL),
	 * y = gelu(pre). Sets both. */
	void (*linear_gelu_fwd)(struct backend *k, void *y, void *pre, const void *x, const void *w,
				const void *bias, int64_t n, int64_t in, int64_t out);
	/* And with that after it, going back: dpre[n,in] = (dy[n,out] · w[out,in]) *
	 * gelu'(pre[n,in]). Sets dpre. */
	void (*linear_gelu_bwd)(struct backend *k, void *dpre, const void *dy, const void *w,
				const void *pre, int64_t n, int64_t in, int64_t out);
	/* Grouped products, linear_fwd, _bwd_input and _bwd_weight of each group: group i has
	 * rows[i] (host) rows of x and y, one group behind the other, and its weights begin at
	 * element i * stride of w, of dw. */
	void (*grouped_fwd)(struct backend *k, void *y, const void *x, const void *w,
			    int64_t stride, const int64_t *rows, int groups, int64_t in,
			    int64_t out);
	void (*grouped_bwd_input)(struct backend *k, void *dx, const void *dy, const void *w,
				  int64_t stride, const int64_t *rows, int groups, int64_t in,
				  int64_t out);
	void (*grouped_bwd_weight)(struct backend *k, float *dw, int64_t stride, const void *dy,
				   const void *x, const int64_t *rows, int groups, int64_t in,
				   int64_t out);

	/* Linear layers in 8 bits. cast8: y[n,c] = fp8(scale x[n,c]) and turned[c,n] the same
	 * turned; either may be NULL, both: only s->largest becomes the largest |x| if that is
	 * larger, as it does with all. */
	void (*cast8)(struct backend *k, uint8_t *y, uint8_t *turned, struct scale8 *s,
		      const void *x, enum fp8 format, int64_t n, int64_t c);
	/* d[m,n] = left[m,k] · right[n,k]ᵀ + bias[n] (NULL: none), sums in fp32; or single: d is
	 * fp32 and added to, without bias. Not both of left and right are e5m2. With turned copies
	 * that is linear_fwd (x, w), _bwd_input (dy, wᵀ) and _bwd_weight (dyᵀ, xᵀ; single). */
	void (*product8)(struct backend *k, void *d, const struct tensor8 *left,
			 const struct tensor8 *right, const void *bias, bool single, int64_t m,
			 int64_t n, int64_t depth);
	/* Each of n scales becomes the largest power of 2 with which the largest |x| of the last
	 * `steps` updates fits `format`, `spare` powers below: steps 1 takes the last alone
	 * (current scaling), up to SCALE8_HISTORY (delayed scaling). It stays where that is 0 or
	 * not finite. largest begins at 0 again. */
	void (*scale8_update)(struct backend *k, struct scale8 *s, int64_t n, enum fp8 format,
			      int steps, int spare);

	/* sum = x + r when r is not NULL (then sum must not be NULL; sum may be x), else the input
	 * is x. y = (input - mean) * rstd * w + bias. mean, rstd: [n], kept for the backward pass.
	 */
	void (*layernorm_fwd)(struct backend *k, void *y, void *sum, float *mean, float *rstd,
			      const void *x, const void *r, const void *w, const void *bias,
			      int64_t n, int64_t c, float eps);
	/* dx = gradient through the norm + dres (dres may be NULL, may be dx). Adds dw, dbias. x
	 * is the norm's input (sum). */
	void (*layernorm_bwd)(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			      const void *dres, const void *x, const float *mean, const float *rstd,
			      const void *w, int64_t n, int64_t c);
	/* The same with y = input * rstd * w, rstd = 1/sqrt(mean(input²) + eps). */
	void (*rmsnorm_fwd)(struct backend *k, void *y, void *sum, float *rstd, const void *x,
			    const void *r, const void *w, int64_t n, int64_t c, float eps);
	void (*rmsnorm_bwd)(struct backend *k, void *dx, float *dw, const void *dy,
			    const void *dres, const void *x, const float *rstd, const void *w,
			    int64_t n, int64_t c);

	/* GELU by the tanh formula (GPT-2's). In place allowed. */
	void (*gelu_fwd)(struct backend *k, void *y, const void *x, int64_t count);
	/* dx = dy * gelu'(x); dx may be dy. */
	void (*gelu_bwd)(struct backend *k, void *dx, const void *dy, const void *x, int64_t count);
	/* gu [n, 2f]: gate then up in each row. y[n,f] = silu(gate) * up. */
	void (*swiglu_fwd)(struct backend *k, void *y, const void *gu, int64_t n, int64_t f);
	/* dgu [n, 2f] is set. */
	void (*swiglu_bwd)(struct backend *k, void *dgu, const void *dy, const void *gu, int64_t n,
			   int64_t f);

	/* Rotates in place the pairs (i, i + dim/2) of each head by the angle whose cos and sin are
	 * in the tables [seq, dim/2]. bwd rotates back. */
	void (*rope_fwd)(struct backend *k, void *x, const struct rope_shape *s, const float *cos,
			 const float *sin);
	void (*rope_bwd)(struct backend *k, void *dx, const struct rope_shape *s, const float *cos,
			 const float *sin);

	/* o [batch, q_len, heads * dim]; lse [batch, heads, q_len] = log-sum-exp of the scaled
	 * scores, -INFINITY (and o 0) for a query that sees no key. Never stores q_len × k_len. */
	void (*attention_fwd)(struct backend *k, void *o, float *lse, const void *q,
			      const void *key, const void *v, const struct attn_shape *s);
	/* Joins two results over different keys, o and o2 laid out alike (o_batch): o, lse become
	 * those over both, by their log-sum-exps (Liu, Zaharia, Abbeel, arXiv 2310.01889). */
	void (*attention_merge)(struct backend *k, void *o, float *lse, const void *o2,
				const float *lse2, const struct attn_shape *s);
	/* o, lse: of the merged whole, over all keys. add: dq, dk, dv are added to, else set (to
	 * 0 where nothing is seen). */
	void (*attention_bwd)(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			      const void *o, const float *lse, const void *q, const void *key,
			      const void *v, const struct attn_shape *s, bool add);

	/* y[n,c] = wte[token - lo] for tokens in [lo, hi), else 0; + wpe[positions[i]] when wpe
	 * is not NULL. Sets y. */
	void (*embed_fwd)(struct backend *k, void *y, const int32_t *tokens,
			  const int32_t *positions, const void *wte, const void *wpe, int64_t n,
			  int64_t c, int32_t lo, int32_t hi);
	/* Adds to dwte [hi-lo, c] and dwpe [positions, c] (NULL to skip). Same bits for any
	 * thread count. */
	void (*embed_bwd)(struct backend *k, float *dwte, float *dwpe, const void *dy,
			  const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c,
			  int32_t lo, int32_t hi);

	/* y[i,c] = dropped x; row i is row rows[i] of the global tensor [., c], whose element
	 * numbers count. y may be x. Forward and backward are the same. */
	void (*dropout)(struct backend *k, void *y, const void *x, const int64_t *rows, int64_t n,
			int64_t c, const struct dropout *d);

	/* Mixture of experts. The router's logits [n, e] are fp32. */
	/* probs [n,e] = softmax(logits). chosen [n,top]: the largest, in falling order, the lower
	 * index first among equals. weights [n,top]: before: their probs; else the softmax over the
	 * chosen logits alone. lse [n]: log-sum-exp of the logits. */
	void (*route_fwd)(struct backend *k, int32_t *chosen, float *weights, float *probs,
			  float *lse, const float *logits, int64_t n, int64_t e, int64_t top,
			  bool before);
	/* dlogits [n,e] is set: from dweights [n,top]; + aux[j] * d(sum over tokens of probs[., j])
	 * (aux [e], NULL: none); + z * 2 lse[i] probs[i,.] (the z-loss, the sum over tokens of
	 * lse²). */
	void (*route_bwd)(struct backend *k, float *dlogits, const float *dweights,
			  const int32_t *chosen, const float *weights, const float *probs,
			  const float *lse, const float *aux, float z, int64_t n, int64_t e,
			  int64_t top, bool before);
	/* choices [pieces, e] is set: how often the tokens of each piece chose each expert;
	 * `length` tokens a piece, n in all. */
	void (*route_count)(struct backend *k, int64_t *choices, const int32_t *chosen, int64_t n,
			    int64_t e, int64_t top, int64_t length);
	/* at[n,top] is set: 0 where kept, -1 where the choice, counted in order of tokens, goes
	 * beyond `most` of its expert in its piece. before [pieces, e]: choices that count as taken
	 * already; NULL: none. */
	void (*route_drop)(struct backend *k, int64_t *at, const int32_t *chosen,
			   const int64_t *before, int64_t n, int64_t e, int64_t top, int64_t length,
			   int64_t most);
	/* Rows by expert, within one by token. counts [e] is set to the choices kept; at[n,top]
	 * becomes the row of each choice, those < 0 stay; from[row] the token of each row, set for
	 * the rows that there are. */
	void (*route_place)(struct backend *k, int64_t *counts, int64_t *at, int64_t *from,
			    const int32_t *chosen, int64_t n, int64_t e, int64_t top);
	/* *loss += aux * sum over t, x of load[t / seq, x] probs[t,x] + z * sum over t of
	 * lse[t]²; in double. */
	void (*route_loss)(struct backend *k, double *loss, const float *load, const float *probs,
			   const float *lse, int64_t n, int64_t e, int64_t seq, double aux,
			   double z);
	/* y[i] = x[from[i]] for i of n; from < 0: zeros. */
	void (*gather_rows)(struct backend *k, void *y, const void *x, const int64_t *from,
			    int64_t n, int64_t c);
	/* y[i y_row + j] = x[i x_row + j] for i of n, j of c: a block of columns. */
	void (*copy_rows)(struct backend *k, void *y, int64_t y_row, const void *x, int64_t x_row,
			  int64_t n, int64_t c);
	/* y[i] = sum over j of top of weights[i,j] * x[at[i,j]]; at < 0: dropped, counts as
	 * zero. weights NULL: all 1. Sets y. */
	void (*combine_fwd)(struct backend *k, void *y, const void *x, const int64_t *at,
			    const float *weights, int64_t n, int64_t top, int64_t c);
	/* dx[at[i,j]] = weights[i,j] * dy[i] (each row of dx is met once at most; what is not met
	 * stays); dweights[i,j] = dy[i] · x[at[i,j]], 0 when dropped (NULL to skip, with x).
	 * weights NULL: all 1. */
	void (*combine_bwd)(struct backend *k, void *dx, float *dweights, const void *dy,
			    const void *x, const int64_t *at, const float *weights, int64_t n,
			    int64_t top, int64_t c);

	/* Vocabulary-parallel cross-entropy over this shard's logits [n, v], columns lo … lo + v of
	 * the vocabulary.
	 * 1. max[n] = max of the row.   (all-reduce max over tp)
	 * 2. logits = exp(logits - max) in place; sum[n] = row sum; target[n] = (logit - max) of
	 *    the target when it
	 *    is in this shard, else 0.  (all-reduce sum of both over tp)
	 * 3. logits = (exp / sum - onehot) * scale in place: the gradient. The loss of token i is
	 *    log(sum) - target. */
	void (*xent_max)(struct backend *k, float *max, const void *logits, int64_t n, int64_t v);
	void (*xent_exp)(struct backend *k, void *logits, float *sum, float *target,
			 const float *max, const int32_t *targets, int64_t n, int64_t v,
			 int32_t lo);
	void (*xent_grad)(struct backend *k, void *logits, const float *sum, const int32_t *targets,
			  float scale, int64_t n, int64_t v, int32_t lo);
	/* The three steps in one, for a shard that holds the whole vocabulary: sum and target as
	 * step 2 sets them, logits become the gradient. */
	void (*xent)(struct backend *k, void *logits, float *sum, float *target,
		     const int32_t *targets, float scale, int64_t n, int64_t v);
	/* *loss += the sum over i of log(sum[i]) - target[i], in double. */
	void (*xent_loss)(struct backend *k, double *loss, const float *sum, const float *target,
			  int64_t n);

	/* y += x (fp32 sum of activations), count elements. */
	void (*add)(struct backend *k, void *y, const void *x, int64_t count);
	/* x[n,c] += bias[c] */
	void (*add_bias)(struct backend *k, void *x, const void *bias, int64_t n, int64_t c);
	/* out[c] += column sums of x[n,c] */
	void (*sum_rows)(struct backend *k, float *out, const void *x, int64_t n, int64_t c);
	/* y += x, fp32 */
	void (*accumulate)(struct backend *k, float *y, const float *x, int64_t count);
	/* Between the storage type and fp32. Narrowing rounds to the nearest even, or, with a key,
	 * at random in proportion (element first + i of the key's stream decides; Gupta et al.,
	 * arXiv 1502.02551). */
	void (*widen)(struct backend *k, float *y, const void *x, int64_t count);
	void (*narrow)(struct backend *k, void *y, const float *x, int64_t count,
		       const struct philox_key *key, uint64_t first);
	/* *sum += the sum of squares, in double; not finite when an element is not. */
	void (*sqnorm)(struct backend *k, double *sum, const float *x, int64_t count);
	/* AdamW (Loshchilov and Hutter, arXiv 1711.05101): decoupled decay p -= lr *
	 * weight_decay * p. n updates, which share nothing. */
	void (*adamw)(struct backend *k, const struct update *u, int n, const struct adamw_args *a);
	/* SGD with momentum (PyTorch's form): g' = scale g + decay p; m = momentum m + g' (m =
	 * g' at step 1); p -= lr m. */
	void (*sgd)(struct backend *k, const struct update *u, int n, const struct sgd_args *a);
};

/* One list of backends: "plain", "cpu", "cuda", each in storage fp32, or with ":bf16" or ":fp16"
 * behind its name in that one. threads >= 1; of cuda they do not count. Storage of 2 bytes on a
 * processor takes BACKEND_NARROW_LANE bytes of scratch a thread, from backend_open on, whatever the
 * shapes; backend_peak counts it. For tests and measurements also "cpu-v2", "cpu-v3", "cpu-v4", the
 * same built for one level of x86-64 (refused where the processor lacks it), and "plain64": plain
 * on doubles, where every void * and float * of the ops points at doubles.
 *
 * cuda is in libmuster-cuda.so, which lies beside the running program. device: which of the devices
 * that this process sees; backend_open takes the first. Processors have no devices. */
enum { BACKEND_NARROW_LANE = 16 << 20 };
int backend_open(const char *backend_name, int threads, struct backend **out, struct err *e);
int backend_open_device(const char *backend_name, int threads, int device, struct backend **out,
			struct err *e);
/* A symbol of that library, which stays loaded until the process ends. ERR_UNSUPPORTED: the one
 * or the other is not there. */
int backend_cuda_symbol(const char *symbol, void **out, struct err *e);
/* Waits for what is queued. */
void backend_close(struct backend *k);
const struct ops *backend_ops(const struct backend *k);
int backend_threads(const struct backend *k);
/* Bytes of a storage element: 4 or 2 (8 of plain64). */
size_t backend_width(const struct backend *k);

/* Whether products in 8 bits are faster than others; where not, the ops give the same results
 * slowly. */
bool backend_fp8(const struct backend *k);

/* --- Memory. On the host it is plain memory and everything below is done when it returns. --- */

/* Whether the host may read and write the backend's memory itself, and an op is done when it
 * returns. */
bool backend_on_host(const struct backend *k);
/* The backend's memory, zeroed, 64-byte aligned or better (256 on a device); huge pages where they
 * help. NULL: there is no more. */
void *backend_alloc(struct backend *k, size_t bytes);
/* After the ops and side copies that are queued. */
void backend_free(struct backend *k, void *p);
/* Largest sum of backend_alloc'ed bytes so far. */
size_t backend_peak(const struct backend *k);

/* In the order of the ops: zeros; a copy inside the backend's memory, of parts that do not overlap; a
 * copy from the host's memory, which may be used again at once. */
void backend_zero(struct backend *k, void *p, size_t bytes);
void backend_copy(struct backend *k, void *to, const void *from, size_t bytes);
void backend_put(struct backend *k, void *to, const void *from, size_t bytes);
/* A copy to the host's memory after what is queued, for which it waits. The first error of
 * anything that was queued. */
int backend_get(struct backend *k, void *to, const void *from, size_t bytes, struct err *e);
/* Waits for what is queued. The first error of any of it; an error stays. */
int backend_sync(struct backend *k, struct err *e);
/* The stream on which ops are queued, for comm_stream; NULL on the host. */
void *backend_stream(struct backend *k);

/* Memory of the host from and to which the device copies at full speed. NULL: there is none. */
void *backend_host_alloc(struct backend *k, size_t bytes);
void backend_host_free(struct backend *k, void *p);
/* Copies beside the ops, between the backend's memory and that of backend_host_alloc, in order among
 * themselves. One begins after the ops queued so far. Its ticket is for backend_side_wait: what is
 * queued after that comes after the copy. */
uint64_t backend_side_copy(struct backend *k, void *to, const void *from, size_t bytes);
void backend_side_wait(struct backend *k, uint64_t ticket);

/* Ops, backend_copy and backend_zero between backend_record and backend_recorded are noted instead
 * of carried out; backend_replay queues them all, any number of times, with the arguments of then
 * (what they point at on the host was read then). No other call of the backend, and no backend_alloc
 * or backend_free, between the two; and the same calls were carried out once before, which makes
 * what is made once only. A tape ends before its backend does. When backend_recorded fails nothing was
 * carried out, and the caller goes on without. */
bool backend_record(struct backend *k); /* false: this backend does not record; carry on without */
int backend_recorded(struct backend *k, struct backend_tape **out, struct err *e);
void backend_replay(struct backend *k, struct backend_tape *t);
void backend_graph_free(struct backend *k, struct backend_tape *t); /* takes NULL */

/* Square matrix products of size n for about `seconds`: FLOP/s of the fastest one by the backend's
 * own BLAS, with the backend's threads. 0 when there is no memory for the matrices. */
double backend_gemm_flops(struct backend *k, int64_t n, double seconds);

#endif
