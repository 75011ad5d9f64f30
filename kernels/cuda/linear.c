/* Linear layers: products by cuBLASLt. What follows a product is its epilogue where the library
 * supports that, otherwise an op of its own. */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/grouped.h"

/* The library's GELU is exact enough for storage of 2 bytes, but not for fp32. */
static bool gelu_fits(const struct backend *k)
{
	return cuda_of(k)->storage != STORE_FP32;
}

/* What the library does not support is slow, which nobody else would report. */
static void report_slow(struct backend *k, const struct blas_product *p, const char *op)
{
	cuda_notice(k, NOTICE_PRODUCT,
		    "backend cuda: cuBLASLt does not support %s with m=%lld n=%lld k=%lld; "
		    "muster's own kernel is used, which is slow; sizes that are multiples of %d "
		    "avoid it",
		    op, (long long)p->m, (long long)p->n, (long long)p->k,
		    p->left_type == BLAS_STORED ? 8 : 16);
}

static void queue_product(struct backend *k, const struct blas_product *p, const char *op)
{
	if (!p->m || !p->n || !p->k || blas_product(k, p, op))
		return;
	report_slow(k, p, op);
	fallback_product(k, p, op);
}

/* --- Products ----------------------------------------------------------------------------- */

static void linear_fwd(struct backend *k, void *y, const void *x, const void *w, const void *bias,
		       int64_t n, int64_t in, int64_t out)
{
	queue_product(k,
		      &(struct blas_product){ .d = y,
					      .left = x,
					      .right = w,
					      .m = n,
					      .n = out,
					      .k = in,
					      .right_flipped = true,
					      .after = bias ? BLAS_BIAS : BLAS_STORE,
					      .bias = bias },
		      "linear_fwd");
}

static void linear_bwd_input(struct backend *k, void *dx, const void *dy, const void *w, int64_t n,
			     int64_t in, int64_t out)
{
	if (dx)
		queue_product(k,
			      &(struct blas_product){
				      .d = dx, .left = dy, .right = w, .m = n, .n = in, .k = out },
			      "linear_bwd_input");
}

/* If the library supports it, the product also sums dy. The library can only set the sums: those to
 * add go to scratch first. */
static bool product_with_sums(struct backend *k, struct blas_product *p, float *dbias, int64_t out)
{
	struct blas_product both = *p;
	both.after = BLAS_SUMS;
	both.sums = p->add ? cuda_scratch(k, (size_t)out * sizeof(float), "linear_bwd_weight")
			   : dbias;
	if (!both.sums || !blas_product(k, &both, "linear_bwd_weight"))
		return false;
	if (p->add)
		k->ops.accumulate(k, dbias, both.sums, out);
	return true;
}

/* A product over no rows. */
static void set_nothing(struct backend *k, float *d, int64_t count, bool add)
{
	if (d && !add)
		cuda_memory_zero(k, d, (size_t)count * sizeof *d);
}

static void linear_bwd_weight(struct backend *k, float *dw, float *dbias, const void *dy,
			      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	struct blas_product p = { .d = dw,
				  .left = dy,
				  .right = x,
				  .m = out,
				  .n = in,
				  .k = n,
				  .left_flipped = true,
				  .single = true,
				  .add = add };
	if (n == 0) {
		set_nothing(k, dw, out * in, add);
		set_nothing(k, dbias, out, add);
		return;
	}
	if (dbias && product_with_sums(k, &p, dbias, out))
		return;
	queue_product(k, &p, "linear_bwd_weight");
	if (dbias)
		k->ops.sum_rows(k, dbias, dy, n, out, add);
}

/* cuBLASLt's fastest kernels need addresses, strides and sizes that are multiples of 16 bytes
 * (cuBLAS library, "Tensor Core Usage"). The last columns of dy that are not have a product of
 * their own. */
enum { COLUMNS_WHOLE = 8 };

