#include "agent/engine/model/stage.h"

/* LayerNorm keeps the means, then the reciprocal deviations; RMSNorm only the latter. */
static int64_t rstd_begin(const struct model *m)
{
	return (m->d.stats - 1) * m->d.s;
}

void model_norm_forward(struct model *m, const struct norm_view *v, void *y, void *sum,
			float *stats, const void *x, const void *r)
{
	const void *w = model_unit_param(m, v->unit, v->w);
	float eps = (float)m->shape->norm_eps, *rstd = stats + rstd_begin(m);

	if (m->shape->rms)
		m->ops->rmsnorm_fwd(m->backend, y, r ? sum : NULL, rstd, x, r, w, m->d.s, m->d.c,
				    eps);
	else
		m->ops->layernorm_fwd(m->backend, y, r ? sum : NULL, stats, rstd, x, r, w,
				      model_unit_param(m, v->unit, v->b), m->d.s, m->d.c, eps);
}

void model_norm_backward(struct model *m, const struct norm_view *v, void *dx, const void *dy,
			 const void *dres, const void *x, const float *stats)
{
	const void *w = model_unit_param(m, v->unit, v->w);
	const float *rstd = stats + rstd_begin(m);
	const struct weight_grad g = model_norm_grad(m, v);

	if (m->shape->rms)
		m->ops->rmsnorm_bwd(m->backend, dx, g.w, dy, dres, x, rstd, w, m->d.s, m->d.c,
				    g.add);
	else
		m->ops->layernorm_bwd(m->backend, dx, g.w, g.b, dy, dres, x, stats, rstd, w, m->d.s,
				      m->d.c, g.add);
}
