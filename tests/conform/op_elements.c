/* Ops on single elements: activations, sums, conversions, dropout and the optimizers. */
#include "tests/conform/op_vary.h"

#include <math.h>

/* --- activations: y x / dx dy x --- */

static void map_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 3, STORED };
}

static void gelu_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->gelu_fwd(k, p[0], p[1], d->n);
}

static void gelu_bwd_args(const struct dims *d, struct arg *a)
{
	map_fwd_args(d, a);
	a[2] = (struct arg){ IN, d->n, 3, STORED };
}

static void gelu_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->gelu_bwd(k, p[0], p[1], p[2], d->n);
}

static void swiglu_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * 2 * d->c, 3, STORED };
}

static void swiglu_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->swiglu_fwd(k, p[0], p[1], d->n, d->c);
}

static void swiglu_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * 2 * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ IN, d->n * 2 * d->c, 3, STORED };
}

static void swiglu_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->swiglu_bwd(k, p[0], p[1], p[2], d->n, d->c);
}

#define COUNT_DIMS \
	{ \
		{ .n = 1 }, { .n = 15 }, { .n = 17 }, \
		{ \
			.n = 70001 \
		} \
	}
#define ROWS_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 3, .c = 33 }, { .n = 130, .c = 344 }, \
			{ .n = 2, .c = 30011 }, \
		{ \
			.n = 2, .c = 9216 \
		} \
	}

/* --- sums and the optimizer --- */

static void add_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 1, STORED };
}

static void add_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->add(k, p[0], p[1], d->n);
}

static void add_bias_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->c, 1, STORED };
}

static void add_bias_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->add_bias(k, p[0], p[1], d->n, d->c);
}

static void sum_rows_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->c, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void sum_rows_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->sum_rows(k, p[0], p[1], d->n, d->c, true);
}

static void sum_rows_set_args(const struct dims *d, struct arg *a)
{
	sum_rows_args(d, a);
	a[0].kind = SET;
}

static void sum_rows_set(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->sum_rows(k, p[0], p[1], d->n, d->c, false);
}

static void sqnorm_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, 1, 1, DOUBLE };
	a[1] = (struct arg){ IN, d->n, 3, SINGLE };
}

static void sqnorm_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->sqnorm(k, p[0], p[1], d->n);
}

enum { NUMBERS_WORDS = sizeof(struct step_numbers) / sizeof(int64_t) };

/* p g m v stored numbers. m and v are those after some steps. with: stored is set; fused: it is
 * rounded at random, all but the first part as parts of longer rows; p: the step is skipped. */
static void adamw_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 0.3, SINGLE };
	a[2] = (struct arg){ INOUT, d->n, 0.1, SINGLE };
	a[3] = (struct arg){ INOUT, d->n, 0.1, SINGLE };
	a[4] = (struct arg){ d->with ? SET : NONE, d->n, 1, STORED };
	a[5] = (struct arg){ PLACES, NUMBERS_WORDS, 1, STORED };
}

static void adamw_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	double *v = p[3];
	*(struct step_numbers *)p[5] = (struct step_numbers){
		.step = 3, .lr = 0.01f, .grad_scale = 0.7f, .skip = d->p > 0
	};
	for (int64_t i = 0; i < d->n; i++)
		v[i] = v[i] * v[i];
}

enum { UPDATES = 4, UPDATES_MAX = 100 };

/* Elements [at, at + count) of p; `single` and `stored` are the bytes of an element. */
static struct update part(const struct dims *d, void **p, int64_t at, int64_t count, size_t single,
			  size_t stored)
{
	return (struct update){
		.p = (void *)((char *)p[0] + (size_t)at * single),
		.g = (void *)((char *)p[1] + (size_t)at * single),
		.m = (void *)((char *)p[2] + (size_t)at * single),
		.v = (void *)((char *)p[3] + (size_t)at * single),
		.count = count,
		.weight_decay = 0.05f + 0.1f * (float)(at > 0),
		.stored = d->with ? (char *)p[4] + (size_t)at * stored : NULL,
		.random = d->fused,
		.key = philox_key(5, PHILOX_ROUND, (uint64_t)at),
		.first = (uint64_t)at + 3,
		.row = 37,
		.column = at % 37,
		.gap = at > 0 ? 11 : 0,
	};
}

