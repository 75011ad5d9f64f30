/* Ops with weights: matrix products and norms. */
#include "tests/conform/op_vary.h"

/* --- linear: y x w bias / dx dy w / dw dbias dy x; n, c = in, d = out --- */

static void linear_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ IN, d->d * d->c, 0.1, STORED };
	a[3] = (struct arg){ IN, d->d, 1, STORED };
}

static void linear_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->linear_fwd(k, p[0], p[1], p[2], d->with ? p[3] : NULL, d->n, d->c, d->d);
}

static void linear_bwd_input_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->d, 1, STORED };
	a[2] = (struct arg){ IN, d->d * d->c, 0.1, STORED };
}

static void linear_bwd_input_run(const struct ops *o, struct backend *k, const struct dims *d,
				 void **p)
{
	o->linear_bwd_input(k, NULL, p[1], p[2], d->n, d->c, d->d);
	o->linear_bwd_input(k, p[0], p[1], p[2], d->n, d->c, d->d);
}

static void linear_bwd_weight_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->d * d->c, 1, SINGLE };
	a[1] = (struct arg){ d->with ? ADD : IN, d->d, 1, SINGLE };
	a[2] = (struct arg){ IN, d->n * d->d, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void linear_bwd_weight_run(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	o->linear_bwd_weight(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->n, d->c, d->d, true);
}

/* What is added to in the ops with `add` is set without it. */
static void set_weights(struct arg *a)
{
	for (int i = 0; i < 3; i++)
		a[i].kind = a[i].kind == ADD ? SET : a[i].kind;
}

static void linear_bwd_weight_set_args(const struct dims *d, struct arg *a)
{
	linear_bwd_weight_args(d, a);
	set_weights(a);
}

static void linear_bwd_weight_set(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	o->linear_bwd_weight(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->n, d->c, d->d, false);
}

/* --- linear_bwd_weight_strided: dw dy x; `with`: the rows of dy have gaps --- */

static int64_t stride_of(const struct dims *d)
{
	return d->with ? (d->d / 128 + 1) * 128 : d->d;
}

static void linear_bwd_weight_strided_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->d * d->c, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * stride_of(d), 1, STORED };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void linear_bwd_weight_strided_run(const struct ops *o, struct backend *k,
					  const struct dims *d, void **p)
{
	o->linear_bwd_weight_strided(k, p[0], p[1], stride_of(d), p[2], d->n, d->c, d->d, true);
}

static void linear_bwd_weight_strided_set_args(const struct dims *d, struct arg *a)
{
	linear_bwd_weight_strided_args(d, a);
	set_weights(a);
}

static void linear_bwd_weight_strided_set(const struct ops *o, struct backend *k,
					  const struct dims *d, void **p)
{
	o->linear_bwd_weight_strided(k, p[0], p[1], stride_of(d), p[2], d->n, d->c, d->d, false);
}

/* --- linear with gelu: y pre x w bias / dpre dy w pre --- */

static void linear_gelu_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1, STORED };
	a[1] = (struct arg){ SET, d->n * d->d, 1, STORED };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[3] = (struct arg){ IN, d->d * d->c, 0.1, STORED };
	a[4] = (struct arg){ IN, d->d, 1, STORED };
}

static void linear_gelu_fwd_run(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	o->linear_gelu_fwd(k, p[0], p[1], p[2], p[3], d->with ? p[4] : NULL, d->n, d->c, d->d);
}

static void linear_gelu_bwd_args(const struct dims *d, struct arg *a)
{
	linear_bwd_input_args(d, a);
	a[3] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void linear_gelu_bwd_run(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	o->linear_gelu_bwd(k, p[0], p[1], p[2], p[3], d->n, d->c, d->d);
}

/* --- grouped: y x w / dx dy w / dw dy x; n rows in lo groups, every third of which is empty; with:
 * there is space between weights --- */

enum { GROUPS_MAX = 16 };

static int64_t group_stride(const struct dims *d)
{
	return d->c * d->d + (d->with ? 5 : 0);
}

static const int64_t *group_rows(const struct dims *d, int64_t rows[GROUPS_MAX])
{
	int64_t left = d->n;
	for (int i = 0; i < d->lo; i++) {
		rows[i] = i % 3 == 1 ? 0 : i + 1 == d->lo ? left : left / 3;
		left -= rows[i];
	}
	rows[0] += left;
	return rows;
}

static void grouped_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ IN, d->lo * group_stride(d), 0.1, STORED };
}

