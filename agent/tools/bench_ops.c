#include "agent/tools/bench_ops.h"

#include "agent/tools/crew.h"
#include "base/clock.h"
#include "kernels/ops.h"

#include <stdlib.h>
#include <string.h>

/* Operands lie one behind the other in so much memory and round again, so that most come from where a step's come from: beyond the
 * second-level cache, as a model and its activations do not fit there. */
enum { ARENA = 32 << 20, ALIGN = 4096, TOKENS = 8192, VOCAB = 4096, BATCHES_MOST = 512 };

/* A batch of calls takes so long at least: clocks and barriers are nothing beside it. */
#define BATCH_SECONDS 5e-4

struct rig {
	struct kern *kern;
	const struct ops *ops;
	int64_t width;
	char *arena;
	size_t at;
	int32_t ids[TOKENS];
	double sum; /* keeps what is computed alive */
};

static void *take(struct rig *r, int64_t bytes)
{
	size_t size = ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
	if (r->at + size > ARENA)
		r->at = 0;
	void *p = r->arena + r->at;
	r->at += size;
	return p;
}

/* An operand of n elements of the storage type; of fp32. */
static void *stored(struct rig *r, int64_t n)
{
	return take(r, n * r->width);
}

static float *full(struct rig *r, int64_t n)
{
	return take(r, n * (int64_t)sizeof(float));
}

/* --- The operations; each returns its work ------------------------------------------------------------ */

/* d: tokens, in, out; of attention: heads, dim, length; of the others rows and columns. */
typedef double run_fn(struct rig *r, const int64_t *d);

