/* Rotary position embedding, token by token. */
#include "kernels/cpu/cpu.h"

static void rotate(float *restrict x, const float *restrict cosine, const float *restrict sine,
		   float sign, int half)
{
	#pragma omp simd
	for (int i = 0; i < half; i++) {
		float a = x[i], b = x[i + half], c = cosine[i], s = sign * sine[i];
		x[i] = a * c - b * s;
		x[i + half] = a * s + b * c;
	}
}

static void rotate_all(struct backend *k, float *x, const struct rope_shape *s, const float *cosine,
		       const float *sine, float sign)
{
	int half = s->dim / 2;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, s->n * s->heads * s->dim))
	for (int64_t i = 0; i < s->n; i++) {
		int64_t at = i % s->seq * half;
		for (int h = 0; h < s->heads; h++)
			rotate(x + i * s->row + (int64_t)h * s->dim, cosine + at, sine + at, sign,
			       half);
	}
}

static void rope_fwd(struct backend *k, void *x, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	rotate_all(k, x, s, cosine, sine, 1);
}

static void rope_bwd(struct backend *k, void *dx, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	rotate_all(k, dx, s, cosine, sine, -1);
}

void CPU(rope)(struct ops *o)
{
	o->rope_fwd = rope_fwd;
	o->rope_bwd = rope_bwd;
}