static void grouped_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	int64_t rows[GROUPS_MAX];
	o->grouped_fwd(k, p[0], p[1], p[2], group_stride(d), group_rows(d, rows), 0, d->lo, d->c,
		       d->d);
}

static void grouped_bwd_input_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->n * d->d, 1, STORED };
	a[2] = (struct arg){ IN, d->lo * group_stride(d), 0.1, STORED };
}

static void grouped_bwd_input_run(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	int64_t rows[GROUPS_MAX];
	o->grouped_bwd_input(k, p[0], p[1], p[2], group_stride(d), group_rows(d, rows), 0, d->lo,
			     d->c, d->d);
}

static void grouped_bwd_weight_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->lo * group_stride(d), 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * d->d, 1, STORED };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
}

static void grouped_bwd_weight_run(const struct ops *o, struct backend *k, const struct dims *d,
				   void **p)
{
	int64_t rows[GROUPS_MAX];
	o->grouped_bwd_weight(k, p[0], group_stride(d), p[1], p[2], group_rows(d, rows), 0, d->lo,
			      d->c, d->d, true);
}

static void grouped_bwd_weight_set_args(const struct dims *d, struct arg *a)
{
	grouped_bwd_weight_args(d, a);
	a[0].kind = INOUT; /* the space between weights stays as it is */
}

static void grouped_bwd_weight_set(const struct ops *o, struct backend *k, const struct dims *d,
				   void **p)
{
	int64_t rows[GROUPS_MAX];
	o->grouped_bwd_weight(k, p[0], group_stride(d), p[1], p[2], group_rows(d, rows), 0, d->lo,
			      d->c, d->d, false);
}

/* --- The same with rows in the backend's memory, and room for more than there are --- */

static void counts_arg(const struct dims *d, struct arg *a)
{
	a[3] = (struct arg){ ROWS, d->lo, 1, STORED };
}

static void counted_fwd_args(const struct dims *d, struct arg *a)
{
	grouped_fwd_args(d, a);
	counts_arg(d, a);
}

static void counted_bwd_input_args(const struct dims *d, struct arg *a)
{
	grouped_bwd_input_args(d, a);
	counts_arg(d, a);
}

static void counted_bwd_weight_args(const struct dims *d, struct arg *a)
{
	grouped_bwd_weight_set_args(d, a);
	counts_arg(d, a);
}

static void counted_bwd_weight_add_args(const struct dims *d, struct arg *a)
{
	grouped_bwd_weight_args(d, a);
	counts_arg(d, a);
}

static void counted_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	group_rows(d, p[3]);
}

static int64_t most_of(const struct dims *d)
{
	return d->n + (d->with ? 300 : 0);
}

static void counted_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->grouped_fwd(k, p[0], p[1], p[2], group_stride(d), p[3], most_of(d), d->lo, d->c, d->d);
}

static void counted_bwd_input_run(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	o->grouped_bwd_input(k, p[0], p[1], p[2], group_stride(d), p[3], most_of(d), d->lo, d->c,
			     d->d);
}

static void counted_bwd_weight_run(const struct ops *o, struct backend *k, const struct dims *d,
				   void **p)
{
	o->grouped_bwd_weight(k, p[0], group_stride(d), p[1], p[2], p[3], most_of(d), d->lo, d->c,
			      d->d, false);
}

static void counted_bwd_weight_add_run(const struct ops *o, struct backend *k, const struct dims *d,
				       void **p)
{
	o->grouped_bwd_weight(k, p[0], group_stride(d), p[1], p[2], p[3], most_of(d), d->lo, d->c,
			      d->d, true);
}

#define GROUPED_DIMS \
	{ \
		{ .n = 1, .c = 1, .d = 1, .lo = 1 }, \
			{ .n = 37, .c = 65, .d = 3, .lo = 4, .with = true }, \
			{ .n = 200, .c = 64, .d = 96, .lo = 8 }, \
			{ .n = 300, .c = 40, .d = 130, .lo = 16 }, \
		{ \
			.n = 130, .c = 128, .d = 64, .lo = 2 \
		} \
	}

