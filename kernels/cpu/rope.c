/* Rotary position embedding: the angles of a place are made once, for all heads and sequences of the batch. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <omp.h>

static void rotate(float *restrict x, const float *restrict cosine, const float *restrict sine, int half)
{
	#pragma omp simd
	for (int i = 0; i < half; i++) {
		float a = x[i], b = x[i + half];
		x[i] = a * cosine[i] - b * sine[i];
		x[i + half] = a * sine[i] + b * cosine[i];
	}
}

static void angles(float *cosine, float *sine, const double *freq, double pos, double sign, int half)
{
	for (int i = 0; i < half; i++) {
		double c, s;
		sincos(pos * freq[i], &s, &c);
		cosine[i] = (float)c;
		sine[i] = (float)(sign * s);
	}
}

static void rotate_all(struct kern *k, float *qkv, const struct attn_shape *s, double theta, double sign)
{
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim;
	int half = s->dim / 2;
	#pragma omp parallel num_threads(cpu_team(k, s->batch * s->seq * row))
	{
		double *freq = kern_scratch(k, omp_get_thread_num());
		float *cosine = (float *)(freq + half), *sine = cosine + half;
		for (int i = 0; i < half; i++)
			freq[i] = pow(theta, -(double)i / half);
		#pragma omp for schedule(static)
		for (int64_t pos = 0; pos < s->seq; pos++) {
			angles(cosine, sine, freq, (double)pos, sign, half);
			for (int64_t b = 0; b < s->batch; b++)
				for (int h = 0; h < s->heads + s->kv_heads; h++)
					rotate(qkv + (b * s->seq + pos) * row + (int64_t)h * s->dim, cosine, sine, half);
		}
	}
}

static void rope_fwd(struct kern *k, void *qkv, const struct attn_shape *s, float theta)
{
	rotate_all(k, qkv, s, (double)theta, 1);
}

static void rope_bwd(struct kern *k, void *dqkv, const struct attn_shape *s, float theta)
{
	rotate_all(k, dqkv, s, (double)theta, -1);
}

void CPU(rope)(struct ops *o)
{
	o->rope_fwd = rope_fwd;
	o->rope_bwd = rope_bwd;
}
