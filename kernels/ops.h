/*
 * ops — the interface to the kernels: the operations of a Transformer (ops_table.h lists them), and
 * the backends that implement them.
 *
 * Shapes are row-major; n counts tokens, b sequences. Activations and weights have the backend's
 * storage type (fp32, bf16 or fp16) and are `void *`. Statistics, losses, gradients of weights,
 * tables and optimizer state are fp32 in every storage type (`float *`). Every sum is accumulated
 * in fp32 or wider.
 *
 * In the comments of an op, "sets" means that it overwrites an output, "adds" that it accumulates
 * into it. All arrays are in the backend's memory, which may be a device's, unless the comment says
 * host memory. On a device a call queues the op and returns. No op allocates or fails: scratch
 * belongs to the backend. A row (a token's logits, its hidden layer, the results of its experts)
 * has at most 512 Ki elements.
 *
 * The reference backend (kernels/reference/) is the specification: simple loops with sums in
 * double. tests/conform compares every other backend with it.
 *
 * An op gives the same bits for the same inputs, the same alignment of its arrays and the same
 * number of threads, except after backend_allow_any_order.
 */
#ifndef MUSTER_KERNELS_OPS_H
#define MUSTER_KERNELS_OPS_H

#include "base/err.h"
#include "base/philox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An opened backend: threads and scratch, or a device and its stream. One thread uses it at a
 * time. */
struct backend;
struct backend_graph; /* recorded calls, for backend_graph_replay */

/* --- What ops take ------------------------------------------------------------------------ */

/* Dropout keeps element i of the global tensor if word i % 4 of philox4(key, i / 4), as a number in
 * [0, 1), is at least p. It multiplies the kept elements by 1 / (1 - p) and sets the others to 0.
 * The result does not depend on which part of the tensor an op sees. */
struct dropout {
	struct philox_key key; /* of (seed, PHILOX_DROPOUT, layer and site) */
	float p;               /* in [0, 1); 0 drops nothing and draws nothing */
};

/*
 * Causal attention of one piece of each sequence's queries over one piece of its keys and values.
 * A piece is the whole sequence, or what context parallelism or a KV cache has of it. Query t is at
 * position q_first + t of its sequence, key u at k_first + u, and
 *
 *     t sees u when start <= k_first + u <= q_first + t,   start = starts[b * starts_batch + t], or
 *                                                          0 without starts
 *
 * where start is the position at which the query's document begins.
 *
 * q, k and v point to their first elements, and their rows may have any length: element (b, t, h,
 * i) of q is q[b * q_batch + t * q_row + h * dim + i], and element (b, u, g, i) of k and of v is at
 * b * kv_batch + u * kv_row + g * dim + i. So both separate arrays and the fused projection's rows
 * [heads q | kv_heads k | kv_heads v] are possible. The gradients dq, dk and dv have the layouts of
 * q, k and v. Elements between the rows are neither read nor written.
 */
enum { ATTN_DIM_MAX = 256 };
struct attn_shape {
	int64_t batch;
	int64_t q_len, k_len;
	int64_t q_first, k_first;
	/* of this shard; head h uses k/v head h / (heads / kv_heads); dim is even */
	int heads, kv_heads, dim;
	/* elements from one token's row, and from one sequence, to the next */
	int64_t q_row, q_batch;
	int64_t kv_row, kv_batch;
	int64_t o_batch; /* of o and dout, whose rows have heads * dim elements */

	const int32_t *starts; /* of this piece's queries; NULL: all are 0 */
	int64_t starts_batch;  /* elements from one sequence's starts to the next's */

	/* Dropout of the weights, after the softmax. Weight (b, h, t, u) has the number
	 * ((samples[b] * heads_all + head_first + h) * seq + q_first + t) * seq + k_first + u,
	 * modulo 2^64. */
	struct dropout drop;
	const int64_t *samples; /* [batch] global sample numbers; NULL when nothing is dropped */
	int64_t heads_all, head_first;
	int64_t seq; /* positions of a whole sequence */
};

/* The first `heads` heads of each of n rows are rotated: those of q and k in a fused projection. */
struct rope_shape {
	int64_t n, row; /* row: elements from one token's row to the next */
	int heads, dim;
	int64_t seq; /* rows of the tables; token i of n uses row i % seq */
};