#define LINEAR_DIMS \
	{ \
		{ .n = 1, .c = 1, .d = 1, .with = true }, { .n = 1, .c = 96, .d = 130 }, \
			{ .n = 1, .c = 131, .d = 515, .with = true }, \
			{ .n = 37, .c = 65, .d = 3, .with = true }, \
			{ .n = 128, .c = 128, .d = 128, .with = true }, \
			{ .n = 200, .c = 120, .d = 384 }, \
			{ .n = 250, .c = 7, .d = 1023, .with = true }, \
		{ \
			.n = 5, .c = 64, .d = 25129 \
		} \
	}

/* --- norms: y sum mean rstd x r w bias / dx dw dbias dy dres x mean rstd w --- */

static void norm_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ d->with ? SET : IN, d->n * d->c, 1, STORED };
	a[2] = (struct arg){ SET, d->n, 1, SINGLE_OF_STORED };
	a[3] = (struct arg){ SET, d->n, 1, SINGLE_OF_STORED };
	a[4] = (struct arg){ IN, d->n * d->c, 2, STORED };
	a[5] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[6] = (struct arg){ IN, d->c, 1, STORED };
	a[7] = (struct arg){ IN, d->c, 1, STORED };
}

static void layernorm_fwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	o->layernorm_fwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], p[4], d->with ? p[5] : NULL,
			 p[6], p[7], d->n, d->c, 1e-5f);
}

static void rmsnorm_fwd_args(const struct dims *d, struct arg *a)
{
	norm_fwd_args(d, a);
	a[2].kind = IN;
}

static void rmsnorm_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->rmsnorm_fwd(k, p[0], d->with ? p[1] : NULL, p[3], p[4], d->with ? p[5] : NULL, p[6],
		       d->n, d->c, 1e-5f);
}

static void norm_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ ADD, d->c, 1, SINGLE };
	a[2] = (struct arg){ ADD, d->c, 1, SINGLE };
	a[3] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[4] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[5] = (struct arg){ IN, d->n * d->c, 2, STORED };
	a[6] = (struct arg){ IN, d->n, 1, SINGLE };
	a[7] = (struct arg){ IN, d->n, 1, SINGLE };
	a[8] = (struct arg){ IN, d->c, 1, STORED };
	a[9] = (struct arg){ IN, d->n * d->c, 1, STORED }; /* y, only for preparing */
}

static void layernorm_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	o->layernorm_fwd(k, p[9], NULL, p[6], p[7], p[5], NULL, p[8], p[8], d->n, d->c, 1e-5f);
}

static void layernorm_bwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	o->layernorm_bwd(k, p[0], p[1], p[2], p[3], d->with ? p[4] : NULL, p[5], p[6], p[7], p[8],
			 d->n, d->c, true);
}

static void norm_bwd_set_args(const struct dims *d, struct arg *a)
{
	norm_bwd_args(d, a);
	set_weights(a);
}

static void layernorm_bwd_set(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	o->layernorm_bwd(k, p[0], p[1], p[2], p[3], d->with ? p[4] : NULL, p[5], p[6], p[7], p[8],
			 d->n, d->c, false);
}

static void rmsnorm_bwd_args(const struct dims *d, struct arg *a)
{
	norm_bwd_args(d, a);
	a[2].kind = IN;
}

static void rmsnorm_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	o->rmsnorm_fwd(k, p[9], NULL, p[7], p[5], NULL, p[8], d->n, d->c, 1e-5f);
}

static void rmsnorm_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->rmsnorm_bwd(k, p[0], p[1], p[3], d->with ? p[4] : NULL, p[5], p[7], p[8], d->n, d->c,
		       true);
}

static void rmsnorm_bwd_set_args(const struct dims *d, struct arg *a)
{
	rmsnorm_bwd_args(d, a);
	set_weights(a);
}

static void rmsnorm_bwd_set(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->rmsnorm_bwd(k, p[0], p[1], p[3], d->with ? p[4] : NULL, p[5], p[7], p[8], d->n, d->c,
		       false);
}

