/* Ops that go over elements: activations, sums, conversions, dropout, the optimizers. */
#include "tests/conform/op_test.h"

/* --- activations: y x / dx dy x --- */

static void map_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 3, STORED };
}

static void gelu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_fwd(k, p[0], p[1], d->n);
}

static void gelu_bwd_args(const struct dims *d, struct arg *a)
{
	map_fwd_args(d, a);
	a[2] = (struct arg){ IN, d->n, 3, STORED };
}

static void gelu_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_bwd(k, p[0], p[1], p[2], d->n);
}

static void swiglu_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * 2 * d->c, 3, STORED };
}

static void swiglu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->swiglu_fwd(k, p[0], p[1], d->n, d->c);
}

static void swiglu_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * 2 * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ IN, d->n * 2 * d->c, 3, STORED };
}

static void swiglu_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->swiglu_bwd(k, p[0], p[1], p[2], d->n, d->c);
}

#define COUNT_DIMS { { .n = 1 }, { .n = 15 }, { .n = 17 }, { .n = 70001 } }
#define ROWS_DIMS { { .n = 1, .c = 1 }, { .n = 3, .c = 33 }, { .n = 130, .c = 344 }, { .n = 2, .c = 30011 } }

/* --- sums and the optimizer --- */

static void add_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 1, STORED };
}

static void add_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add(k, p[0], p[1], d->n);
}

static void add_bias_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->c, 1, STORED };
}

static void add_bias_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add_bias(k, p[0], p[1], d->n, d->c);
}

static void sum_rows_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->c, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void sum_rows_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->sum_rows(k, p[0], p[1], d->n, d->c);
}

/* p g m v, m and v those of some steps. */
static void adamw_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 0.3, SINGLE };
	a[2] = (struct arg){ INOUT, d->n, 0.1, SINGLE };
	a[3] = (struct arg){ INOUT, d->n, 0.1, SINGLE };
}

static void adamw_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	double *v = p[3];
	for (int64_t i = 0; i < d->n; i++)
		v[i] = v[i] * v[i];
}

static void adamw_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	struct adamw_args a = { 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.7f, 3 };
	o->adamw(k, p[0], p[1], p[2], p[3], d->n, &a);
}

/* p g m; n elements, lo steps done */
static void sgd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 0.3, SINGLE };
	a[2] = (struct arg){ d->lo ? INOUT : SET, d->n, 0.1, SINGLE };
}

static void sgd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	struct sgd_args a = { 0.1f, 0.9f, 0.05f, 0.7f, d->lo + 1 };
	o->sgd(k, p[0], p[1], p[2], d->n, &a);
}

static void accumulate_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 1, SINGLE };
}

static void accumulate_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->accumulate(k, p[0], p[1], d->n);
}

static void widen_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n, 3, STORED };
}

static void widen_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->widen(k, p[0], p[1], d->n);
}

static void narrow_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, STORED };
	a[1] = (struct arg){ IN, d->n, 3, SINGLE };
}

static void narrow_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	struct philox_key key = philox_key(1, PHILOX_TEST, 2);
	o->narrow(k, p[0], p[1], d->n, d->with ? &key : NULL, 5);
}

/* --- dropout: y x rows --- */

static void dropout_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ ROWS, d->n, 1 << 30, STORED };
}

static void dropout_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	struct dropout drop = { philox_key(3, PHILOX_DROPOUT, 4), d->p };
	o->dropout(k, p[0], p[1], p[2], d->n, d->c, &drop);
}

#define DROP_DIMS { \
	{ .n = 1, .c = 1, .p = 0.5f }, { .n = 5, .c = 7, .p = 0.1f }, { .n = 40, .c = 768, .p = 0.1f }, { .n = 3, .c = 768 }, \
	{ .n = 9, .c = 515, .p = 0.9f }, { .n = 2, .c = 30011, .p = 0.25f } }

const struct op_test element_ops[] = {
	{ "gelu_fwd", true, map_fwd_args, NULL, gelu_fwd_run, COUNT_DIMS },
	{ "gelu_bwd", true, gelu_bwd_args, NULL, gelu_bwd_run, COUNT_DIMS },
	{ "swiglu_fwd", true, swiglu_fwd_args, NULL, swiglu_fwd_run, ROWS_DIMS },
	{ "swiglu_bwd", true, swiglu_bwd_args, NULL, swiglu_bwd_run, ROWS_DIMS },
	{ "add", true, add_args, NULL, add_run, COUNT_DIMS },
	{ "add_bias", true, add_bias_args, NULL, add_bias_run, ROWS_DIMS },
	{ "sum_rows", true, sum_rows_args, NULL, sum_rows_run, ROWS_DIMS },
	{ "accumulate", true, accumulate_args, NULL, accumulate_run, COUNT_DIMS },
	{ "widen", true, widen_args, NULL, widen_run, COUNT_DIMS },
	{ "narrow", true, narrow_args, NULL, narrow_run, { { .n = 1 }, { .n = 17, .with = true }, { .n = 140001 } } },
	{ "dropout", true, dropout_args, NULL, dropout_run, DROP_DIMS },
	{ "sgd", true, sgd_args, NULL, sgd_run, { { .n = 1 }, { .n = 17, .lo = 2 }, { .n = 70001, .lo = 1 }, { .n = 20000 } } },
	{ "adamw", true, adamw_args, adamw_prepare, adamw_run, COUNT_DIMS },
	{ 0 }
};
