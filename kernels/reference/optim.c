/* Ops over the flat parameter buffer. */
#include "kernels/reference/reference.h"

#include <math.h>

static void sqnorm(struct backend *k, double *sum, const float *xf, int64_t count)
{
	(void)k;
	const real *x = (const real *)xf;
	double total = 0;
	for (int64_t i = 0; i < count; i++)
		total += (double)x[i] * (double)x[i];
	*sum += total;
}

static void adamw_one(const struct update *u, const struct adamw_args *a,
		      const struct step_numbers *s)
{
	real *ps = (real *)u->p, *ms = (real *)u->m, *vs = (real *)u->v;
	const real *gs = (const real *)u->g;
	double unbias1 = 1 - pow((double)a->beta1, (double)s->step);
	double unbias2 = 1 - pow((double)a->beta2, (double)s->step);
	for (int64_t i = 0; i < u->count; i++) {
		double g = (double)gs[i] * (double)s->grad_scale;
		double m = (double)ms[i] * (double)a->beta1 + g * (1 - (double)a->beta1);
		double v = (double)vs[i] * (double)a->beta2 + g * g * (1 - (double)a->beta2);
		double p = (double)ps[i] * (1 - (double)s->lr * (double)u->weight_decay);
		ps[i] = (real)(p - (double)s->lr * (m / unbias1) /
					   (sqrt(v / unbias2) + (double)a->eps));
		ms[i] = (real)m;
		vs[i] = (real)v;
	}
}

static void adamw(struct backend *k, const struct update *u, int n, const struct adamw_args *a,
		  const struct step_numbers *s)
{
	for (int i = 0; i < n && !s->skip; i++) {
		adamw_one(&u[i], a, s);
		backend_update_store(k, &u[i]);
	}
}

static void sgd_one(const struct update *u, const struct sgd_args *a, const struct step_numbers *s)
{
	real *ps = (real *)u->p, *ms = (real *)u->m;
	const real *gs = (const real *)u->g;
	for (int64_t i = 0; i < u->count; i++) {
		double p = (double)ps[i];
		double m = (double)gs[i] * (double)s->grad_scale + (double)u->weight_decay * p;
		if (s->step > 1)
			m += (double)a->momentum * (double)ms[i];
		ps[i] = (real)(p - (double)s->lr * m);
		ms[i] = (real)m;
	}
}

static void sgd(struct backend *k, const struct update *u, int n, const struct sgd_args *a,
		const struct step_numbers *s)
{
	for (int i = 0; i < n && !s->skip; i++) {
		sgd_one(&u[i], a, s);
		backend_update_store(k, &u[i]);
	}
}

void REFERENCE(optim)(struct ops *o)
{
	o->sqnorm = sqnorm;
	o->adamw = adamw;
	o->sgd = sgd;
}
