#include "agent/tools/bench_ops.h"

#include "agent/tools/rank_job.h"
#include "base/clock.h"
#include "kernels/ops.h"

#include <stdlib.h>

/* Operands follow one another through ARENA bytes of each kind of memory, and then begin again. So
 * they come partly from beyond the caches, as in a training step: the weights, gradients and
 * activations of even a small model are about 100 MB. */
enum { ARENA = 24 << 20, ALIGN = 4096, TOKENS = 8192, ROPE_DIM = 32, BATCHES_MAX = 512 };

/* A batch of calls takes at least so many seconds, so that clocks and barriers are negligible. */
#define BATCH_SECONDS 5e-4

/* Inputs are never written, so their numbers stay small: infinite and subnormal numbers, which
 * training does not produce, can take longer. */
enum arena { INPUT, OUTPUT, INPUT_FP32, OUTPUT_FP32, ARENAS };

struct rig {
	struct backend *backend;
	const struct ops *ops;
	int64_t width;
	char *arenas[ARENAS];
	size_t at[ARENAS];
	int32_t ids[TOKENS];
	float cos[TOKENS * ROPE_DIM / 2], sin[TOKENS * ROPE_DIM / 2]; /* of angle 0 */
	double sum; /* so that the results are used */
};

/* The next n elements of an arena, in the storage type or fp32. */
static void *next_array(struct rig *r, enum arena a, int64_t n)
{
	size_t width = a < INPUT_FP32 ? (size_t)r->width : sizeof(float),
	       size = ((size_t)n * width + ALIGN - 1) / ALIGN * ALIGN;
	if (r->at[a] + size > ARENA)
		r->at[a] = 0;
	void *p = r->arenas[a] + r->at[a];
	r->at[a] += size;
	return p;
}

static const void *in(struct rig *r, int64_t n)
{
	return next_array(r, INPUT, n);
}

static void *out(struct rig *r, int64_t n)
{
	return next_array(r, OUTPUT, n);
}

static const float *in32(struct rig *r, int64_t n)
{
	return next_array(r, INPUT_FP32, n);
}

static float *out32(struct rig *r, int64_t n)
{
	return next_array(r, OUTPUT_FP32, n);
}

/* --- The operations; each returns its work ------------------------------------------------ */

/* d: tokens, in, out; for attention: heads, dim, length; for others: rows, columns. */
typedef double run_fn(struct rig *r, const int64_t *d);

