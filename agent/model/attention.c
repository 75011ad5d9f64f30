#include "agent/model/stage.h"

/* stream += o_proj(attention(rope(qkv(norm1(stream))))) */
int attention_forward(struct model *m, const struct block_view *v, struct block_kept *k, float *pending,
		      struct stream *s, struct err *e)
{
	norm_forward(m, &v->norm1, &k->norm1, k->y1, s->x, s->r);
	s->x = k->norm1.x;
	linear_forward(m, &v->qkv, k->qkv, k->y1); /* [n, c] → [n, w] */
	if (m->shape.rope)
		m->ops->rope_fwd(m->kern, k->qkv, &m->attn, (float)m->shape.rope_theta);
	m->ops->attention_fwd(m->kern, k->o, k->lse, k->qkv, &m->attn); /* [n, w] → [n, H d] */
	s->r = pending;
	return linear_forward_reduced(m, &v->o, pending, k->o, e); /* [n, H d] → [n, c] */
}

int attention_backward(struct model *m, const struct block_view *v, const struct block_kept *k, float *dres, struct err *e)
{
	float *d_o = m->scratch.narrow, *dqkv = m->scratch.wide, *dy1 = m->scratch.hidden;

	linear_backward(m, &v->o, d_o, dres, k->o);
	m->ops->attention_bwd(m->kern, dqkv, d_o, k->o, k->lse, k->qkv, &m->attn);
	if (m->shape.rope)
		m->ops->rope_bwd(m->kern, dqkv, &m->attn, (float)m->shape.rope_theta);
	linear_backward(m, &v->qkv, dy1, dqkv, k->y1);
	if (tp_sum(m->tp, dy1, (size_t)(m->n * m->shape.hidden), e))
		return -1;
	norm_backward(m, &v->norm1, &k->norm1, dres, dy1, dres);
	return 0;
}