#define NORM_DIMS \
	{ \
		{ .n = 1, .c = 7 }, { .n = 3, .c = 127, .with = true }, \
			{ .n = 151, .c = 768, .with = true }, { .n = 301, .c = 129 }, \
			{ .n = 2, .c = 5001, .with = true }, \
			{ .n = 301, .c = 2056, .with = true }, \
			{ .n = 9, .c = 5128, .with = true }, { .n = 2, .c = 1024 }, \
		{ \
			.n = 3, .c = 8200 \
		} \
	}

/* clang-format off */
const struct op_test layer_ops[] = {
	{ "linear_fwd", vary_products, false, linear_fwd_args, NULL, linear_fwd_run, LINEAR_DIMS },
	{ "linear_bwd_input", vary_products, false, linear_bwd_input_args, NULL, linear_bwd_input_run, LINEAR_DIMS },
	{ "linear_bwd_weight", vary_products, false, linear_bwd_weight_set_args, NULL, linear_bwd_weight_set, LINEAR_DIMS },
	{ "linear_bwd_weight add", vary_products, false, linear_bwd_weight_args, NULL, linear_bwd_weight_run, LINEAR_DIMS },
	{ "linear_bwd_weight_strided", vary_products, false, linear_bwd_weight_strided_set_args, NULL, linear_bwd_weight_strided_set, LINEAR_DIMS },
	{ "linear_bwd_weight_strided add", vary_products, false, linear_bwd_weight_strided_args, NULL, linear_bwd_weight_strided_run, LINEAR_DIMS },
	{ "linear_gelu_fwd", vary_products, false, linear_gelu_fwd_args, NULL, linear_gelu_fwd_run, LINEAR_DIMS },
	{ "linear_gelu_bwd", vary_products, false, linear_gelu_bwd_args, NULL, linear_gelu_bwd_run, LINEAR_DIMS },
	{ "grouped_fwd", vary_groups, false, grouped_fwd_args, NULL, grouped_fwd_run, GROUPED_DIMS },
	{ "grouped_bwd_input", vary_groups, false, grouped_bwd_input_args, NULL, grouped_bwd_input_run, GROUPED_DIMS },
	{ "grouped_bwd_weight", vary_groups, false, grouped_bwd_weight_set_args, NULL, grouped_bwd_weight_set, GROUPED_DIMS },
	{ "grouped_bwd_weight add", vary_groups, false, grouped_bwd_weight_args, NULL, grouped_bwd_weight_run, GROUPED_DIMS },
	{ "grouped_fwd counted", vary_groups, false, counted_fwd_args, counted_prepare, counted_fwd_run, GROUPED_DIMS },
	{ "grouped_bwd_input counted", vary_groups, false, counted_bwd_input_args, counted_prepare, counted_bwd_input_run, GROUPED_DIMS },
	{ "grouped_bwd_weight counted", vary_groups, false, counted_bwd_weight_args, counted_prepare, counted_bwd_weight_run, GROUPED_DIMS },
	{ "grouped_bwd_weight counted add", vary_groups, false, counted_bwd_weight_add_args, counted_prepare, counted_bwd_weight_add_run, GROUPED_DIMS },
	{ "layernorm_fwd", vary_norms, true, norm_fwd_args, NULL, layernorm_fwd_run, NORM_DIMS },
	{ "layernorm_bwd", vary_norms, true, norm_bwd_set_args, layernorm_bwd_prepare, layernorm_bwd_set, NORM_DIMS },
	{ "layernorm_bwd add", vary_norms, true, norm_bwd_args, layernorm_bwd_prepare, layernorm_bwd_run, NORM_DIMS },
	{ "rmsnorm_fwd", vary_norms, true, rmsnorm_fwd_args, NULL, rmsnorm_fwd_run, NORM_DIMS },
	{ "rmsnorm_bwd", vary_norms, true, rmsnorm_bwd_set_args, rmsnorm_bwd_prepare, rmsnorm_bwd_set, NORM_DIMS },
	{ "rmsnorm_bwd add", vary_norms, true, rmsnorm_bwd_args, rmsnorm_bwd_prepare, rmsnorm_bwd_run, NORM_DIMS },
	{ 0 }
};
/* clang-format on */
