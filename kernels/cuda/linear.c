/* Linear layers: products by cuBLASLt with what follows them fused in where the library can,
 * else by the ops that do it alone. */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/grouped.h"

/* The library's GELU is as exact as 2 bytes can tell. */
static bool gelu_fits(const struct backend *k)
{
	return cuda_of(k)->storage != STORE_FP32;
}

static void product(struct backend *k, const struct blas_product *p, const char *op)
{
	if (p->m && p->n && p->k && !blas_product(k, p, op))
		fallback_product(k, p, op);
}

/* --- alone
 * ------------------------------------------------------------------------------------------ */

static void linear_fwd(struct backend *k, void *y, const void *x, const void *w, const void *bias,
		       int64_t n, int64_t in, int64_t out)
{
	product(k,
		&(struct blas_product){ .d = y,
					.left = x,
					.right = w,
					.m = n,
					.n = out,
					.k = in,
					.right_flipped = true,
					.after = bias ? BLAS_BIAS : BLAS_STORE,
					.bias = (void *)bias },
		"linear_fwd");
}

static void linear_bwd_input(struct backend *k, void *dx, const void *dy, const void *w, int64_t n,
			     int64_t in, int64_t out)
{
	if (dx)
		product(k,
			&(struct blas_product){
				.d = dx, .left = dy, .right = w, .m = n, .n = in, .k = out },
			"linear_bwd_input");
}

/* Sums of dy come with the product into scratch, if the library makes them: it can set them
 * only. */
static bool weight_and_sums(struct backend *k, struct blas_product *p, float *dbias, int64_t out)
{
	struct blas_product both = *p;
	both.after = BLAS_SUMS;
	both.bias = cuda_scratch(k, (size_t)out * sizeof(float), "linear_bwd_weight");
	if (!both.bias || !blas_product(k, &both, "linear_bwd_weight"))
		return false;
	k->ops.accumulate(k, dbias, both.bias, out);
	return true;
}

static void linear_bwd_weight(struct backend *k, float *dw, float *dbias, const void *dy,
			      const void *x, int64_t n, int64_t in, int64_t out)
{
	struct blas_product p = { .d = dw,
				  .left = dy,
				  .right = x,
				  .m = out,
				  .n = in,
				  .k = n,
				  .left_flipped = true,
				  .single = true,
				  .add = true };
	if (n == 0 || (dbias && weight_and_sums(k, &p, dbias, out)))
		return;
	product(k, &p, "linear_bwd_weight");
	if (dbias)
		k->ops.sum_rows(k, dbias, dy, n, out);
}

/* --- with GELU
 * ---------------------------------------------------------------------------------------- */

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
					.bias = (void *)bias,
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
					.pre = (void *)pre };
	if (n == 0 || (gelu_fits(k) && blas_product(k, &p, "linear_gelu_bwd")))
		return;
	linear_bwd_input(k, dpre, dy, w, n, in, out);
	k->ops.gelu_bwd(k, dpre, dpre, pre, n * in);
}

/* --- in 8 bits
 * ------------------------------------------------------------------------------------------ */

static enum blas_type type_of(const struct fp8_tensor *t)
{
	return t->format == FP8_E4M3 ? BLAS_E4M3 : BLAS_E5M2;
}

/* Chips before Ada have no such products, and cuBLASLt has no fp32 bias for them. */
static void fp8_product(struct backend *k, void *d, const struct fp8_tensor *left,
			const struct fp8_tensor *right, const void *bias, bool single, int64_t m,
			int64_t n, int64_t depth)
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
		.add = single,
		.after = bias ? BLAS_BIAS : BLAS_STORE,
		.bias = (void *)bias,
		.left_type = type_of(left),
		.right_type = type_of(right),
		.left_scale = &left->scale->inverse,
		.right_scale = &right->scale->inverse,
	};
	const bool fits = k->fp8 && !(bias && cuda_of(k)->storage == STORE_FP32);
	if (m && n && depth && !(fits && blas_product(k, &p, "fp8_product")))
		fp8_fallback_product(k, d, left, right, bias, single, m, n, depth);
}

/* --- grouped
 * --------------------------------------------------------------------------------------------- */

/* Groups of so many rows each fill the device alone, and the library's own kernels are faster
 * than ours. */
enum { ROWS_LARGE = 2048 };

static bool groups_large(const struct grouped *g)
{
	int64_t all = 0;
	for (int i = 0; i < g->groups; i++)
		all += g->rows[i];
	return all >= (int64_t)g->groups * ROWS_LARGE;
}

/* Group i, whose rows begin at `row`, by itself. */
static void group_alone(struct backend *k, const struct grouped *g, int i, int64_t row,
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
					   .add = true };
		break;
	}
	product(k, &p, op);
}

static void grouped(struct backend *k, const struct grouped *g, const char *op)
{
	if (!groups_large(g) && grouped_kernel_product(k, g, op))
		return;
	int64_t row = 0;
	for (int i = 0; i < g->groups; row += g->rows[i++])
		group_alone(k, g, i, row, op);
}

static void grouped_fwd(struct backend *k, void *y, const void *x, const void *w, int64_t stride,
			const int64_t *rows, int groups, int64_t in, int64_t out)
{
	grouped(k, &(struct grouped){ GROUPED_FWD, y, x, w, stride, rows, groups, in, out },
		"grouped_fwd");
}

static void grouped_bwd_input(struct backend *k, void *dx, const void *dy, const void *w,
			      int64_t stride, const int64_t *rows, int groups, int64_t in,
			      int64_t out)
{
	grouped(k, &(struct grouped){ GROUPED_INPUT, dx, dy, w, stride, rows, groups, in, out },
		"grouped_bwd_input");
}

static void grouped_bwd_weight(struct backend *k, float *dw, int64_t stride, const void *dy,
			       const void *x, const int64_t *rows, int groups, int64_t in,
			       int64_t out)
{
	grouped(k, &(struct grouped){ GROUPED_WEIGHT, dw, dy, x, stride, rows, groups, in, out },
		"grouped_bwd_weight");
}

void cuda_fill_linear(struct backend *k)
{
	k->ops.linear_fwd = linear_fwd;
	k->ops.linear_bwd_input = linear_bwd_input;
	k->ops.linear_bwd_weight = linear_bwd_weight;
	k->ops.linear_gelu_fwd = linear_gelu_fwd;
	k->ops.linear_gelu_bwd = linear_gelu_bwd;
	k->ops.fp8_product = fp8_product;
	k->ops.grouped_fwd = grouped_fwd;
	k->ops.grouped_bwd_input = grouped_bwd_input;
	k->ops.grouped_bwd_weight = grouped_bwd_weight;
}
