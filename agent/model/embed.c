#include "agent/model/stage.h"

int embed_forward(struct model *m, float *x, const int32_t *tokens, struct err *e)
{
	const struct views *v = &m->views;
	/* The shards' sum must hold the positions once: the first shard adds them. */
	bool positions = v->positions >= 0 && m->tp->rank == 0;

	m->ops->embed_fwd(m->kern, x, tokens, m->params + v->tokens, positions ? m->params + v->positions : NULL,
			  m->micro, m->shape.seq, m->shape.hidden, v->vocab_lo, v->vocab_hi);
	return tp_sum(m->tp, x, (size_t)model_boundary(m), e);
}

void embed_backward(struct model *m, const float *dx, const int32_t *tokens)
{
	const struct views *v = &m->views;
	m->ops->embed_bwd(m->kern, m->grads + v->tokens, v->positions >= 0 ? m->grads + v->positions : NULL, dx, tokens,
			  m->micro, m->shape.seq, m->shape.hidden, v->vocab_lo, v->vocab_hi);
}
