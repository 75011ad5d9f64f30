#include "agent/engine/model/stage.h"

/* LayerNorm keeps the means, then the reciprocal deviations; RMSNorm only the latter. */
static int64_t rstd_begin(const struct model *m)
{
	return (m->d.stats - 1) * m->d.s;
}

void model_norm_forward(struct model *m, const struct norm_view *v, void *y, void *sum,
			float *stats, const void *x, const void *r)
{
	model_norm_forward_cast(m, v, y, sum, stats, x, r, NULL);
}

void model_norm_forward_cast(struct model *m, const struct norm_view *v, void *y, void *sum,
			     float *stats, const void *x, const void *r,
			     const struct fp8_copies *to)
{
	const void *w = model_unit_param(m, v->unit, v->w);
	const void *b = m->shape->rms ? NULL : model_unit_param(m, v->unit, v->b);
	float eps = (float)m->shape->norm_eps, *rstd = stats + rstd_begin(m);

	sum = r ? sum : NULL;
	if (m->shape->rms && to)
		m->ops->rmsnorm_fwd_cast(m->backend, y, sum, rstd, x, r, w, m->d.s, m->d.c, eps,
					 to);
	else if (to)
		m->ops->layernorm_fwd_cast(m->backend, y, sum, stats, rstd, x, r, w, b, m->d.s,
					   m->d.c, eps, to);
	else if (m->shape->rms)
		m->ops->rmsnorm_fwd(m->backend, y, sum, rstd, x, r, w, m->d.s, m->d.c, eps);
	else
		m->ops->layernorm_fwd(m->backend, y, sum, stats, rstd, x, r, w, b, m->d.s, m->d.c,
				      eps);
}

void model_norm_backward(struct model *m, const struct norm_view *v, void *dx, const void *dy,
			 const void *dres, const void *x, const float *stats,
			 const struct fp8_copies *to)
{
	const void *w = model_unit_param(m, v->unit, v->w);
	const float *rstd = stats + rstd_begin(m);
	const struct weight_grad g = model_norm_grad(m, v);

	if (m->shape->rms && to)
		m->ops->rmsnorm_bwd_cast(m->backend, dx, g.w, dy, dres, x, rstd, w, m->d.s, m->d.c,
					 g.add, to);
	else if (to)
		m->ops->layernorm_bwd_cast(m->backend, dx, g.w, g.b, dy, dres, x, stats, rstd, w,
					   m->d.s, m->d.c, g.add, to);
	else if (m->shape->rms)
		m->ops->rmsnorm_bwd(m->backend, dx, g.w, dy, dres, x, rstd, w, m->d.s, m->d.c,
				    g.add);
	else
		m->ops->layernorm_bwd(m->backend, dx, g.w, g.b, dy, dres, x, stats, rstd, w, m->d.s,
				      m->d.c, g.add);
}
