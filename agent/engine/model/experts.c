/* Computes this rank's experts. Each expert is a SwiGLU feed-forward part over its own rows. The
 * rows are sorted by expert. */
#include "agent/engine/model/moe.h"

static int count_of(const struct model *m)
{
	return m->moe->ep->hi - m->moe->ep->lo;
}

/* Where the rows of each expert are counted. */
static const int64_t *rows_of(const struct moe_saved *k)
{
	const int64_t *on_device = k->per_expert ? k->per_expert : k->counts;
	return k->most ? on_device : k->plan.per_expert;
}

static void multiply_experts(struct model *m, const struct block_view *v,
			     const struct linear_view *l, void *y, const void *x,
			     const struct moe_saved *k)
{
	m->ops->grouped_fwd(m->backend, y, x, model_unit_param(m, l->unit, l->w), v->expert_stride,
			    rows_of(k), k->most, count_of(m), l->in, l->out);
}

static void experts_input_grad(struct model *m, const struct block_view *v,
			       const struct linear_view *l, void *dx, const void *dy,
			       const struct moe_saved *k)
{
	m->ops->grouped_bwd_input(m->backend, dx, dy, model_unit_param(m, l->unit, l->w),
				  v->expert_stride, rows_of(k), k->most, count_of(m), l->in,
				  l->out);
}

static void experts_weight_grad(struct model *m, const struct block_view *v,
				const struct linear_view *l, const void *dy, const void *x,
				const struct moe_saved *k)
{
	const struct weight_grad g = model_experts_grad(m, l, v->expert_stride, count_of(m));
	m->ops->grouped_bwd_weight(m->backend, g.w, v->expert_stride, dy, x, rows_of(k), k->most,
				   count_of(m), l->in, l->out, g.add);
}

void model_experts_forward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			   void *out)
{
	struct model *m = p->m;
	multiply_experts(m, v, &v->experts->up, k->gu, k->x, k);
	m->ops->swiglu_fwd(m->backend, k->act, k->gu, k->plan.received, m->d.act);
	multiply_experts(m, v, &v->experts->down, out, k->act, k);
}

void model_experts_backward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			    void *dx, const void *dout, void *dact)
{
	struct model *m = p->m;
	const struct linear_view *up = &v->experts->up, *down = &v->experts->down;
	if (p->input) {
		experts_input_grad(m, v, down, dact, dout, k);
		m->ops->swiglu_bwd(m->backend, k->dgu, dact, k->gu, k->plan.received, m->d.act);
		experts_input_grad(m, v, up, dx, k->dgu, k);
	}
	if (p->weight) {
		experts_weight_grad(m, v, down, dout, k->act, k);
		experts_weight_grad(m, v, up, k->dgu, k->x, k);
	}
}