static double run_product_fwd(struct rig *r, const int64_t *d)
{
	r->ops->linear_fwd(r->backend, out(r, d[0] * d[2]), in(r, d[0] * d[1]), in(r, d[1] * d[2]),
			   NULL, d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double run_product_input(struct rig *r, const int64_t *d)
{
	r->ops->linear_bwd_input(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[2]),
				 in(r, d[1] * d[2]), d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double run_product_weight(struct rig *r, const int64_t *d)
{
	r->ops->linear_bwd_weight(r->backend, out32(r, d[1] * d[2]), NULL, in(r, d[0] * d[2]),
				  in(r, d[0] * d[1]), d[0], d[1], d[2], true);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static struct attn_shape attention_of(const int64_t *d)
{
	int64_t row = 3 * d[0] * d[1];
	return (struct attn_shape){
		.batch = 1,
		.q_len = d[2],
		.k_len = d[2],
		.heads = (int)d[0],
		.kv_heads = (int)d[0],
		.dim = (int)d[1],
		.q_row = row,
		.q_batch = row * d[2],
		.kv_row = row,
		.kv_batch = row * d[2],
		.o_batch = d[0] * d[1] * d[2],
		.heads_all = d[0],
		.seq = d[2],
	};
}

static double attention_flops(const int64_t *d)
{
	return 4.0 * (double)(d[0] * d[1]) * (double)(d[2] * (d[2] + 1) / 2);
}

static double run_attention_fwd(struct rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	int64_t part = d[0] * d[1] * r->width;
	const char *qkv = in(r, s.q_batch);
	r->ops->attention_fwd(r->backend, out(r, s.o_batch), out32(r, d[0] * d[2]), qkv, qkv + part,
			      qkv + 2 * part, &s);
	return attention_flops(d);
}

static double run_attention_bwd(struct rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	int64_t part = d[0] * d[1] * r->width;
	const char *qkv = in(r, s.q_batch);
	char *grad = out(r, s.q_batch);
	r->ops->attention_bwd(r->backend, grad, grad + part, grad + 2 * part, in(r, s.o_batch),
			      in(r, s.o_batch), in32(r, d[0] * d[2]), qkv, qkv + part,
			      qkv + 2 * part, &s, false);
	return 2.5 * attention_flops(d);
}

static double bytes_moved(const struct rig *r, const int64_t *d, double tensors)
{
	return tensors * (double)(r->width * d[0] * d[1]);
}

static double run_norm_fwd(struct rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	r->ops->rmsnorm_fwd(r->backend, out(r, n), out(r, n), out32(r, d[0]), in(r, n), in(r, n),
			    in(r, d[1]), d[0], d[1], 1e-5f);
	return bytes_moved(r, d, 4);
}

static double run_norm_bwd(struct rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	r->ops->rmsnorm_bwd(r->backend, out(r, n), out32(r, d[1]), in(r, n), in(r, n), in(r, n),
			    in32(r, d[0]), in(r, d[1]), d[0], d[1], true);
	return bytes_moved(r, d, 4);
}

static double run_gelu_fwd(struct rig *r, const int64_t *d)
{
	r->ops->gelu_fwd(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), d[0] * d[1]);
	return bytes_moved(r, d, 2);
}

static double run_gelu_bwd(struct rig *r, const int64_t *d)
{
	r->ops->gelu_bwd(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), in(r, d[0] * d[1]),
			 d[0] * d[1]);
	return bytes_moved(r, d, 3);
}

static double run_swiglu_fwd(struct rig *r, const int64_t *d)
{
	r->ops->swiglu_fwd(r->backend, out(r, d[0] * d[1]), in(r, 2 * d[0] * d[1]), d[0], d[1]);
	return bytes_moved(r, d, 3);
}

static double run_swiglu_bwd(struct rig *r, const int64_t *d)
{
	r->ops->swiglu_bwd(r->backend, out(r, 2 * d[0] * d[1]), in(r, d[0] * d[1]),
			   in(r, 2 * d[0] * d[1]), d[0], d[1]);
	return bytes_moved(r, d, 5);
}

static double run_rope(struct rig *r, const int64_t *d)
{
	const struct rope_shape s = { .n = d[0],
				      .row = d[1],
				      .heads = (int)(d[1] / ROPE_DIM),
				      .dim = ROPE_DIM,
				      .seq = d[0] };
	r->ops->rope_fwd(r->backend, out(r, d[0] * d[1]), &s, r->cos, r->sin);
	return bytes_moved(r, d, 2);
}

static double run_xent(struct rig *r, const int64_t *d)
{
	void *logits = out(r, d[0] * d[1]);
	float *max = out32(r, d[0]), *sum = out32(r, d[0]), *target = out32(r, d[0]);
	const float scale = 0.1f;
	r->ops->xent_max(r->backend, max, logits, d[0], d[1], d[1]);
	r->ops->xent_exp(r->backend, logits, sum, target, max, r->ids, d[0], d[1], d[1], 0);
	r->ops->xent_grad(r->backend, logits, sum, r->ids, &scale, d[0], d[1], d[1], 0);
	return bytes_moved(r, d, 5);
}

static double run_sum_rows(struct rig *r, const int64_t *d)
{
	r->ops->sum_rows(r->backend, out32(r, d[1]), in(r, d[0] * d[1]), d[0], d[1], true);
	return bytes_moved(r, d, 1);
}

static double run_copies(struct rig *r, const int64_t *d)
{
	r->ops->copy_rows(r->backend, out(r, d[0] * d[1]), d[1], in(r, d[0] * d[1]), d[1], d[0],
			  d[1]);
	r->ops->add(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), d[0] * d[1]);
	return bytes_moved(r, d, 5);
}

/* Does what a training step does with each parameter. */
static double run_optimizer(struct rig *r, const int64_t *d)
{
	const struct adamw_args a = { .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f };
	const struct step_numbers s = { .step = 9, .lr = 1e-3f, .grad_scale = 1 };
	int64_t n = d[0] * d[1];
	const float *grad = in32(r, n);
	float *p = out32(r, n);
	const struct update u = { .p = p,
				  .g = grad,
				  .m = out32(r, n),
				  .v = out32(r, n),
				  .count = n,
				  .weight_decay = 0.1f,
				  .stored = r->width < (int64_t)sizeof *p ? out(r, n) : NULL };
	backend_zero(r->backend, out32(r, n), (size_t)n * sizeof *p);
	r->ops->sqnorm(r->backend, &r->sum, grad, n);
	r->ops->adamw(r->backend, &u, 1, &a, &s);
	return 28.0 * (double)n;
}

/* --- Measurements ------------------------------------------------------------------------- */

enum { SHAPES_MAX = 16 };

/* clang-format off */
static const struct {
	enum rate_class class;
	run_fn *run;
	int64_t shapes[SHAPES_MAX][3]; /* up to {0} */
} rows[] = {
#define PRODUCTS { { 64, 128, 128 }, { 128, 128, 384 }, { 128, 256, 64 }, { 64, 512, 2048 }, { 128, 256, 1024 }, { 128, 1024, 256 }, \
		   { 256, 256, 768 }, { 256, 1024, 256 }, { 256, 128, 4096 }, { 256, 512, 2048 }, { 512, 256, 1024 }, { 512, 2048, 512 }, \
		   { 512, 256, 8192 }, { 1024, 1024, 1024 } }
	{ RATE_PRODUCT_FWD, run_product_fwd, PRODUCTS },
	{ RATE_PRODUCT_INPUT, run_product_input, PRODUCTS },
	{ RATE_PRODUCT_WEIGHT, run_product_weight, PRODUCTS },
#define HEADS { { 4, 32, 32 }, { 4, 32, 64 }, { 4, 32, 128 }, { 4, 64, 128 }, { 4, 64, 256 }, { 4, 64, 512 }, { 2, 64, 1024 } }
	{ RATE_ATTENTION_FWD, run_attention_fwd, HEADS },
	{ RATE_ATTENTION_BWD, run_attention_bwd, HEADS },
#define TENSORS { { 32, 128 }, { 128, 128 }, { 256, 256 }, { 512, 512 }, { 512, 1024 } }
	{ RATE_NORM_FWD, run_norm_fwd, TENSORS },
	{ RATE_NORM_BWD, run_norm_bwd, TENSORS },
	{ RATE_GELU_FWD, run_gelu_fwd, TENSORS },
	{ RATE_GELU_BWD, run_gelu_bwd, TENSORS },
	{ RATE_SWIGLU_FWD, run_swiglu_fwd, TENSORS },
	{ RATE_SWIGLU_BWD, run_swiglu_bwd, TENSORS },
	{ RATE_ROPE, run_rope, TENSORS },
	{ RATE_XENT, run_xent, { { 64, 512 }, { 128, 2048 }, { 256, 4096 }, { 512, 4096 } } },
	{ RATE_SUM_ROWS, run_sum_rows, TENSORS },
	{ RATE_MOVED, run_copies, TENSORS },
	{ RATE_OPTIMIZER, run_optimizer, { { 64, 256 }, { 256, 1024 }, { 512, 2048 } } },
};
/* clang-format on */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Seconds of one call: the median over batches. */
static double time_calls(struct rig *r, run_fn *run, const int64_t *d, double seconds)
{
	double times[BATCHES_MAX];
	run(r, d);
	backend_sync(r->backend, NULL);
	double begun = clock_s(), since = begun;
	run(r, d);
	backend_sync(r->backend, NULL);
	int calls = 1 + (int)(BATCH_SECONDS / (clock_s() - begun + 1e-9)), n = 0;
	for (begun = clock_s(); n < BATCHES_MAX && (n < 3 || clock_s() - begun < seconds); n++) {
		since = clock_s();
		for (int i = 0; i < calls; i++)
			run(r, d);
		backend_sync(r->backend, NULL);
		times[n] = (clock_s() - since) / calls;
	}
	qsort(times, (size_t)n, sizeof *times, by_value);
	return times[n / 2];
}

