#include "agent/model/stage.h"

/* A view's place in a flat buffer; NULL for a part that the family does not have. */
static float *at(float *flat, int64_t offset)
{
	return offset < 0 ? NULL : flat + offset;
}

void linear_forward(struct model *m, const struct linear_view *l, float *y, const float *x)
{
	m->ops->linear_fwd(m->kern, y, x, m->params + l->w, at(m->params, l->b), m->n, l->in, l->out);
}

int linear_forward_reduced(struct model *m, const struct linear_view *l, float *y, const float *x, struct err *e)
{
	if (m->tp->size == 1) { /* the same, in one pass */
		linear_forward(m, l, y, x);
		return 0;
	}
	m->ops->linear_fwd(m->kern, y, x, m->params + l->w, NULL, m->n, l->in, l->out);
	if (tp_sum(m->tp, y, (size_t)(m->n * l->out), e))
		return -1;
	if (l->b >= 0)
		m->ops->add_bias(m->kern, y, m->params + l->b, m->n, l->out);
	return 0;
}

void linear_backward(struct model *m, const struct linear_view *l, float *dx, const float *dy, const float *x)
{
	m->ops->linear_bwd_weight(m->kern, m->grads + l->w, at(m->grads, l->b), dy, x, m->n, l->in, l->out);
	if (dx)
		m->ops->linear_bwd_input(m->kern, dx, dy, m->params + l->w, m->n, l->in, l->out);
}

void norm_forward(struct model *m, const struct norm_view *v, struct norm_kept *k, float *y, float *x, const float *r)
{
	const float *w = m->params + v->w;
	float eps = (float)m->shape.norm_eps;
	float *sum = r ? k->x : NULL;

	if (m->shape.rms)
		m->ops->rmsnorm_fwd(m->kern, y, sum, k->rstd, x, r, w, m->n, m->shape.hidden, eps);
	else
		m->ops->layernorm_fwd(m->kern, y, sum, k->mean, k->rstd, x, r, w, m->params + v->b, m->n, m->shape.hidden, eps);
	if (!r)
		k->x = x;
}

void norm_backward(struct model *m, const struct norm_view *v, const struct norm_kept *k, float *dx, const float *dy,
		   const float *dres)
{
	const float *w = m->params + v->w;
	float *dw = m->grads + v->w;

	if (m->shape.rms)
		m->ops->rmsnorm_bwd(m->kern, dx, dw, dy, dres, k->x, k->rstd, w, m->n, m->shape.hidden);
	else
		m->ops->layernorm_bwd(m->kern, dx, dw, m->grads + v->b, dy, dres, k->x, k->mean, k->rstd, w, m->n, m->shape.hidden);
}