/* A range of parameters that the optimizer updates. Lists of them are in host memory. */
struct update {
	float *p;
	const float *g;
	float *m, *v; /* moments; only AdamW uses v */
	int64_t count;
	float weight_decay;
	/* NULL, or the copy of p in the storage type, which is set too: to the nearest even, or, if
	 * `random`, by fp32_to_storage with this key and the numbers of backend_update_row */
	void *stored;
	bool random;
	struct philox_key key;
	/* p[0] has the number `first`. If gap > 0, p is a part of rows of `row` elements, which
	 * p[0] enters at `column`, and `gap` numbers are left out from each row to the next. */
	uint64_t first;
	int64_t row, column, gap;
};

/* The number of p[i] for random rounding. *count: so many elements of the update from there on have
 * consecutive numbers. */
uint64_t backend_update_row(const struct update *u, int64_t i, int64_t *count);

/*
 * Numbers of 8 bits (Micikevicius et al., arXiv 2209.05433): e4m3 up to 448, without infinity; e5m2
 * up to 57344. A tensor is stored as fp8(scale x), rounded to the nearest even. A number that is
 * too large becomes the largest one; NaN stays NaN, and infinities become NaN, so that a fault is
 * not hidden. Products divide by the scales again.
 *
 * The rows of transposed copies are padded with zeros to a multiple of FP8_ROW numbers, because
 * cuBLASLt has no products of 8 bits whose rows are anything else. A product over padded rows has
 * the same result.
 */
enum fp8 { FP8_E4M3, FP8_E5M2 };
enum { FP8_SCALE_HISTORY = 16, FP8_ROW = 16, FP8_SCALE_ALIGN = 16 };

/* The scale of one tensor, in the backend's memory, at an address that FP8_SCALE_ALIGN divides. The
 * host first sets it to { .scale = 1, .inverse = 1 }. The inverse is the first member, because
 * cuBLASLt reads it, and refuses to launch a product whose scales are not aligned to 16 bytes
 * (cuBLASLt 13.1 on an H200; its documentation does not say so). */
struct fp8_scale {
	float inverse, scale;             /* powers of 2; inverse = 1 / scale */
	float largest;                    /* largest |x| since the last fp8_update_scales */
	float history[FP8_SCALE_HISTORY]; /* the largest |x| of earlier updates */
	int32_t updates;                  /* the next one sets entry updates % FP8_SCALE_HISTORY */
};

/* An operand of fp8_product; the struct itself is in host memory. */
struct fp8_tensor {
	const uint8_t *at;
	const struct fp8_scale *scale;
	enum fp8 format;
	/* of the left operand: the product may be summed with fewer bits, for forward passes */
	bool fast;
	int64_t row; /* numbers from one row to the next; 0: as many as the product's depth */
};

/* The 8-bit copies of a tensor x[n,c] that fp8_cast reads, or that another op computes (the ops named
 * _cast); the struct itself is in host memory. */
struct fp8_copies {
	uint8_t *at, *transposed; /* each may be NULL */
	struct fp8_scale *scale;
	enum fp8 format;
	bool only; /* nobody reads the tensor itself: the op may leave its memory as it is */
	/* of a gradient: the sums of its columns [c], as sum_rows sets or adds them; NULL: they are
	 * not wanted */
	float *sums;
	bool add;
};

struct adamw_args {
	float beta1, beta2, eps;
};

struct sgd_args {
	float momentum;
};

/* The sums of a training step over the ranks and its tokens: the loss, its parts with experts, and
 * the squares of the stored gradients. */
enum { STEP_LOSS, STEP_LOSS_BALANCE, STEP_LOSS_Z, STEP_SQUARES, STEP_SUMS };

/*
 * The numbers of a training step, in the backend's memory. Ops read them there, so that the host
 * need not know them when it queues the ops, and so that a recorded op stays valid. Three parties
 * set them:
 *
 *     the caller, before each step       step, loss_limit, norm_limit, lr
 *     ops and reductions of the step     sums
 *     step_judge, or the caller          the others
 *
 * loss_scale, good and logit_scale are those of this step until step_judge sets those of the next
 * one. There are no gaps between the members.
 */
struct step_numbers {
	int64_t step;                  /* from 1, for the bias correction; skipped steps count */
	double loss_limit, norm_limit; /* a larger loss or norm is a spike; INFINITY: none is */
	float lr;
	float grad_scale;  /* multiplies the stored gradients: clipping / loss_scale */
	int32_t skip;      /* 1: adamw and sgd change nothing */
	float logit_scale; /* loss_scale / tokens, for xent */
	double loss_scale; /* the stored gradients are this times the true ones */
	int64_t good;      /* steps since loss_scale changed */
	double norm;       /* of the true gradients */
	double own_loss;   /* this rank's loss, even if it does not count in sums; the caller's */
	double sums[STEP_SUMS];
};