static void linear_bwd_weight_strided(struct backend *k, float *dw, const void *dy, int64_t row,
				      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	const int64_t whole = row == out ? out : out - out % COLUMNS_WHOLE;
	struct blas_product p = { .d = dw,
				  .left = dy,
				  .right = x,
				  .m = whole,
				  .n = in,
				  .k = n,
				  .left_flipped = true,
				  .left_row = row == out ? 0 : row,
				  .single = true,
				  .add = add };
	if (n == 0)
		set_nothing(k, dw, out * in, add);
	queue_product(k, &p, "linear_bwd_weight_strided");
	p.d = dw + whole * in;
	p.left = (const char *)dy + (size_t)whole * k->element;
	p.m = out - whole;
	queue_product(k, &p, "linear_bwd_weight_strided");
}

/* --- With GELU ---------------------------------------------------------------------------- */

static void linear_gelu_fwd(struct backend *k, void *y, void *pre, const void *x, const void *w,
			    const void *bias, int64_t n, int64_t in, int64_t out)
{
	const struct blas_product p = { .d = y,
					.left = x,
					.right = w,
					.m = n,
					.n = out,
					.k = in,
					.right_flipped = true,
					.after = bias ? BLAS_GELU_BIAS : BLAS_GELU,
					.bias = bias,
					.pre = pre };
	if (n == 0 || (gelu_fits(k) && blas_product(k, &p, "linear_gelu_fwd")))
		return;
	linear_fwd(k, pre, x, w, bias, n, in, out);
	k->ops.gelu_fwd(k, y, pre, n * out);
}

static void linear_gelu_bwd(struct backend *k, void *dpre, const void *dy, const void *w,
			    const void *pre, int64_t n, int64_t in, int64_t out)
{
	const struct blas_product p = { .d = dpre,
					.left = dy,
					.right = w,
					.m = n,
					.n = in,
					.k = out,
					.after = BLAS_GELU_SLOPE,
					.given_pre = pre };
	if (n == 0 || (gelu_fits(k) && blas_product(k, &p, "linear_gelu_bwd")))
		return;
	linear_bwd_input(k, dpre, dy, w, n, in, out);
	k->ops.gelu_bwd(k, dpre, dpre, pre, n * in);
}

/* --- fp8 --------------------------------------------------------------------------------- */

static enum blas_type type_of(const struct fp8_tensor *t)
{
	return t->format == FP8_E4M3 ? BLAS_E4M3 : BLAS_E5M2;
}

/* Whether the rows have no padding beyond `depth`. Where they have, depth is not a multiple of 16,
 * and the library has no such products. */
static bool is_dense(const struct fp8_tensor *t, int64_t depth)
{
	return !t->row || t->row == depth;
}

/* Chips before Ada have no fp8 products, and cuBLASLt has no fp32 bias for them. */
static void fp8_product(struct backend *k, void *d, const struct fp8_tensor *left,
			const struct fp8_tensor *right, const void *bias, bool single, bool add,
			int64_t m, int64_t n, int64_t depth)
{
	const struct blas_product p = {
		.d = d,
		.left = left->at,
		.right = right->at,
		.m = m,
		.n = n,
		.k = depth,
		.right_flipped = true,
		.single = single,
		.add = single && add,
		.fast = left->fast,
		.after = bias ? BLAS_BIAS : BLAS_STORE,
		.bias = bias,
		.left_type = type_of(left),
		.right_type = type_of(right),
		.left_scale = &left->scale->inverse,
		.right_scale = &right->scale->inverse,
	};
	const bool dense = is_dense(left, depth) && is_dense(right, depth),
		   typed = k->fp8 && !(bias && cuda_of(k)->storage == STORE_FP32);
	if (!m || !n || !depth || (typed && dense && blas_product(k, &p, "fp8_product")))
		return;
	if (typed)
		report_slow(k, &p, "fp8_product");
	fp8_fallback_product(k, d, left, right, bias, single, add, m, n, depth);
}

/* --- Grouped ------------------------------------------------------------------------------ */

/* Whether a group fills the device by itself. Then the library's kernels are faster than ours. */
static bool are_groups_large(const struct grouped *g)
{
	int64_t all = 0;
	for (int i = 0; i < g->groups; i++)
		all += g->rows[i];
	return all >= (int64_t)g->groups * BACKEND_GROUP_LARGE;
}

