/* Activations, element by element. */
#include "kernels/reference/reference.h"

#include <math.h>

/* GELU(x) = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x³): Hendrycks and Gimpel, arXiv
 * 1606.08415. */
static const double sqrt_2_pi = 0.79788456080286535588;
static const double cubic = 0.044715;

static void gelu_fwd(struct backend *k, void *yv, const void *xv, int64_t count)
{
	(void)k;
	real *y = yv;
	const real *xs = xv;
	for (int64_t i = 0; i < count; i++) {
		double x = (double)xs[i];
		y[i] = (real)(x / 2 * (1 + tanh(sqrt_2_pi * (x + cubic * x * x * x))));
	}
}

static void gelu_bwd(struct backend *k, void *dxv, const void *dyv, const void *xv, int64_t count)
{
	(void)k;
	real *dx = dxv;
	const real *dy = dyv, *xs = xv;
	for (int64_t i = 0; i < count; i++) {
		double x = (double)xs[i];
		double t = tanh(sqrt_2_pi * (x + cubic * x * x * x));
		double du = sqrt_2_pi * (1 + 3 * cubic * x * x);
		dx[i] = (real)((double)dy[i] * ((1 + t) / 2 + x / 2 * (1 - t * t) * du));
	}
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static void swiglu_fwd(struct backend *k, void *yv, const void *guv, int64_t n, int64_t f)
{
	(void)k;
	real *y = yv;
	const real *gu = guv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < f; j++) {
			double gate = (double)gu[i * 2 * f + j], up = (double)gu[i * 2 * f + f + j];
			y[i * f + j] = (real)(gate * sigmoid(gate) * up);
		}
}

static void swiglu_bwd(struct backend *k, void *dguv, const void *dyv, const void *guv, int64_t n,
		       int64_t f)
{
	(void)k;
	real *dgu = dguv;
	const real *dy = dyv, *gu = guv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < f; j++) {
			double gate = (double)gu[i * 2 * f + j], up = (double)gu[i * 2 * f + f + j];
			double s = sigmoid(gate), d = (double)dy[i * f + j];
			dgu[i * 2 * f + j] = (real)(d * up * s * (1 + gate * (1 - s)));
			dgu[i * 2 * f + f + j] = (real)(d * gate * s);
		}
}

void REFERENCE(act)(struct ops *o)
{
	o->gelu_fwd = gelu_fwd;
	o->gelu_bwd = gelu_bwd;
	o->swiglu_fwd = swiglu_fwd;
	o->swiglu_bwd = swiglu_bwd;
}
