/* Ops that the host's backends make of their others, in any storage. */
#include "kernels/kern.h"

/* --- products fused with GELU --- */

static void linear_gelu_fwd(struct kern *k, void *y, void *pre, const void *x, const void *w, const void *bias,
			    int64_t n, int64_t in, int64_t out)
{
	k->ops.linear_fwd(k, pre, x, w, bias, n, in, out);
	k->ops.gelu_fwd(k, y, pre, n * out);
}

static void linear_gelu_bwd(struct kern *k, void *dpre, const void *dy, const void *w, const void *pre,
			    int64_t n, int64_t in, int64_t out)
{
	k->ops.linear_bwd_input(k, dpre, dy, w, n, in, out);
	k->ops.gelu_bwd(k, dpre, dpre, pre, n * in);
}

/* --- grouped products: one after the other --- */

/* Element i of an array in storage. */
static void *element(const struct kern *k, const void *x, int64_t i)
{
	return (char *)x + (size_t)i * k->element;
}

/* Of gradients of weights: floats, or doubles where those are the storage (plain64). */
static float *gradient(const struct kern *k, float *x, int64_t i)
{
	return k->element == sizeof(double) ? (float *)(void *)((double *)(void *)x + i) : x + i;
}

static void grouped_fwd(struct kern *k, void *y, const void *x, const void *w, int64_t stride, const int64_t *rows, int groups,
			int64_t in, int64_t out)
{
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i])
			k->ops.linear_fwd(k, element(k, y, at * out), element(k, x, at * in), element(k, w, i * stride), NULL,
					  rows[i], in, out);
}

static void grouped_bwd_input(struct kern *k, void *dx, const void *dy, const void *w, int64_t stride, const int64_t *rows,
			      int groups, int64_t in, int64_t out)
{
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i])
			k->ops.linear_bwd_input(k, element(k, dx, at * in), element(k, dy, at * out), element(k, w, i * stride),
						rows[i], in, out);
}

static void grouped_bwd_weight(struct kern *k, float *dw, int64_t stride, const void *dy, const void *x, const int64_t *rows,
			       int groups, int64_t in, int64_t out)
{
	int64_t at = 0;
	for (int i = 0; i < groups; at += rows[i++])
		if (rows[i])
			k->ops.linear_bwd_weight(k, gradient(k, dw, i * stride), NULL, element(k, dy, at * out),
						 element(k, x, at * in), rows[i], in, out);
}

void kern_composed(struct ops *o)
{
	o->linear_gelu_fwd = linear_gelu_fwd;
	o->linear_gelu_bwd = linear_gelu_bwd;
	o->grouped_fwd = grouped_fwd;
	o->grouped_bwd_input = grouped_bwd_input;
	o->grouped_bwd_weight = grouped_bwd_weight;
}
