/* Ops that go over elements: activations, sums, the optimizer. */
#include "tests/conform/op_test.h"

/* --- activations: y x / dx dy x --- */

static void map_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 3 };
}

static void gelu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_fwd(k, p[0], p[1], d->n);
}

static void gelu_bwd_args(const struct dims *d, struct arg *a)
{
	map_fwd_args(d, a);
	a[2] = (struct arg){ IN, d->n, 3 };
}

static void gelu_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_bwd(k, p[0], p[1], p[2], d->n);
}

static void swiglu_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1 };
	a[1] = (struct arg){ IN, d->n * 2 * d->c, 3 };
}

static void swiglu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->swiglu_fwd(k, p[0], p[1], d->n, d->c);
}

static void swiglu_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * 2 * d->c, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 1 };
	a[2] = (struct arg){ IN, d->n * 2 * d->c, 3 };
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
	a[0] = (struct arg){ ADD, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 1 };
}

static void add_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add(k, p[0], p[1], d->n);
}

static void add_bias_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n * d->c, 1 };
	a[1] = (struct arg){ IN, d->c, 1 };
}

static void add_bias_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add_bias(k, p[0], p[1], d->n, d->c);
}

static void sum_rows_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->c, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 1 };
}

static void sum_rows_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->sum_rows(k, p[0], p[1], d->n, d->c);
}

/* p g m v, m and v those of some steps. */
static void adamw_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 0.3 };
	a[2] = (struct arg){ INOUT, d->n, 0.1 };
	a[3] = (struct arg){ INOUT, d->n, 0.1 };
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

const struct op_test element_ops[] = {
	{ "gelu_fwd", true, map_fwd_args, NULL, gelu_fwd_run, COUNT_DIMS },
	{ "gelu_bwd", true, gelu_bwd_args, NULL, gelu_bwd_run, COUNT_DIMS },
	{ "swiglu_fwd", true, swiglu_fwd_args, NULL, swiglu_fwd_run, ROWS_DIMS },
	{ "swiglu_bwd", true, swiglu_bwd_args, NULL, swiglu_bwd_run, ROWS_DIMS },
	{ "add", true, add_args, NULL, add_run, COUNT_DIMS },
	{ "add_bias", true, add_bias_args, NULL, add_bias_run, ROWS_DIMS },
	{ "sum_rows", true, sum_rows_args, NULL, sum_rows_run, ROWS_DIMS },
	{ "adamw", true, adamw_args, adamw_prepare, adamw_run, COUNT_DIMS },
	{ 0 }
};