/* Splits the parameters into d->c updates, or, if d->c is 0, into UPDATES of which one is empty.
 * Returns the number of updates. */
static int parts(const struct dims *d, struct backend *k, void **p, struct update u[UPDATES_MAX])
{
	size_t stored = backend_width(k), single = stored > sizeof(float) ? stored : sizeof(float);
	int64_t ends[UPDATES + 1] = { 0, d->n / 3, d->n / 3, d->n - d->n / 4, d->n };
	for (int i = 0; i < UPDATES && !d->c; i++)
		u[i] = part(d, p, ends[i], ends[i + 1] - ends[i], single, stored);
	for (int64_t i = 0; i < d->c; i++)
		u[i] = part(d, p, d->n * i / d->c, d->n * (i + 1) / d->c - d->n * i / d->c, single,
			    stored);
	return d->c ? (int)d->c : UPDATES;
}

static void adamw_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct adamw_args a = { 0.9f, 0.95f, 1e-8f };
	struct update u[UPDATES_MAX];
	int n = parts(d, k, p, u);
	o->adamw(k, u, n, &a, p[5]);
}

/* p g m, stored and numbers; n elements, lo steps done; p: the step is skipped */
static void sgd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 0.3, SINGLE };
	a[2] = (struct arg){ d->lo ? INOUT : SET, d->n, 0.1, SINGLE };
	a[4] = (struct arg){ d->with ? SET : NONE, d->n, 1, STORED };
	a[5] = (struct arg){ PLACES, NUMBERS_WORDS, 1, STORED };
}

static void sgd_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	*(struct step_numbers *)p[5] = (struct step_numbers){
		.step = d->lo + 1, .lr = 0.1f, .grad_scale = 0.7f, .skip = d->p > 0
	};
}

static void sgd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct sgd_args a = { 0.9f };
	struct update u[UPDATES_MAX];
	int n = parts(d, k, p, u);
	for (int i = 0; i < n; i++)
		u[i].v = NULL;
	o->sgd(k, u, n, &a, p[5]);
}

enum { JUDGE_TOKENS = 1000 };

/* numbers; of a step whose sums d->d chooses: 0 a small norm, 1 one that is clipped, 2 a norm that
 * is not finite, 3 a loss that is not, 4 a norm at its limit, 5 one above it, 6 a loss at its limit,
 * 7 one above it. lo: good steps before; with: the scale never changes. */
static void judge_args(const struct dims *d, struct arg *a)
{
	(void)d;
	a[0] = (struct arg){ PLACES, NUMBERS_WORDS, 1, STORED };
}

static void judge_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	static const double squares[] = { 1e5, 3e12, INFINITY, 1e5, 1e6, 1e6, 1e5, 1e5 };
	const double scale = d->with ? 1000 : (double)d->c;
	*(struct step_numbers *)p[0] = (struct step_numbers){
		.step = 7,
		.loss_limit = d->d == 6   ? 17.5 / JUDGE_TOKENS
			      : d->d == 7 ? 0.01
					  : INFINITY,
		.norm_limit = d->d == 4   ? 1e3 / scale
			      : d->d == 5 ? 0.9e3 / scale
					  : INFINITY,
		.lr = 0.3f,
		.loss_scale = scale,
		.good = d->lo,
		.sums = { d->d == 3 ? NAN : 17.5, 1, 2, squares[d->d] },
	};
}

static void judge_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct step_rule r = { .clip = d->n,
				     .tokens = JUDGE_TOKENS,
				     .window = d->with ? 0 : 5,
				     .scale_max = 1 << 24 };
	o->step_judge(k, p[0], &r);
}

#define UPDATE_DIMS \
	{ \
		{ .n = 1 }, { .n = 17, .lo = 2, .with = true }, \
			{ .n = 70001, .lo = 1, .with = true, .fused = true }, \
			{ .n = 20000, .with = true }, { .n = 50, .lo = 1, .p = 1 }, \
		{ \
			.n = 5000, .c = 70, .lo = 1, .with = true \
		} \
	}