/* How step_judge judges; in host memory. */
struct step_rule {
	double clip;      /* the largest norm; 0: gradients are not clipped */
	double tokens;    /* of the global batch */
	int64_t window;   /* good steps until loss_scale doubles; 0: it never changes */
	double scale_max; /* loss_scale does not double from here on */
};

/* The loss scale after a step, by the rule of step_judge. *good counts the steps since it changed. */
double backend_next_scale(const struct step_rule *r, double scale, bool finite, int64_t *good);

/* --- The ops ------------------------------------------------------------------------------ */

/* One function pointer per row of ops_table.h. */
struct ops {
	const char *name; /* of the backend, such as "cpu:bf16" */
#define OP(op, operands, form, parameters) void(*op) parameters;
#include "kernels/ops_table.h"
};

/* The rows of ops_table.h. */
enum op_operands { OP_STORED, OP_FP32 };
enum op_form { OP_OWN, OP_HOST, OP_COMPOSED };
struct op_traits {
	const char *name;
	enum op_operands operands;
	enum op_form form;
};
extern const struct op_traits backend_op_traits[]; /* ends with a row whose name is NULL */

/* The name of the first op that `o` lacks; NULL: it has all. */
const char *backend_missing_op(const struct ops *o);

/* --- Backends ----------------------------------------------------------------------------- */

/*
 * The backends are "cpu", "cuda" and "reference". Each stores fp32, or bf16 or
 * fp16 with ":bf16" or ":fp16" after its name. Tests and measurements also use "cpu-v2", "cpu-v3"
 * and "cpu-v4", which are cpu built for one level of x86-64 and are refused where the processor
 * lacks it, and "reference64": the reference on doubles, where every `void *` and `float *` of the
 * ops points to doubles.
 *
 * threads is at least 1; cuda ignores it. On a processor, storage of 2 bytes takes
 * BACKEND_LOW_PRECISION_LANE bytes of scratch per thread from backend_open on, whatever the shapes.
 * backend_peak counts it.
 *
 * cuda is in libmuster-cuda.so, which is beside the running program. device is the index of one of
 * the devices that this process sees; backend_open opens the first one. Other backends ignore it.
 * Opening fails if the backend lacks an op.
 */
enum { BACKEND_LOW_PRECISION_LANE = 16 << 20 };
int backend_open(const char *backend_name, int threads, struct backend **out, struct err *e);
int backend_open_device(const char *backend_name, int threads, int device, struct backend **out,
			struct err *e);
/* A symbol of libmuster-cuda.so, which stays loaded until the process ends. ERR_UNSUPPORTED: there
 * is no such library, or it has no such symbol. */
int backend_cuda_symbol(const char *symbol, void **out, struct err *e);
/* Waits for what is queued. */
void backend_close(struct backend *k);
const struct ops *backend_ops(const struct backend *k);
int backend_threads(const struct backend *k);
/* Bytes of a storage element: 4 or 2 (8 for reference64). */
size_t backend_width(const struct backend *k);

/* Whether fp8 products are faster than others. Where they are not, the ops give the same results
 * slowly. */
bool backend_fp8(const struct backend *k);

/* Whether grouped products with at most `most` rows are as fast with row counts in the backend's
 * memory as with counts in host memory. Where they are not, they work slowly. Groups of
 * BACKEND_GROUP_LARGE rows on average are faster as products of the device's library, which needs
 * the counts on the host. On the host there is no difference. */
enum { BACKEND_GROUP_LARGE = 2048 };
bool backend_counts_groups(const struct backend *k, int64_t most, int groups, int64_t in,
			   int64_t out);

/* What was measured of this device to choose between forms of an op (base/choices.h), in mode
 * CHOICES_FIXED at first. The backend owns it. NULL on the host, which has one form of each op. */
struct choices;
struct choices *backend_choices(struct backend *k);

/* Whether ops may add in any order where that is faster, so that the same call can give other last
 * bits each time. Not allowed at first. Only cuda's attention_bwd uses it. */
void backend_allow_any_order(struct backend *k, bool allowed);

/* Why the device's work is slower than it could be, such as a library that is missing: a sentence
 * for the log. Each is returned once, and is valid until the backend is closed; NULL: nothing
 * new. */
const char *backend_notice(struct backend *k);