static double product_fwd(struct rig *r, const int64_t *d)
{
	r->ops->linear_fwd(r->kern, stored(r, d[0] * d[2]), stored(r, d[0] * d[1]), stored(r, d[1] * d[2]), NULL, d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double product_input(struct rig *r, const int64_t *d)
{
	r->ops->linear_bwd_input(r->kern, stored(r, d[0] * d[1]), stored(r, d[0] * d[2]), stored(r, d[1] * d[2]), d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double product_weight(struct rig *r, const int64_t *d)
{
	r->ops->linear_bwd_weight(r->kern, full(r, d[1] * d[2]), NULL, stored(r, d[0] * d[2]), stored(r, d[0] * d[1]), d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static struct attn_shape attention_of(const int64_t *d)
{
	int64_t row = 3 * d[0] * d[1];
	return (struct attn_shape){
		.batch = 1, .q_len = d[2], .k_len = d[2], .heads = (int)d[0], .kv_heads = (int)d[0], .dim = (int)d[1], .q_row = row,
		.q_batch = row * d[2], .kv_row = row, .kv_batch = row * d[2], .o_batch = d[0] * d[1] * d[2], .heads_all = d[0], .seq = d[2],
	};
}

static double attention_flops(const int64_t *d)
{
	return 4.0 * (double)(d[0] * d[1]) * (double)(d[2] * (d[2] + 1) / 2);
}

static char *heads_of(const struct rig *r, char *row, const int64_t *d, int which)
{
	return row + which * d[0] * d[1] * r->width;
}

static double attention_fwd(struct rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	char *qkv = stored(r, s.q_batch);
	r->ops->attention_fwd(r->kern, stored(r, s.o_batch), full(r, d[0] * d[2]), qkv, heads_of(r, qkv, d, 1), heads_of(r, qkv, d, 2), &s);
	return attention_flops(d);
}

static double attention_bwd(struct rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	char *qkv = stored(r, s.q_batch), *grad = stored(r, s.q_batch);
	r->ops->attention_bwd(r->kern, grad, heads_of(r, grad, d, 1), heads_of(r, grad, d, 2), stored(r, s.o_batch), stored(r, s.o_batch),
			      full(r, d[0] * d[2]), qkv, heads_of(r, qkv, d, 1), heads_of(r, qkv, d, 2), &s, false);
	return 2.5 * attention_flops(d);
}

static double moved(const struct rig *r, const int64_t *d, double tensors)
{
	return tensors * (double)(r->width * d[0] * d[1]);
}

static double norm_fwd(struct rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	r->ops->rmsnorm_fwd(r->kern, stored(r, n), stored(r, n), full(r, d[0]), stored(r, n), stored(r, n), stored(r, d[1]), d[0], d[1], 1e-5f);
	return moved(r, d, 4);
}

static double norm_bwd(struct rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	void *dx = stored(r, n);
	r->ops->rmsnorm_bwd(r->kern, dx, full(r, d[1]), stored(r, n), dx, stored(r, n), full(r, d[0]), stored(r, d[1]), d[0], d[1]);
	return moved(r, d, 4);
}

static double gelu_fwd(struct rig *r, const int64_t *d)
{
	r->ops->gelu_fwd(r->kern, stored(r, d[0] * d[1]), stored(r, d[0] * d[1]), d[0] * d[1]);
	return moved(r, d, 2);
}

static double gelu_bwd(struct rig *r, const int64_t *d)
{
	void *dx = stored(r, d[0] * d[1]);
	r->ops->gelu_bwd(r->kern, dx, dx, stored(r, d[0] * d[1]), d[0] * d[1]);
	return moved(r, d, 3);
}

static double swiglu_fwd(struct rig *r, const int64_t *d)
{
	r->ops->swiglu_fwd(r->kern, stored(r, d[0] * d[1]), stored(r, 2 * d[0] * d[1]), d[0], d[1]);
	return moved(r, d, 3);
}

static double swiglu_bwd(struct rig *r, const int64_t *d)
{
	r->ops->swiglu_bwd(r->kern, stored(r, 2 * d[0] * d[1]), stored(r, d[0] * d[1]), stored(r, 2 * d[0] * d[1]), d[0], d[1]);
	return moved(r, d, 5);
}

static double rope(struct rig *r, const int64_t *d)
{
	enum { DIM = 32 };
	const struct rope_shape s = { .n = d[0], .row = d[1], .heads = (int)(d[1] / DIM), .dim = DIM, .seq = d[0] };
	r->ops->rope_fwd(r->kern, stored(r, d[0] * d[1]), &s, full(r, d[0] * DIM / 2), full(r, d[0] * DIM / 2));
	return moved(r, d, 2);
}

static double xent(struct rig *r, const int64_t *d)
{
	void *logits = stored(r, d[0] * d[1]);
	float *max = full(r, d[0]), *sum = full(r, d[0]), *target = full(r, d[0]);
	r->ops->xent_max(r->kern, max, logits, d[0], d[1]);
	r->ops->xent_exp(r->kern, logits, sum, target, max, r->ids, d[0], d[1], 0);
	r->ops->xent_grad(r->kern, logits, sum, r->ids, 0.1f, d[0], d[1], 0);
	return moved(r, d, 5);
}

static double sum_rows(struct rig *r, const int64_t *d)
{
	r->ops->sum_rows(r->kern, full(r, d[1]), stored(r, d[0] * d[1]), d[0], d[1]);
	return moved(r, d, 1);
}

static double copies(struct rig *r, const int64_t *d)
{
	r->ops->copy_rows(r->kern, stored(r, d[0] * d[1]), d[1], stored(r, d[0] * d[1]), d[1], d[0], d[1]);
	r->ops->add(r->kern, stored(r, d[0] * d[1]), stored(r, d[0] * d[1]), d[0] * d[1]);
	return moved(r, d, 5);
}

/* What a step does to each parameter, rank by rank. */
static double optimizer(struct rig *r, const int64_t *d)
{
	const struct adamw_args a = { .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 1, .step = 9 };
	int64_t n = d[0] * d[1];
	float *grad = full(r, n), *p = full(r, n);
	kern_zero(r->kern, full(r, n), (size_t)n * sizeof *grad);
	r->sum += r->ops->sqnorm(r->kern, grad, n);
	r->ops->adamw(r->kern, p, grad, full(r, n), full(r, n), n, &a);
	if (r->width < (int64_t)sizeof *p)
		r->ops->narrow(r->kern, stored(r, n), p, n, NULL, 0);
	return 28.0 * (double)n;
}

/* --- What is measured ------------------------------------------------------------------------------------ */

enum { SHAPES_MOST = 16 };

static const struct {
	enum cost_class class;
	run_fn *run;
	int64_t shapes[SHAPES_MOST][3]; /* up to {0} */
} rows[] = {
#define PRODUCTS { { 64, 128, 128 }, { 128, 128, 384 }, { 128, 256, 64 }, { 64, 512, 2048 }, { 128, 256, 1024 }, { 128, 1024, 256 }, \
		   { 256, 256, 768 }, { 256, 1024, 256 }, { 256, 128, 4096 }, { 256, 512, 2048 }, { 512, 256, 1024 }, { 512, 2048, 512 }, \
		   { 512, 256, 8192 }, { 1024, 1024, 1024 } }
	{ COST_PRODUCT_FWD, product_fwd, PRODUCTS },
	{ COST_PRODUCT_INPUT, product_input, PRODUCTS },
	{ COST_PRODUCT_WEIGHT, product_weight, PRODUCTS },
#define HEADS { { 4, 32, 32 }, { 4, 32, 64 }, { 4, 32, 128 }, { 4, 64, 128 }, { 4, 64, 256 }, { 4, 64, 512 }, { 2, 64, 1024 } }
	{ COST_ATTENTION_FWD, attention_fwd, HEADS },
	{ COST_ATTENTION_BWD, attention_bwd, HEADS },
#define TENSORS { { 32, 128 }, { 128, 128 }, { 256, 256 }, { 512, 512 }, { 512, 1024 } }
	{ COST_NORM_FWD, norm_fwd, TENSORS },
	{ COST_NORM_BWD, norm_bwd, TENSORS },
	{ COST_GELU_FWD, gelu_fwd, TENSORS },
	{ COST_GELU_BWD, gelu_bwd, TENSORS },
	{ COST_SWIGLU_FWD, swiglu_fwd, TENSORS },
	{ COST_SWIGLU_BWD, swiglu_bwd, TENSORS },
	{ COST_ROPE, rope, TENSORS },
	{ COST_XENT, xent, { { 64, 512 }, { 128, 2048 }, { 256, 4096 }, { 512, 4096 } } },
	{ COST_SUM_ROWS, sum_rows, TENSORS },
	{ COST_MOVED, copies, TENSORS },
	{ COST_OPTIMIZER, optimizer, { { 64, 256 }, { 256, 1024 }, { 512, 2048 } } },
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Seconds of one call: the median over batches. */
static double time_calls(struct rig *r, run_fn *run, const int64_t *d, double seconds)
{
	double times[BATCHES_MOST];
	run(r, d);
	double begun = clock_s(), since = begun;
	run(r, d);
	int calls = 1 + (int)(BATCH_SECONDS / (clock_s() - begun + 1e-9)), n = 0;
	for (begun = clock_s(); n < BATCHES_MOST && (n < 3 || clock_s() - begun < seconds); n++) {
		since = clock_s();
		for (int i = 0; i < calls; i++)
			run(r, d);
		times[n] = (clock_s() - since) / calls;
	}
	qsort(times, (size_t)n, sizeof *times, by_value);
	return times[n / 2];
}

/* Attention's curves are over the elements of a head's keys. */
static double place_on_curve(enum cost_class class, const int64_t *d, double work)
{
	return class == COST_ATTENTION_FWD || class == COST_ATTENTION_BWD ? (double)(d[1] * d[2]) : work;
}

static int measure(struct rig *r, struct comm *world, struct bench_ops *b, int row, const int64_t *d, struct err *e)
{
	struct measured_point p = { .class = rows[row].class };
	p.weights = p.class <= COST_PRODUCT_WEIGHT ? (double)(r->width * d[1] * d[2]) : 0;
	p.work = rows[row].run(r, d);
	p.x = place_on_curve(p.class, d, p.work);
	if (comm_barrier(world, e))
		return -1;
	p.seconds = time_calls(r, rows[row].run, d, b->seconds);
	if (comm_all_reduce(world, &p.seconds, &p.seconds, 1, COMM_F64, COMM_AVG, e))
		return -1;
	if (comm_rank(world) == 0 && b->n < BENCH_OPS_MOST)
		b->points[b->n++] = p;
	return 0;
}

static int measure_all(struct rig *r, struct comm *world, struct bench_ops *b, struct err *e)
{
	for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++)
		for (int i = 0; i < SHAPES_MOST && rows[row].shapes[i][0]; i++)
			if (measure(r, world, b, row, rows[row].shapes[i], e))
				return -1;
	return 0;
}

/* Numbers that are none (infinite, subnormal) could take longer. */
static void fill(struct rig *r)
{
	float *one = full(r, 4096);
	for (int i = 0; i < 4096; i++)
		one[i] = (float)(i % 97) * 1e-3f;
	memset(r->arena, 0, ARENA);
	for (size_t at = 0; at < ARENA; at += 4096 * (size_t)r->width)
		r->ops->narrow(r->kern, r->arena + at, one, 4096, NULL, 0);
}

static int work(struct comm *world, void *arg, struct err *e)
{
	struct bench_ops *b = arg;
	struct rig *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory to measure operations; close other programs");
	int rc = kern_open(b->narrow ? "cpu:bf16" : "cpu", b->threads, &r->kern, e);
	if (!rc) {
		r->ops = kern_ops(r->kern);
		r->width = (int64_t)kern_width(r->kern);
		r->arena = kern_alloc(r->kern, ARENA);
		rc = r->arena ? 0 : err_set(e, ERR_NOMEM, "no memory to measure operations; close other programs");
	}
	if (!rc) {
		for (int i = 0; i < TOKENS; i++)
			r->ids[i] = i * 31 % 500;
		fill(r);
		rc = measure_all(r, world, b, e);
		kern_free(r->kern, r->arena);
	}
	kern_close(r->kern);
	free(r);
	return rc;
}

int bench_ops_run(struct bench_ops *b, struct err *e)
{
	const struct crew crew = { .ranks = b->agents, .comm = { .timeout_s = 120 }, .work = work, .arg = b };
	b->n = 0;
	return crew_run(&crew, e);
}
