#include "agent/tools/bench_chip.h"

#include "agent/tools/bench_rig.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An arena is so many times as large as the largest array that a size may have, in fp32. The
 * smallest one holds the optimizer's four arrays. */
enum { ARENA_ARRAYS = 4, SIZES_MAX = 12, ROUNDS = 7, RECORDED_MAX = 32 };
/* Calls that are recorded together go through so many bytes, more than any L2 cache has. */
#define BEYOND_CACHES 400e6

/* clang-format off */
static const struct row {
	enum rate_class first, last; /* all of them have these sizes */
	int64_t sizes[SIZES_MAX][3]; /* as in bench_rig.h; up to {0} */
} rows[] = {
	{ RATE_PRODUCT_FWD, RATE_PRODUCT_WEIGHT,
	  { { 32, 64, 64 }, { 256, 512, 512 }, { 1024, 1024, 1024 }, { 2048, 768, 2304 }, { 4096, 1024, 4096 }, { 8192, 2048, 2048 },
	    { 8192, 4096, 1024 }, { 8192, 2048, 8192 }, { 16384, 2048, 4096 }, { 32768, 768, 2048 }, { 4096, 8192, 8192 }, { 8192, 8192, 8192 } } },
	{ RATE_ATTENTION_FWD, RATE_ATTENTION_BWD,
	  { { 2, 32, 32 }, { 256, 64, 512 }, { 256, 64, 1024 }, { 128, 64, 2048 }, { 64, 64, 4096 }, { 32, 64, 8192 },
	    { 128, 128, 512 }, { 128, 128, 1024 }, { 64, 128, 2048 }, { 32, 128, 4096 }, { 16, 128, 8192 } } },
	{ RATE_NORM_FWD, RATE_ROPE, { { 16, 64 }, { 512, 1024 }, { 2048, 2048 }, { 8192, 2048 }, { 16384, 4096 } } },
	{ RATE_XENT, RATE_XENT, { { 16, 512 }, { 512, 8192 }, { 1024, 32768 }, { 512, 131072 } } },
	{ RATE_SUM_ROWS, RATE_MOVED, { { 16, 64 }, { 512, 1024 }, { 2048, 2048 }, { 8192, 2048 }, { 16384, 4096 } } },
	{ RATE_OPTIMIZER, RATE_OPTIMIZER, { { 16, 64 }, { 1024, 1024 }, { 4096, 4096 }, { 8192, 8192 } } },
};
/* clang-format on */

static bool is_product(enum rate_class class)
{
	return class <= RATE_PRODUCT_WEIGHT;
}

static bool is_attention(enum rate_class class)
{
	return class == RATE_ATTENTION_FWD || class == RATE_ATTENTION_BWD;
}

/* Elements of the largest array of an operation. */
static int64_t largest(enum rate_class class, const int64_t *d)
{
	int64_t x = d[0] * d[1], w = d[1] * d[2], y = d[0] * d[2];
	if (is_attention(class))
		return 3 * d[0] * d[1] * d[2];
	if (!is_product(class))
		return x;
	return x > w ? (x > y ? x : y) : (w > y ? w : y);
}

/* --- Time --------------------------------------------------------------------------------- */

/* What is timed: an operation at one size. */
struct timed {
	struct bench_rig *rig;
	enum rate_class class;
	const int64_t *d;
	bool eight;
	int calls; /* that follow one another through the arenas */
};

static double call(const struct timed *t)
{
	return t->eight ? bench_rig_eight(t->rig, t->class, t->d)
			: bench_rig_run(t->class)(t->rig, t->d);
}

static void run_calls(const struct timed *t, struct backend_graph *graph)
{
	if (graph)
		backend_graph_replay(t->rig->backend, graph);
	for (int i = 0; !graph && i < t->calls; i++)
		call(t);
}

/* Seconds of one call: the median of rounds, each of which takes a seventh of `seconds` or more. */
static int time_rounds(const struct timed *t, struct backend_graph *graph, double seconds,
		       double *out, struct err *e)
{
	double rounds[ROUNDS];
	int64_t times = 1;
	for (int i = 0; i < ROUNDS;) {
		double since = clock_s();
		for (int64_t j = 0; j < times; j++)
			run_calls(t, graph);
		if (backend_sync(t->rig->backend, e))
			return -1;
		double took = clock_s() - since;
		rounds[i++] = took / (double)(times * t->calls);
		if (took < seconds / ROUNDS) {
			times *= 2;
			i = 0;
		}
	}
	qsort(rounds, ROUNDS, sizeof *rounds, compare_double);
	*out = rounds[ROUNDS / 2];
	return 0;
}