/* Returns the x of a point. For attention the curves are over the elements of a head's keys. */
static double curve_x(enum rate_class class, const int64_t *d, double work)
{
	return class == RATE_ATTENTION_FWD || class == RATE_ATTENTION_BWD ? (double)(d[1] * d[2])
									  : work;
}

static int measure_row(struct rig *r, struct comm *world, struct bench_ops *b, int row,
		       const int64_t *d, struct err *e)
{
	struct measured_point p = { .class = rows[row].class };
	p.weights = p.class <= RATE_PRODUCT_WEIGHT ? (double)(r->width * d[1] * d[2]) : 0;
	p.work = rows[row].run(r, d);
	p.x = curve_x(p.class, d, p.work);
	if (comm_barrier(world, e))
		return -1;
	p.seconds = time_calls(r, rows[row].run, d, b->seconds);
	if (comm_all_reduce(world, &p.seconds, &p.seconds, 1, COMM_F64, COMM_AVG, e))
		return -1;
	if (comm_rank(world) == 0 && b->n < BENCH_OPS_MAX)
		b->points[b->n++] = p;
	return 0;
}

/* Whether a quick measurement skips a size. */
static bool is_large(const int64_t *d)
{
	return d[0] * d[1] * (d[2] ? d[2] : 64) > 1 << 24;
}

