/* This rank's experts: each a SwiGLU feed-forward part over its own rows. */
#include "agent/model/moe.h"

/* Rows [at, at + n) of a tensor whose rows are `row` long. */
static void *rows(const struct model *m, const void *x, int64_t at, int64_t row)
{
	return (char *)x + at * row * m->d.width;
}

void experts_forward(struct pass *p, const struct block_view *v, struct moe_kept *k, void *out)
{
	struct model *m = p->m;
	int64_t at = 0, c = m->d.c, f = m->d.act;
	for (int i = 0; i < m->moe->ep->hi - m->moe->ep->lo; i++) {
		const struct expert_view *x = &v->experts[i];
		int64_t n = k->plan.per_expert[i];
		m->ops->linear_fwd(m->kern, rows(m, k->gu, at, 2 * f), rows(m, k->x, at, c), unit_param(m, x->up.unit, x->up.w), NULL, n, c, 2 * f);
		at += n;
	}
	m->ops->swiglu_fwd(m->kern, k->act, k->gu, k->plan.received, f);
	at = 0;
	for (int i = 0; i < m->moe->ep->hi - m->moe->ep->lo; i++) {
		const struct expert_view *x = &v->experts[i];
		int64_t n = k->plan.per_expert[i];
		m->ops->linear_fwd(m->kern, rows(m, out, at, c), rows(m, k->act, at, f), unit_param(m, x->down.unit, x->down.w), NULL, n, f, c);
		at += n;
	}
}

static void input_half(struct model *m, const struct block_view *v, struct moe_kept *k, void *dx, const void *dout, void *dact)
{
	int64_t at = 0, c = m->d.c, f = m->d.act;
	int n_experts = m->moe->ep->hi - m->moe->ep->lo;
	for (int i = 0; i < n_experts; at += k->plan.per_expert[i++])
		m->ops->linear_bwd_input(m->kern, rows(m, dact, at, f), rows(m, dout, at, c),
					 unit_param(m, v->experts[i].down.unit, v->experts[i].down.w), k->plan.per_expert[i], f, c);
	m->ops->swiglu_bwd(m->kern, k->dgu, dact, k->gu, k->plan.received, f);
	at = 0;
	for (int i = 0; i < n_experts; at += k->plan.per_expert[i++])
		m->ops->linear_bwd_input(m->kern, rows(m, dx, at, c), rows(m, k->dgu, at, 2 * f),
					 unit_param(m, v->experts[i].up.unit, v->experts[i].up.w), k->plan.per_expert[i], c, 2 * f);
}

static void weight_half(struct model *m, const struct block_view *v, struct moe_kept *k, const void *dout)
{
	int64_t at = 0, c = m->d.c, f = m->d.act;
	for (int i = 0; i < m->moe->ep->hi - m->moe->ep->lo; at += k->plan.per_expert[i++]) {
		const struct expert_view *x = &v->experts[i];
		int64_t n = k->plan.per_expert[i];
		m->ops->linear_bwd_weight(m->kern, unit_grad(m, x->down.unit, x->down.w), NULL, rows(m, dout, at, c), rows(m, k->act, at, f), n, f, c);
		m->ops->linear_bwd_weight(m->kern, unit_grad(m, x->up.unit, x->up.w), NULL, rows(m, k->dgu, at, 2 * f), rows(m, k->x, at, c), n, c, 2 * f);
	}
}

void experts_backward(struct pass *p, const struct block_view *v, struct moe_kept *k, void *dx, const void *dout, void *dact)
{
	if (p->input)
		input_half(p->m, v, k, dx, dout, dact);
	if (p->weight)
		weight_half(p->m, v, k, dout);
}
