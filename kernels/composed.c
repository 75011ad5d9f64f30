/* Forms of ops that call other ops, in any storage type. */
#include "base/numbers.h"
#include "kernels/backend.h"

/* --- Products fused with GELU ------------------------------------------------------------- */

void backend_composed_linear_gelu_fwd(struct backend *k, void *y, void *pre, const void *x,
				      const void *w, const void *bias, int64_t n, int64_t in,
				      int64_t out)
{
	k->ops.linear_fwd(k, pre, x, w, bias, n, in, out);
	k->ops.gelu_fwd(k, y, pre, n * out);
}

void backend_composed_linear_gelu_bwd(struct backend *k, void *dpre, const void *dy, const void *w,
				      const void *pre, int64_t n, int64_t in, int64_t out)
{
	k->ops.linear_bwd_input(k, dpre, dy, w, n, in, out);
	k->ops.gelu_bwd(k, dpre, dpre, pre, n * in);
}

/* --- Ops followed by a cast of what they compute ------------------------------------------ */

void backend_composed_layernorm_fwd_cast(struct backend *k, void *y, void *sum, float *mean,
					 float *rstd, const void *x, const void *r, const void *w,
					 const void *bias, int64_t n, int64_t c, float eps,
					 const struct fp8_copies *to)
{
	k->ops.layernorm_fwd(k, y, sum, mean, rstd, x, r, w, bias, n, c, eps);
	k->ops.fp8_cast(k, y, n, c, to);
}

void backend_composed_rmsnorm_fwd_cast(struct backend *k, void *y, void *sum, float *rstd,
				       const void *x, const void *r, const void *w, int64_t n,
				       int64_t c, float eps, const struct fp8_copies *to)
{
	k->ops.rmsnorm_fwd(k, y, sum, rstd, x, r, w, n, c, eps);
	k->ops.fp8_cast(k, y, n, c, to);
}

void backend_composed_layernorm_bwd_cast(struct backend *k, void *dx, float *dw, float *dbias,
					 const void *dy, const void *dres, const void *x,
					 const float *mean, const float *rstd, const void *w,
					 int64_t n, int64_t c, bool add,
					 const struct fp8_copies *to)
{
	k->ops.layernorm_bwd(k, dx, dw, dbias, dy, dres, x, mean, rstd, w, n, c, add);
	k->ops.fp8_cast(k, dx, n, c, to);
}

void backend_composed_rmsnorm_bwd_cast(struct backend *k, void *dx, float *dw, const void *dy,
				       const void *dres, const void *x, const float *rstd,
				       const void *w, int64_t n, int64_t c, bool add,
				       const struct fp8_copies *to)
{
	k->ops.rmsnorm_bwd(k, dx, dw, dy, dres, x, rstd, w, n, c, add);
	k->ops.fp8_cast(k, dx, n, c, to);
}

void backend_composed_gelu_fwd_cast(struct backend *k, void *y, const void *x, int64_t n, int64_t c,
				    const struct fp8_copies *to)
{
	k->ops.gelu_fwd(k, y, x, n * c);
	k->ops.fp8_cast(k, y, n, c, to);
}

void backend_composed_gelu_bwd_cast(struct backend *k, void *dx, const void *dy, const void *x,
				    int64_t n, int64_t c, const struct fp8_copies *to)
{
	k->ops.gelu_bwd(k, dx, dy, x, n * c);
	k->ops.fp8_cast(k, dx, n, c, to);
}

void backend_composed_swiglu_fwd_cast(struct backend *k, void *y, const void *gu, int64_t n,
				      int64_t f, const struct fp8_copies *to)
{
	k->ops.swiglu_fwd(k, y, gu, n, f);
	k->ops.fp8_cast(k, y, n, f, to);
}

void backend_composed_swiglu_bwd_cast(struct backend *k, void *dgu, const void *dy, const void *gu,
				      int64_t n, int64_t f, const struct fp8_copies *to)
{
	k->ops.swiglu_bwd(k, dgu, dy, gu, n, f);
	k->ops.fp8_cast(k, dgu, n, 2 * f, to);
}

/* --- Grouped products, one after the other ------------------------------------------------ */

/* The address of element i of an array in the storage type. */
static void *element(const struct backend *k, const void *x, int64_t i)
{
	return (char *)x + (size_t)i * k->element;
}

/* The address of element i of an array that is fp32 in every storage type, and doubles for
 * reference64. */
static float *fp32_element(const struct backend *k, float *x, int64_t i)
{
	return k->element == sizeof(double) ? (float *)(void *)((double *)(void *)x + i) : x + i;
}

void backend_composed_grouped_fwd(struct backend *k, void *y, const void *x, const void *w,
				  int64_t stride, const int64_t *rows, int64_t most, int groups,
				  int64_t in, int64_t out)
{
	(void)most;
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i])
			k->ops.linear_fwd(k, element(k, y, at * out), element(k, x, at * in),
					  element(k, w, i * stride), NULL, rows[i], in, out);
}

void backend_composed_grouped_bwd_input(struct backend *k, void *dx, const void *dy, const void *w,
					int64_t stride, const int64_t *rows, int64_t most,
					int groups, int64_t in, int64_t out)
{
	(void)most;
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i])
			k->ops.linear_bwd_input(k, element(k, dx, at * in),
						element(k, dy, at * out), element(k, w, i * stride),
						rows[i], in, out);
}

void backend_composed_grouped_bwd_weight(struct backend *k, float *dw, int64_t stride,
					 const void *dy, const void *x, const int64_t *rows,
					 int64_t most, int groups, int64_t in, int64_t out,
					 bool add)
{
	(void)most;
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i] || !add)
			k->ops.linear_bwd_weight(k, fp32_element(k, dw, i * stride), NULL,
						 element(k, dy, at * out), element(k, x, at * in),
						 rows[i], in, out, add);
}

/* --- Cross-entropy: its three steps over a few rows at a time ----------------------------- */

enum { XENT_ROWS = 256 };

void backend_host_xent(struct backend *k, void *logits, float *sum, float *target,
		       const int32_t *targets, const float *scale, int64_t n, int64_t v,
		       int64_t row)
{
	double max[XENT_ROWS]; /* room for floats or doubles */
	for (int64_t i = 0; i < n; i += XENT_ROWS) {
		int64_t rows = min_int64(n - i, XENT_ROWS);
		void *some = element(k, logits, i * row);
		k->ops.xent_max(k, (float *)max, some, rows, v, row);
		k->ops.xent_exp(k, some, fp32_element(k, sum, i), fp32_element(k, target, i),
				(float *)max, targets + i, rows, v, row, 0);
		k->ops.xent_grad(k, some, fp32_element(k, sum, i), targets + i, scale, rows, v, row,
				 0);
	}
}
