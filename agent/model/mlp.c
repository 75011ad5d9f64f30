#include "agent/model/stage.h"

/* stream += down(activation(up(norm2(stream)))) */
int mlp_forward(struct model *m, const struct block_view *v, struct block_kept *k, float *pending,
		struct stream *s, struct err *e)
{
	norm_forward(m, &v->norm2, &k->norm2, k->y2, s->x, s->r);
	s->x = k->norm2.x;
	linear_forward(m, &v->up, k->up, k->y2); /* [n, c] → [n, f] or [n, 2f] */
	if (m->shape.gated)
		m->ops->swiglu_fwd(m->kern, k->act, k->up, m->n, m->ffn);
	else
		m->ops->gelu_fwd(m->kern, k->act, k->up, m->n * m->ffn);
	s->r = pending;
	return linear_forward_reduced(m, &v->down, pending, k->act, e); /* [n, f] → [n, c] */
}

int mlp_backward(struct model *m, const struct block_view *v, const struct block_kept *k, float *dres, struct err *e)
{
	float *dact = m->scratch.narrow, *dup = m->scratch.wide, *dy2 = m->scratch.hidden;

	linear_backward(m, &v->down, dact, dres, k->act);
	if (m->shape.gated)
		m->ops->swiglu_bwd(m->kern, dup, dact, k->up, m->n, m->ffn);
	else
		m->ops->gelu_bwd(m->kern, dup, dact, k->up, m->n * m->ffn);
	linear_backward(m, &v->up, dy2, dup, k->y2);
	if (tp_sum(m->tp, dy2, (size_t)(m->n * m->shape.hidden), e))
		return -1;
	norm_backward(m, &v->norm2, &k->norm2, dres, dy2, dres);
	return 0;
}