static void accumulate_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 1, SINGLE };
}

static void accumulate_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->accumulate(k, p[0], p[1], d->n);
}

static void to_fp32_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 3, STORED };
}

static void to_fp32_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->storage_to_fp32(k, p[0], p[1], d->n);
}

static void from_fp32_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 3, SINGLE };
}

static void from_fp32_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct philox_key key = philox_key(1, PHILOX_TEST, 2);
	o->fp32_to_storage(k, p[0], p[1], d->n, d->with ? &key : NULL, 5);
}

/* --- dropout: y x rows --- */

static void dropout_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ ROWS, d->n, 1 << 30, STORED };
}

static void dropout_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct dropout drop = { philox_key(3, PHILOX_DROPOUT, 4), d->p };
	o->dropout(k, p[0], p[1], p[2], d->n, d->c, &drop);
}

#define DROP_DIMS \
	{ \
		{ .n = 1, .c = 1, .p = 0.5f }, { .n = 5, .c = 7, .p = 0.1f }, \
			{ .n = 40, .c = 768, .p = 0.1f }, { .n = 3, .c = 768 }, \
			{ .n = 9, .c = 515, .p = 0.9f }, \
		{ \
			.n = 2, .c = 30011, .p = 0.25f \
		} \
	}

/* clang-format off */
const struct op_test element_ops[] = {
	{ "gelu_fwd", vary_counts, true, map_fwd_args, NULL, gelu_fwd_run, COUNT_DIMS },
	{ "gelu_bwd", vary_counts, true, gelu_bwd_args, NULL, gelu_bwd_run, COUNT_DIMS },
	{ "swiglu_fwd", vary_rows, true, swiglu_fwd_args, NULL, swiglu_fwd_run, ROWS_DIMS },
	{ "swiglu_bwd", vary_rows, true, swiglu_bwd_args, NULL, swiglu_bwd_run, ROWS_DIMS },
	{ "add", vary_counts, true, add_args, NULL, add_run, COUNT_DIMS },
	{ "add_bias", vary_rows, true, add_bias_args, NULL, add_bias_run, ROWS_DIMS },
	{ "sum_rows", vary_rows, true, sum_rows_set_args, NULL, sum_rows_set, ROWS_DIMS },
	{ "sum_rows add", vary_rows, true, sum_rows_args, NULL, sum_rows_run, ROWS_DIMS },
	{ "accumulate", vary_counts, true, accumulate_args, NULL, accumulate_run, COUNT_DIMS },
	{ "storage_to_fp32", vary_counts, true, to_fp32_args, NULL, to_fp32_run, COUNT_DIMS },
	{ "fp32_to_storage", vary_counts, true, from_fp32_args, NULL, from_fp32_run, { { .n = 1 }, { .n = 17, .with = true }, { .n = 140001 } } },
	{ "dropout", vary_rows, true, dropout_args, NULL, dropout_run, DROP_DIMS },
	{ "sqnorm", vary_counts, true, sqnorm_args, NULL, sqnorm_run, COUNT_DIMS },
	{ "step_judge", NULL, true, judge_args, judge_prepare, judge_run, {
		{ .n = 1, .c = 1024 }, { .n = 1, .c = 1024, .lo = 4 }, { .n = 1, .c = 1 << 24, .lo = 9 }, { .n = 0, .c = 512, .d = 1 },
		{ .n = 1, .c = 512, .d = 1, .with = true }, { .n = 1, .c = 1024, .d = 2, .lo = 3 }, { .n = 1, .c = 1, .d = 2 },
		{ .n = 1, .c = 64, .d = 3 }, { .n = 1, .d = 2, .with = true }, { .n = 1, .c = 64, .d = 4, .lo = 4 },
		{ .n = 1, .c = 64, .d = 5, .lo = 4 }, { .n = 1, .c = 64, .d = 6 }, { .n = 1, .c = 64, .d = 7 } } },
	{ "sgd", vary_counts, true, sgd_args, sgd_prepare, sgd_run, UPDATE_DIMS },
	{ "adamw", vary_counts, true, adamw_args, adamw_prepare, adamw_run, UPDATE_DIMS },
	{ 0 }
};
/* clang-format on */
