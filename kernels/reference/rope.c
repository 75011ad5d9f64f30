/* Rotary position embedding (Su et al., arXiv 2104.09864). */
#include "kernels/reference/reference.h"

/* Rotates the pairs (i, i + half) of one head by sign times the angles with these cosines and
 * sines. */
static void rotate(real *x, const real *cosine, const real *sine, int half, double sign)
{
	for (int i = 0; i < half; i++) {
		double c = (double)cosine[i], s = sign * (double)sine[i];
		double a = (double)x[i], b = (double)x[i + half];
		x[i] = (real)(a * c - b * s);
		x[i + half] = (real)(a * s + b * c);
	}
}

static void rotate_all(real *x, const struct rope_shape *s, const real *cosine, const real *sine,
		       double sign)
{
	int half = s->dim / 2;
	for (int64_t i = 0; i < s->n; i++)
		for (int h = 0; h < s->heads; h++)
			rotate(x + i * s->row + (int64_t)h * s->dim, cosine + i % s->seq * half,
			       sine + i % s->seq * half, half, sign);
}

static void rope_fwd(struct backend *k, void *x, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	(void)k;
	rotate_all(x, s, (const real *)cosine, (const real *)sine, 1);
}

static void rope_bwd(struct backend *k, void *dx, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	(void)k;
	rotate_all(dx, s, (const real *)cosine, (const real *)sine, -1);
}

void REFERENCE(rope)(struct ops *o)
{
	o->rope_fwd = rope_fwd;
	o->rope_bwd = rope_bwd;
}
