#include "agent/tools/bench_ops.h"

#include "agent/tools/bench_rig.h"
#include "agent/tools/rank_job.h"
#include "base/clock.h"

#include <stdlib.h>

/* The weights, gradients and activations of even a small model are about 100 MB. */
enum { ARENA = 24 << 20, TOKENS = 8192, BATCHES_MAX = 512 };

/* A batch of calls takes at least so many seconds, so that clocks and barriers are negligible. */
#define BATCH_SECONDS 5e-4

/* --- Measurements ------------------------------------------------------------------------- */

enum { SHAPES_MAX = 16 };

/* clang-format off */
static const struct {
	enum rate_class class;
	int64_t shapes[SHAPES_MAX][3]; /* up to {0} */
} rows[] = {
#define PRODUCTS { { 64, 128, 128 }, { 128, 128, 384 }, { 128, 256, 64 }, { 64, 512, 2048 }, { 128, 256, 1024 }, { 128, 1024, 256 }, \
		   { 256, 256, 768 }, { 256, 1024, 256 }, { 256, 128, 4096 }, { 256, 512, 2048 }, { 512, 256, 1024 }, { 512, 2048, 512 }, \
		   { 512, 256, 8192 }, { 1024, 1024, 1024 } }
	{ RATE_PRODUCT_FWD, PRODUCTS },
	{ RATE_PRODUCT_INPUT, PRODUCTS },
	{ RATE_PRODUCT_WEIGHT, PRODUCTS },
#define HEADS { { 4, 32, 32 }, { 4, 32, 64 }, { 4, 32, 128 }, { 4, 64, 128 }, { 4, 64, 256 }, { 4, 64, 512 }, { 2, 64, 1024 } }
	{ RATE_ATTENTION_FWD, HEADS },
	{ RATE_ATTENTION_BWD, HEADS },
#define TENSORS { { 32, 128 }, { 128, 128 }, { 256, 256 }, { 512, 512 }, { 512, 1024 } }
	{ RATE_NORM_FWD, TENSORS },
	{ RATE_NORM_BWD, TENSORS },
	{ RATE_GELU_FWD, TENSORS },
	{ RATE_GELU_BWD, TENSORS },
	{ RATE_SWIGLU_FWD, TENSORS },
	{ RATE_SWIGLU_BWD, TENSORS },
	{ RATE_ROPE, TENSORS },
	{ RATE_XENT, { { 64, 512 }, { 128, 2048 }, { 256, 4096 }, { 512, 4096 } } },
	{ RATE_SUM_ROWS, TENSORS },
	{ RATE_MOVED, TENSORS },
	{ RATE_OPTIMIZER, { { 64, 256 }, { 256, 1024 }, { 512, 2048 } } },
};
/* clang-format on */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Seconds of one call: the median over batches. */
static double time_calls(struct bench_rig *r, bench_run_fn *run, const int64_t *d, double seconds)
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

static int measure_row(struct bench_rig *r, struct comm *world, struct bench_ops *b, int row,
		       const int64_t *d, struct err *e)
{
	struct measured_point p = { .class = rows[row].class };
	p.weights = p.class <= RATE_PRODUCT_WEIGHT ? (double)(r->width * d[1] * d[2]) : 0;
	bench_run_fn *run = bench_rig_run(p.class);
	p.work = run(r, d);
	p.x = curve_x(p.class, d, p.work);
	if (comm_barrier(world, e))
		return -1;
	p.seconds = time_calls(r, run, d, b->seconds);
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

static int measure_all(struct bench_rig *r, struct comm *world, struct bench_ops *b, struct err *e)
{
	for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++)
		for (int i = 0; i < SHAPES_MAX && rows[row].shapes[i][0]; i++)
			if (!(b->quick && is_large(rows[row].shapes[i])) &&
			    measure_row(r, world, b, row, rows[row].shapes[i], e))
				return -1;
	return 0;
}

static void fill(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(1 + i % 97) * 1e-3f;
}

static int measure_as_rank(struct comm *world, void *arg, struct err *e)
{
	struct bench_rig *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM,
			       "no memory to measure operations; close other programs");
	const struct bench_ops *b = arg;
	const struct bench_rig_setup setup = { .backend = b->low_precision ? "cpu:bf16" : "cpu",
					       .threads = b->threads,
					       .arena = ARENA,
					       .tokens = TOKENS,
					       .fill = fill };
	int rc = bench_rig_open(r, &setup, e);
	if (!rc)
		rc = measure_all(r, world, arg, e);
	bench_rig_close(r);
	free(r);
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
