/* Rotary position embedding (Su et al., arXiv 2104.09864) of q and k in the fused projection. */
#include "kernels/plain/plain.h"

#include <math.h>

/* Rotates the pairs (i, i + half) of one head by sign * pos * theta^(-i/half). */
static void rotate(real *x, int64_t pos, int dim, double theta, double sign)
{
	int half = dim / 2;
	for (int i = 0; i < half; i++) {
		double angle = sign * (double)pos * pow(theta, -(double)i / half);
		double c = cos(angle), s = sin(angle);
		double a = (double)x[i], b = (double)x[i + half];
		x[i] = (real)(a * c - b * s);
		x[i + half] = (real)(a * s + b * c);
	}
}

static void rotate_all(real *qkv, const struct attn_shape *s, double theta, double sign)
{
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim;
	for (int64_t i = 0; i < s->batch * s->seq; i++)
		for (int h = 0; h < s->heads + s->kv_heads; h++)
			rotate(qkv + i * row + (int64_t)h * s->dim, i % s->seq, s->dim, theta, sign);
}

static void rope_fwd(struct kern *k, void *qkv, const struct attn_shape *s, float theta)
{
	(void)k;
	rotate_all(qkv, s, (double)theta, 1);
}

static void rope_bwd(struct kern *k, void *dqkv, const struct attn_shape *s, float theta)
{
	(void)k;
	rotate_all(dqkv, s, (double)theta, -1);
}

void PLAIN(rope)(struct ops *o)
{
	o->rope_fwd = rope_fwd;
	o->rope_bwd = rope_bwd;
}