/* The first call creates and chooses things. Then calls are recorded, so that the device's work is
 * timed and not the launches. */
static int time_size(const struct timed *t, double seconds, double *out, struct err *e)
{
	struct backend *k = t->rig->backend;
	struct backend_graph *graph = NULL;
	call(t);
	if (backend_sync(k, e))
		return -1;
	if (backend_graph_begin(k)) {
		run_calls(t, NULL);
		if (backend_graph_end(k, &graph, e))
			return -1;
	}
	int rc = time_rounds(t, graph, seconds, out, e);
	backend_graph_free(k, graph);
	return rc;
}

/* --- Sizes -------------------------------------------------------------------------------- */

static void set_size(struct measured_chip_op *op, const int64_t *d, double work)
{
	if (is_product(op->class)) {
		for (int i = 0; i < 3; i++)
			op->size[i] = (double)d[i];
	} else if (is_attention(op->class)) {
		op->size[0] = (double)d[2];
		op->size[1] = (double)d[1];
		op->size[2] = work;
	} else {
		op->size[0] = work;
	}
}

static int one_size(struct bench_rig *r, const struct bench_chip *b, enum rate_class class,
		    const int64_t *d, enum measured_storage storage, struct measured_chip *out,
		    struct err *e)
{
	struct measured_chip_op op = { .class = class, .storage = storage };
	double bytes = (double)(largest(class, d) * r->width);
	struct timed t = { r, class, d, storage == MEASURED_FP8,
			   (int)fmin(RECORDED_MAX,
				     1 + fmin((double)r->arena, BEYOND_CACHES) / bytes) };
	if (out->n_ops == CHIP_OPS)
		return 0;
	/* as in training, the gradient that is set is measured: added sums may not fit the scratch */
	r->sets = true;
	set_size(&op, d, call(&t));
	r->sets = false;
	if (time_size(&t, b->seconds, &op.seconds, e))
		return -1;
	op.seconds = fmax(op.seconds, 1e-9);
	out->ops[out->n_ops++] = op;
	return 0;
}

static int all_sizes(struct bench_rig *r, const struct bench_chip *b, enum measured_storage storage,
		     struct measured_chip *out, struct err *e)
{
	enum rate_class most = storage == MEASURED_FP8 ? RATE_PRODUCT_WEIGHT : RATE_OPTIMIZER;
	for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
		for (int class = rows[row].first; class <= (int)rows[row].last; class ++)
			for (int i = 0; i < SIZES_MAX && rows[row].sizes[i][0]; i++) {
				const int64_t *d = rows[row].sizes[i];
				if (class <= (int)most &&
				    largest((enum rate_class) class, d) <= b->elements &&
				    one_size(r, b, (enum rate_class) class, d, storage, out, e))
					return -1;
			}
	return 0;
}

/* --- Storage types ------------------------------------------------------------------------ */

/* Numbers as in training: power and so the clock depend on them. */
static void fill(float *x, int64_t n)
{
	philox_normal(philox_key(9, PHILOX_TEST, 0), 0, n, x);
}

int bench_chip_ops(const struct bench_chip *b, int device, enum measured_storage storage,
		   struct measured_chip *out, struct err *e)
{
	static const char *const names[] = { "cuda", "cuda:bf16", "cuda:fp16", "cuda:bf16" };
	const struct bench_rig_setup setup = { .backend = names[storage],
					       .threads = 1,
					       .device = device,
					       .arena = (size_t)b->elements * sizeof(float) *
							ARENA_ARRAYS,
					       .tokens = 32768,
					       .eight = storage == MEASURED_FP8,
					       .fill = fill };
	struct bench_rig r = { 0 };
	int rc = bench_rig_open(&r, &setup, e);
	/* Where products of 8 bits are not faster, their time is that of the others. */
	if (!rc && (storage != MEASURED_FP8 || backend_fp8(r.backend)))
		rc = all_sizes(&r, b, storage, out, e);
	bench_rig_close(&r);
	return rc;
}