/* Computes group i, whose rows begin at `row`, as a single product. */
static void queue_group(struct backend *k, const struct grouped *g, int i, int64_t row,
			const char *op)
{
	const int64_t n = g->rows[i], in = g->in, out = g->out;
	const char *left = g->left, *right = g->right;
	char *d = g->d;
	struct blas_product p = { 0 };
	switch (g->form) {
	case GROUPED_FWD:
		p = (struct blas_product){ .d = d + (size_t)(row * out) * k->element,
					   .left = left + (size_t)(row * in) * k->element,
					   .right = right + (size_t)(i * g->stride) * k->element,
					   .m = n,
					   .n = out,
					   .k = in,
					   .right_flipped = true };
		break;
	case GROUPED_INPUT:
		p = (struct blas_product){ .d = d + (size_t)(row * in) * k->element,
					   .left = left + (size_t)(row * out) * k->element,
					   .right = right + (size_t)(i * g->stride) * k->element,
					   .m = n,
					   .n = in,
					   .k = out };
		break;
	case GROUPED_WEIGHT:
		p = (struct blas_product){ .d = (float *)g->d + i * g->stride,
					   .left = left + (size_t)(row * out) * k->element,
					   .right = right + (size_t)(row * in) * k->element,
					   .m = out,
					   .n = in,
					   .k = n,
					   .left_flipped = true,
					   .single = true,
					   .add = g->add };
		if (n == 0)
			set_nothing(k, p.d, out * in, g->add);
		break;
	}
	p.varies = true;
	queue_product(k, &p, op);
}

static void queue_host_groups(struct backend *k, const struct grouped *g, const char *op)
{
	if (!are_groups_large(g) && grouped_kernel_product(k, g, op))
		return;
	int64_t row = 0;
	for (int i = 0; i < g->groups; row += g->rows[i++])
		queue_group(k, g, i, row, op);
}

static void queue_groups(struct backend *k, const struct grouped *g, const char *op)
{
	if (!g->most)
		queue_host_groups(k, g, op);
	else if (!grouped_kernel_product(k, g, op))
		fallback_counted(k, g, op);
}

static void grouped_fwd(struct backend *k, void *y, const void *x, const void *w, int64_t stride,
			const int64_t *rows, int64_t most, int groups, int64_t in, int64_t out)
{
	queue_groups(k,
		     &(struct grouped){ GROUPED_FWD, y, x, w, stride, rows, most, groups, in, out,
					false },
		     "grouped_fwd");
}

static void grouped_bwd_input(struct backend *k, void *dx, const void *dy, const void *w,
			      int64_t stride, const int64_t *rows, int64_t most, int groups,
			      int64_t in, int64_t out)
{
	queue_groups(k,
		     &(struct grouped){ GROUPED_INPUT, dx, dy, w, stride, rows, most, groups, in,
					out, false },
		     "grouped_bwd_input");
}

static void grouped_bwd_weight(struct backend *k, float *dw, int64_t stride, const void *dy,
			       const void *x, const int64_t *rows, int64_t most, int groups,
			       int64_t in, int64_t out, bool add)
{
	queue_groups(k,
		     &(struct grouped){ GROUPED_WEIGHT, dw, dy, x, stride, rows, most, groups, in,
					out, add },
		     "grouped_bwd_weight");
}

void cuda_fill_linear(struct backend *k)
{
	k->ops.linear_fwd = linear_fwd;
	k->ops.linear_bwd_input = linear_bwd_input;
	k->ops.linear_bwd_weight = linear_bwd_weight;
	k->ops.linear_bwd_weight_strided = linear_bwd_weight_strided;
	k->ops.linear_gelu_fwd = linear_gelu_fwd;
	k->ops.linear_gelu_bwd = linear_gelu_bwd;
	k->ops.fp8_product = fp8_product;
	k->ops.grouped_fwd = grouped_fwd;
	k->ops.grouped_bwd_input = grouped_bwd_input;
	k->ops.grouped_bwd_weight = grouped_bwd_weight;
}
