/* Activations. GELU's tanh formula equals x · sigmoid(2u), which loses no precision for large -x. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vmath.h"

/* 2u = 2 sqrt(2/pi) (x + 0.044715 x³) */
static const float two_u = 0x1.988454p+0f;
static const float cubic = 0.044715f;

static void gelu_fwd(struct backend *k, void *yv, const void *xv, int64_t count)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, count))
	for (int64_t i = 0; i < count; i++)
		y[i] = x[i] * v_sigmoid(two_u * (x[i] + cubic * x[i] * x[i] * x[i]));
}

static void gelu_bwd(struct backend *k, void *dxv, const void *dyv, const void *xv, int64_t count)
{
	float *dx = dxv;
	const float *dy = dyv, *xs = xv;
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, count))
	for (int64_t i = 0; i < count; i++) {
		float x = xs[i];
		float s = v_sigmoid(two_u * (x + cubic * x * x * x));
		float du = two_u * (1.0f + 3.0f * cubic * x * x);
		dx[i] = dy[i] * (s + x * s * (1.0f - s) * du);
	}
}

static void swiglu_row(float *y, const float *gate, const float *up, int64_t f)
{
	#pragma omp simd
	for (int64_t j = 0; j < f; j++)
		y[j] = gate[j] * v_sigmoid(gate[j]) * up[j];
}

static void swiglu_fwd(struct backend *k, void *yv, const void *guv, int64_t n, int64_t f)
{
	float *y = yv;
	const float *gu = guv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * f))
	for (int64_t i = 0; i < n; i++)
		swiglu_row(y + i * f, gu + i * 2 * f, gu + i * 2 * f + f, f);
}

static void swiglu_row_bwd(float *dgate, float *dup, const float *dy, const float *gate,
			   const float *up, int64_t f)
{
	#pragma omp simd
	for (int64_t j = 0; j < f; j++) {
		float g = gate[j], u = up[j], d = dy[j];
		float s = v_sigmoid(g);
		dgate[j] = d * u * s * (1.0f + g * (1.0f - s));
		dup[j] = d * g * s;
	}
}

static void swiglu_bwd(struct backend *k, void *dguv, const void *dyv, const void *guv, int64_t n,
		       int64_t f)
{
	float *dgu = dguv;
	const float *dy = dyv, *gu = guv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * f))
	for (int64_t i = 0; i < n; i++) {
		int64_t row = i * 2 * f;
		swiglu_row_bwd(dgu + row, dgu + row + f, dy + i * f, gu + row, gu + row + f, f);
	}
}

void CPU(act)(struct ops *o)
{
	o->gelu_fwd = gelu_fwd;
	o->gelu_bwd = gelu_bwd;
	o->swiglu_fwd = swiglu_fwd;
	o->swiglu_bwd = swiglu_bwd;
}
