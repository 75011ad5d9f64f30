#include "agent/engine/model/check.h"
#include "agent/engine/model/stage.h"

static const void *positions_table(const struct model *m, const struct views *v)
{
	return v->positions < 0 ? NULL : m->params[v->positions];
}

int model_embed_forward(struct pass *p, void *x, struct err *e)
{
	struct model *m = p->m;
	const struct views *v = &p->chunk->views;
	/* Only the first shard adds the positions: the shards' results are summed. */
	bool add = v->positions >= 0 && m->tp->rank == 0;
	void *full = m->tp->sp ? m->scratch[SCRATCH_FULL] : x;

	if (model_unit_acquire(m, v->tokens.unit, e) ||
	    (v->positions >= 0 && model_unit_acquire(m, v->positions, e)))
		return -1;
	m->ops->embed_fwd(m->backend, full, p->inputs, m->positions_at,
			  model_unit_param(m, v->tokens.unit, v->tokens.w),
			  add ? positions_table(m, v) : NULL, m->d.n, m->d.c, v->vocab_lo,
			  v->vocab_hi);
	model_check_tensor(m, "result", full, m->d.n * m->d.c);
	model_unit_release(m, v->tokens.unit);
	if (v->positions >= 0)
		model_unit_release(m, v->positions);
	if (tp_reduce(m->tp, full, x, (size_t)(m->d.s * m->d.c), e))
		return -1;
	model_dropout_forward(p, DROPOUT_EMBED, -1, x);
	return 0;
}

int model_embed_backward(struct pass *p, const void *dx, struct err *e)
{
	struct model *m = p->m;
	const struct views *v = &p->chunk->views;
	const void *full = model_dropout_backward(p, DROPOUT_EMBED, -1, dx);

	if (model_unit_grads(m, v->tokens.unit, e) ||
	    (v->positions >= 0 && model_unit_grads(m, v->positions, e)))
		return -1;
	if (m->tp->sp) {
		if (tp_gather(m->tp, full, m->scratch[SCRATCH_FULL], (size_t)(m->d.s * m->d.c), e))
			return -1;
		full = m->scratch[SCRATCH_FULL];
	}
	float *dwte = model_table_grad(m, v->tokens.unit, v->tokens.w,
				       (v->vocab_hi - v->vocab_lo) * m->d.c),
	      *dwpe = v->positions < 0
			      ? NULL
			      : model_table_grad(m, v->positions, 0, m->shape->seq * m->d.c);
	m->ops->embed_bwd(m->backend, dwte, dwpe, full, p->inputs, m->positions_at, m->d.n, m->d.c,
			  v->vocab_lo, v->vocab_hi);
	if (v->positions >= 0 && model_unit_done(p, v->positions, true, e))
		return -1;
	return model_unit_done(p, v->tokens.unit, true, e);
}
