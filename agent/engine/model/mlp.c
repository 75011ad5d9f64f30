#include "agent/engine/model/linear_fp8.h"

/* to: NULL, or the copies of the result in 8 bits, as in activate_backward. */
static void activate(struct model *m, const struct block_saved *k, const struct fp8_copies *to)
{
	if (m->shape->gated && to)
		m->ops->swiglu_fwd_cast(m->backend, k->at[ACT_ACT], k->at[ACT_UP], m->d.n, m->d.act,
					to);
	else if (to)
		m->ops->gelu_fwd_cast(m->backend, k->at[ACT_ACT], k->at[ACT_UP], m->d.n, m->d.act,
				      to);
	else if (m->shape->gated)
		m->ops->swiglu_fwd(m->backend, k->at[ACT_ACT], k->at[ACT_UP], m->d.n, m->d.act);
	else
		m->ops->gelu_fwd(m->backend, k->at[ACT_ACT], k->at[ACT_UP], m->d.n * m->d.act);
}

static void activate_backward(struct model *m, const struct block_saved *k, void *dup,
			      const void *dact, const struct fp8_copies *to)
{
	if (m->shape->gated && to)
		m->ops->swiglu_bwd_cast(m->backend, dup, dact, k->at[ACT_UP], m->d.n, m->d.act, to);
	else if (to)
		m->ops->gelu_bwd_cast(m->backend, dup, dact, k->at[ACT_UP], m->d.n, m->d.act, to);
	else if (m->shape->gated)
		m->ops->swiglu_bwd(m->backend, dup, dact, k->at[ACT_UP], m->d.n, m->d.act);
	else
		m->ops->gelu_bwd(m->backend, dup, dact, k->at[ACT_UP], m->d.n * m->d.act);
}

/* Computes the input of down from the stream. multiplied: down itself follows. */
static int upper_half(struct pass *p, const struct block_view *v, struct block_saved *k,
		      struct stream *s, bool multiplied, struct err *e)
{
	struct model *m = p->m;
	struct fp8_copies to;
	model_norm_forward_cast(m, &v->norm2, k->at[ACT_Y2], k->at[ACT_NORM2_X],
				k->at[ACT_NORM2_STATS], s->x, s->r,
				model_linear_fp8_input_copies(p, &v->up, k, &to));
	s->x = k->at[ACT_NORM2_X];
	if (model_gelu_fuses(m)) {
		model_column_gelu_forward(m, &v->up, k->at[ACT_ACT], k->at[ACT_UP], k->at[ACT_Y2]);
		return 0;
	}
	/* [s, c] → [n, u] */
	if (model_column_forward(p, &v->up, k, k->at[ACT_UP], k->at[ACT_Y2], e))
		return -1;
	activate(m, k,
		 multiplied ? model_linear_fp8_input_copies(p, &v->down, k, &to)
			    : model_linear_fp8_restored_copies(p, &v->down, k, false, &to));
	return 0;
}

/* stream += down(activation(up(norm2(stream)))) */
int model_mlp_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
		      void *pending, struct stream *s, struct err *e)
{
	if (upper_half(p, v, k, s, true, e))
		return -1;
	s->r = pending;
	/* [n, f] → [s, c] */
	if (model_row_forward(p, &v->down, k, pending, k->at[ACT_ACT], e))
		return -1;
	model_dropout_forward(p, DROPOUT_MLP, v->layer, pending);
	return 0;
}

int model_mlp_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			struct stream *s, struct err *e)
{
	struct fp8_copies to;
	if (s) {
		if (upper_half(p, v, k, s, false, e))
			return -1;
		model_linear_fp8_restore(p, &v->down, k, k->at[ACT_ACT]);
		return 0;
	}
	model_norm_forward_cast(p->m, &v->norm2, k->at[ACT_Y2], NULL, k->at[ACT_NORM2_STATS],
				k->at[ACT_NORM2_X], NULL,
				model_linear_fp8_restored_copies(p, &v->up, k, true, &to));
	activate(p->m, k, model_linear_fp8_restored_copies(p, &v->down, k, true, &to));
	return 0;
}

int model_mlp_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
		       void *dres, struct err *e)
{
	struct model *m = p->m;
	void *dact = m->scratch[SCRATCH_NARROW], *dy2 = m->scratch[SCRATCH_HIDDEN];
	void *dup = m->d.split ? k->at[ACT_DUP] : m->scratch[SCRATCH_WIDE];
	const void *dsub = m->d.split ? k->at[ACT_DMLP] : NULL;
	struct fp8_copies to;

	if (p->input) {
		dsub = model_dropout_backward(p, DROPOUT_MLP, v->layer, dres);
		if (m->d.split)
			m->ops->copy_rows(m->backend, k->at[ACT_DMLP], m->d.c, dsub, m->d.c, m->d.s,
					  m->d.c);
	}
	if (model_gelu_fuses(m)) {
		model_row_gelu_backward(p, &v->down, dup, dsub, k->at[ACT_ACT], k->at[ACT_UP]);
	} else {
		if (model_row_backward(p, &v->down, k, dact, dsub, k->at[ACT_ACT], e))
			return -1;
		if (p->input)
			activate_backward(m, k, dup, dact,
					  model_linear_fp8_gradient_copies(p, &v->up, &to));
	}
	if (model_column_backward(p, &v->up, k, dy2, dup, k->at[ACT_Y2], e))
		return -1;
	if (p->input)
		model_norm_backward(m, &v->norm2, dres, dy2, dres, k->at[ACT_NORM2_X],
				    k->at[ACT_NORM2_STATS],
				    model_linear_fp8_row_copies(p, &v->o, &to));
	return 0;
}
