/* What runs over the flat parameter buffer. */
#include "kernels/plain/plain.h"

#include <math.h>

static double sqnorm(struct kern *k, const float *xf, int64_t count)
{
	(void)k;
	const real *x = (const real *)xf;
	double sum = 0;
	for (int64_t i = 0; i < count; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

static void adamw(struct kern *k, float *pf, const float *gf, float *mf, float *vf, int64_t count,
		  const struct adamw_args *a)
{
	(void)k;
	real *ps = (real *)pf, *ms = (real *)mf, *vs = (real *)vf;
	const real *gs = (const real *)gf;
	double unbias1 = 1 - pow((double)a->beta1, (double)a->step);
	double unbias2 = 1 - pow((double)a->beta2, (double)a->step);
	for (int64_t i = 0; i < count; i++) {
		double g = (double)gs[i] * (double)a->grad_scale;
		double m = (double)ms[i] * (double)a->beta1 + g * (1 - (double)a->beta1);
		double v = (double)vs[i] * (double)a->beta2 + g * g * (1 - (double)a->beta2);
		double p = (double)ps[i] * (1 - (double)a->lr * (double)a->weight_decay);
		ps[i] = (real)(p - (double)a->lr * (m / unbias1) / (sqrt(v / unbias2) + (double)a->eps));
		ms[i] = (real)m;
		vs[i] = (real)v;
	}
}

static void sgd(struct kern *k, float *pf, const float *gf, float *mf, int64_t count, const struct sgd_args *a)
{
	(void)k;
	real *ps = (real *)pf, *ms = (real *)mf;
	const real *gs = (const real *)gf;
	for (int64_t i = 0; i < count; i++) {
		double p = (double)ps[i];
		double m = (double)gs[i] * (double)a->grad_scale + (double)a->weight_decay * p;
		if (a->step > 1)
			m += (double)a->momentum * (double)ms[i];
		ps[i] = (real)(p - (double)a->lr * m);
		ms[i] = (real)m;
	}
}

void PLAIN(optim)(struct ops *o)
{
	o->sqnorm = sqnorm;
	o->adamw = adamw;
	o->sgd = sgd;
}