/* Square matrix products of size n for about `seconds`: FLOP/s of the fastest one by the backend's
 * own BLAS, with the backend's threads. 0 when there is no memory for the matrices. */
double backend_gemm_flops(struct backend *k, int64_t n, double seconds);

/* --- Memory. On the host, each call below is complete when it returns. -------------------- */

/* Whether the host may read and write the backend's memory, and an op is complete when it
 * returns. */
bool backend_on_host(const struct backend *k);
/* Zeroed memory, aligned to at least 64 bytes (256 on a device), in huge pages where they help.
 * NULL: there is no more. */
void *backend_alloc(struct backend *k, size_t bytes);
/* Frees after the ops and side copies that are queued. */
void backend_free(struct backend *k, void *p);
/* The largest sum of allocated bytes so far. */
size_t backend_peak(const struct backend *k);

/* These run in the order of the ops: zeroing; copying inside the backend's memory, between ranges
 * that do not overlap; and copying from host memory, which may be used again at once. */
void backend_zero(struct backend *k, void *p, size_t bytes);
void backend_copy(struct backend *k, void *to, const void *from, size_t bytes);
void backend_put(struct backend *k, void *to, const void *from, size_t bytes);
/* Copies to host memory after what is queued, and waits for it. Returns the first error of anything
 * that was queued. */
int backend_get(struct backend *k, void *to, const void *from, size_t bytes, struct err *e);
/* Waits for what is queued. Returns the first error of any of it; later calls return it again. */
int backend_sync(struct backend *k, struct err *e);
/* The stream on which ops are queued, for comm_stream; NULL on the host. */
void *backend_stream(struct backend *k);

/* Host memory that the device copies from and to at full speed. NULL: there is none. */
void *backend_host_alloc(struct backend *k, size_t bytes);
void backend_host_free(struct backend *k, void *p);
/* Copies between the backend's memory and that of backend_host_alloc while ops run. A side copy
 * begins after the ops that are queued so far, and side copies run in order. What is queued
 * after backend_side_wait(ticket) begins after that copy. backend_side_await: the host waits
 * until that copy is complete, but not for what was queued after it; it returns the first error
 * as backend_sync does. */
uint64_t backend_side_copy(struct backend *k, void *to, const void *from, size_t bytes);
void backend_side_wait(struct backend *k, uint64_t ticket);
int backend_side_await(struct backend *k, uint64_t ticket, struct err *e);

/* --- Tallies: what numbers are in memory -------------------------------------------------- */

enum number_format { NUMBER_FP32, NUMBER_BF16, NUMBER_FP16 };

/* With the bits of number i of a tensor as an integer x[i], all modulo 2^64: sum is that of x[i],
 * weighted that of (i + 1) x[i]. Tensors that differ in one or two numbers have different sums, and
 * any others almost surely do. bad counts the numbers that are NaN or infinite. */
struct tally {
	uint64_t sum, weighted, bad;
};
/* Adds the tally of x[count], which begins with number `first` of its tensor, to *t. Both are in
 * the backend's memory. Queued like an op. */
void backend_tally(struct backend *k, struct tally *t, const void *x, int64_t count,
		   enum number_format format, uint64_t first);
/* backend_tally of host memory, with at most so many threads. */
void backend_tally_host(struct tally *t, const void *x, int64_t count, enum number_format format,
			uint64_t first, int threads);
/* The format of the backend's storage type. Not for reference64. */
enum number_format backend_format(const struct backend *k);
/* The instruction set of the backend's ops, such as "v3" or "sm_90". Two that differ may round
 * differently. */
const char *backend_isa(const struct backend *k);

/* --- Graphs: recorded calls --------------------------------------------------------------- */

/*
 * Between backend_graph_begin and backend_graph_end, ops, backend_copy and backend_zero are
 * recorded instead of run. backend_graph_replay queues them all, any number of times, with the
 * arguments of the recording; what these point to on the host was read then. Between the two no
 * other function of the backend may be called, backend_alloc and backend_free included. The same
 * calls must have run once before, so that whatever is created on first use exists. A graph must be
 * freed before its backend is closed. When backend_graph_end fails, nothing has run, and the caller
 * continues without a graph.
 */
/* false: this backend does not record, so continue without a graph; or it has failed, as backend_get
 * reports. */
bool backend_graph_begin(struct backend *k);
int backend_graph_end(struct backend *k, struct backend_graph **out, struct err *e);
void backend_graph_replay(struct backend *k, struct backend_graph *t);
void backend_graph_free(struct backend *k, struct backend_graph *t); /* NULL is allowed */

#endif
