#include "agent/engine/model/linear_fp8.h"

static struct rope_shape rope_of(const struct model *m)
{
	return (struct rope_shape){
		.n = m->d.n,
		.row = m->d.qkv,
		.heads = (int)(m->d.heads + m->d.kv_heads),
		.dim = (int)m->d.dim,
		.seq = m->d.seq,
	};
}

static struct attn_shape attn_of(const struct pass *p, int layer)
{
	const struct model *m = p->m;
	return (struct attn_shape){
		.batch = m->d.micro,
		.heads = (int)m->d.heads,
		.kv_heads = (int)m->d.kv_heads,
		.dim = (int)m->d.dim,
		.starts = p->starts,
		.drop = model_dropout_of(p, DROP_WEIGHTS, layer),
		.samples = p->samples,
		.heads_all = m->shape->heads,
		.head_first = m->head_first,
		.seq = m->shape->seq,
	};
}

static int core_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
			struct err *e)
{
	struct attn_shape s = attn_of(p, v->layer);
	return cp_attention_forward(p->m->cp, p->m->backend, k->at[ACT_O], k->at[ACT_LSE],
				    k->at[ACT_QKV], &s, e);
}

/* stream += o_proj(attention(rope(qk_norm(qkv(norm1(stream)))))) */
int model_attention_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
			    void *pending, struct stream *s, struct err *e)
{
	struct model *m = p->m;
	struct fp8_copies to;
	model_norm_forward_cast(m, &v->norm1, k->at[ACT_Y1], k->at[ACT_NORM1_X],
				k->at[ACT_NORM1_STATS], s->x, s->r,
				model_linear_fp8_input_copies(p, &v->qkv, k, &to));
	if (s->r)
		s->x = k->at[ACT_NORM1_X];
	/* [s, c] → [n, w] */
	if (model_column_forward(p, &v->qkv, k, k->at[ACT_QKV], k->at[ACT_Y1], e))
		return -1;
	if (m->shape->qk_norm)
		model_qk_norm_forward(m, v, k);
	if (m->shape->rope) {
		struct rope_shape r = rope_of(m);
		m->ops->rope_fwd(m->backend, k->at[ACT_QKV], &r, m->cos, m->sin);
	}
	s->r = pending;
	if (core_forward(p, v, k, e) ||                               /* [n, w] → [n, H d] */
	    model_row_forward(p, &v->o, k, pending, k->at[ACT_O], e)) /* [n, H d] → [s, c] */
		return -1;
	model_dropout_forward(p, DROPOUT_ATTN, v->layer, pending);
	return 0;
}

int model_attention_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			      struct err *e)
{
	struct fp8_copies to;
	model_norm_forward_cast(p->m, &v->norm1, k->at[ACT_Y1], NULL, k->at[ACT_NORM1_STATS],
				k->at[ACT_NORM1_X], NULL,
				model_linear_fp8_restored_copies(p, &v->qkv, k, true, &to));
	return core_forward(p, v, k, e);
}

/* Sets dqkv, the gradient of the fused projection, from the gradient d_o of the attention's
 * output. */
static int core_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
			 void *dqkv, const void *d_o, struct err *e)
{
	struct model *m = p->m;
	struct attn_shape s = attn_of(p, v->layer);
	if (cp_attention_backward(m->cp, m->backend, dqkv, d_o, k->at[ACT_O], k->at[ACT_LSE],
				  k->at[ACT_QKV], &s, e))
		return -1;
	if (m->shape->rope) {
		struct rope_shape r = rope_of(m);
		m->ops->rope_bwd(m->backend, dqkv, &r, m->cos, m->sin);
	}
	if (m->shape->qk_norm)
		model_qk_norm_backward(m, v, k, dqkv);
	return 0;
}

int model_attention_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
			     void *dres, struct err *e)
{
	struct model *m = p->m;
	void *d_o = m->scratch[SCRATCH_NARROW], *dy1 = m->scratch[SCRATCH_HIDDEN];
	void *dqkv = m->d.split ? k->at[ACT_DQKV] : m->scratch[SCRATCH_WIDE];
	const void *dsub = m->d.split ? k->at[ACT_DATTN] : NULL;
	struct fp8_copies to;

	if (p->input) {
		dsub = model_dropout_backward(p, DROPOUT_ATTN, v->layer, dres);
		if (m->d.split)
			m->ops->copy_rows(m->backend, k->at[ACT_DATTN], m->d.c, dsub, m->d.c,
					  m->d.s, m->d.c);
	}
	if (model_row_backward(p, &v->o, k, d_o, dsub, k->at[ACT_O], e) ||
	    (p->input && core_backward(p, v, k, dqkv, d_o, e)) ||
	    model_column_backward(p, &v->qkv, k, dy1, dqkv, k->at[ACT_Y1], e))
		return -1;
	if (p->input)
		model_norm_backward(
			m, &v->norm1, dres, dy1, dres, k->at[ACT_NORM1_X], k->at[ACT_NORM1_STATS],
			model_linear_fp8_stream_copies(p, (int)(v - p->chunk->views.blocks), &to));
	return 0;
}