static int measure_all(struct rig *r, struct comm *world, struct bench_ops *b, struct err *e)
{
	for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++)
		for (int i = 0; i < SHAPES_MAX && rows[row].shapes[i][0]; i++)
			if (!(b->quick && is_large(rows[row].shapes[i])) &&
			    measure_row(r, world, b, row, rows[row].shapes[i], e))
				return -1;
	return 0;
}

static int open_rig(struct rig *r, const struct bench_ops *b, struct err *e)
{
	if (backend_open(b->low_precision ? "cpu:bf16" : "cpu", b->threads, &r->backend, e))
		return -1;
	r->ops = backend_ops(r->backend);
	r->width = (int64_t)backend_width(r->backend);
	for (int i = 0; i < ARENAS; i++)
		if (!(r->arenas[i] = backend_alloc(r->backend, ARENA)))
			return err_set(e, ERR_NOMEM,
				       "no memory to measure operations; close other programs");
	return 0;
}

static void fill_rig(struct rig *r)
{
	for (int a = 0; a < ARENAS; a++) {
		float *x = (float *)r->arenas[a];
		for (int i = 0; i < ARENA / (int)sizeof *x; i++)
			x[i] = (float)(1 + i % 97) * 1e-3f;
	}
	for (int a = 0; a < INPUT_FP32 && r->width < (int64_t)sizeof(float); a++)
		for (size_t at = 0; at < ARENA; at += ARENA / 2)
			r->ops->fp32_to_storage(r->backend, r->arenas[a] + at,
						(const float *)r->arenas[INPUT_FP32],
						ARENA / 2 / r->width, NULL, 0);
	for (int i = 0; i < TOKENS; i++)
		r->ids[i] = i * 31 % 500;
	for (int i = 0; i < TOKENS * ROPE_DIM / 2; i++)
		r->cos[i] = 1;
}

static void close_rig(struct rig *r)
{
	for (int i = 0; i < ARENAS; i++)
		if (r->arenas[i])
			backend_free(r->backend, r->arenas[i]);
	backend_close(r->backend);
	free(r);
}

static int measure_as_rank(struct comm *world, void *arg, struct err *e)
{
	struct rig *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM,
			       "no memory to measure operations; close other programs");
	int rc = open_rig(r, arg, e);
	if (!rc) {
		fill_rig(r);
		rc = measure_all(r, world, arg, e);
	}
	close_rig(r);
	return rc;
}

int bench_ops_run(struct bench_ops *b, struct err *e)
{
	const struct rank_job job = {
		.ranks = b->agents, .comm = { .timeout_s = 120 }, .work = measure_as_rank, .arg = b
	};
	b->n = 0;
	return tool_rank_job_fork(&job, e);
}
