/* A layer: its two sublayers, its units of the parameter store, and its recomputation. */
#include "agent/engine/model/linear_fp8.h"
#include "agent/engine/model/moe.h"
#include "agent/engine/model/stage.h"
#include "agent/engine/parallel/cp.h"
#include "agent/engine/parallel/ep.h"
#include "base/clock.h"

/* The feed-forward sublayer, dense or a mixture of experts. */
static int ffn_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
		       void *pending, struct stream *s, struct err *e)
{
	return p->m->moe ? model_moe_forward(p, v, k, pending, s, e)
			 : model_mlp_forward(p, v, k, pending, s, e);
}

static int ffn_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			 struct stream *s, struct err *e)
{
	return p->m->moe ? model_moe_recompute(p, v, k, s, e) : model_mlp_recompute(p, v, k, s, e);
}

static int ffn_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
			void *dres, struct err *e)
{
	return p->m->moe ? model_moe_backward(p, v, k, dres, e)
			 : model_mlp_backward(p, v, k, dres, e);
}

static int sublayers_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
			     struct stream *s, struct err *e)
{
	/* Each sublayer's norm reads what the previous sublayer left pending, so all share one
	 * buffer. */
	void *pending = p->slot->at[SLOT_PENDING];
	model_linear_fp8_enter(p->m, k);
	return model_attention_forward(p, v, k, pending, s, e) ||
			       ffn_forward(p, v, k, pending, s, e)
		       ? -1
		       : 0;
}

int model_block_forward(struct pass *p, int i, struct stream *s, struct err *e)
{
	const struct block_view *v = &p->chunk->views.blocks[i];
	if (model_unit_acquire(p->m, v->unit, e))
		return -1;
	model_offload_begin(p, i);
	model_weights_fp8_refresh(p->m, v);
	int rc = sublayers_forward(p, v, &p->slot->blocks[i], s, e);
	model_unit_release(p->m, v->unit);
	if (!rc && p->keep)
		model_offload_store(p, i);
	return rc;
}

/* Recomputes the layer, except its last product, whose result the backward pass does not need. */
static int recompute_layer(struct pass *p, const struct block_view *v, struct block_saved *k,
			   struct err *e)
{
	struct stream s = { .x = k->at[ACT_NORM1_X] };
	model_linear_fp8_enter(p->m, k);
	return model_attention_forward(p, v, k, p->m->scratch[SCRATCH_HIDDEN], &s, e) ||
			       ffn_recompute(p, v, k, &s, e)
		       ? -1
		       : 0;
}

/* Restores the counters of transfers: the time that recomputation waits counts as recomputation. */
struct recompute_timer {
	double since, tp, cp, ep;
};

static struct recompute_timer start_timer(const struct pass *p)
{
	const struct model *m = p->m;
	return (struct recompute_timer){ clock_s(), m->tp->seconds, m->cp->seconds,
					 m->moe ? m->moe->ep->seconds : 0 };
}

static void stop_timer(struct pass *p, const struct recompute_timer *l)
{
	struct model *m = p->m;
	m->recompute_s += clock_s() - l->since;
	m->tp->seconds = l->tp;
	m->cp->seconds = l->cp;
	if (m->moe)
		m->moe->ep->seconds = l->ep;
}

enum recompute_part { RECOMPUTE_LAYER, RECOMPUTE_FFN, RECOMPUTE_ATTENTION };

static int recompute_part(struct pass *p, const struct block_view *v, struct block_saved *k,
			  enum recompute_part what, struct err *e)
{
	struct recompute_timer l = start_timer(p);
	int rc = what == RECOMPUTE_LAYER ? recompute_layer(p, v, k, e)
		 : what == RECOMPUTE_FFN ? ffn_recompute(p, v, k, NULL, e)
					 : model_attention_recompute(p, v, k, e);
	stop_timer(p, &l);
	return rc;
}

static int sublayers_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
			      void *dres, struct err *e)
{
	enum job_recompute mode = activations_mode(&p->m->d, v->layer);
	if (mode == RECOMPUTE_FULL && recompute_part(p, v, k, RECOMPUTE_LAYER, e))
		return -1;
	if ((mode == RECOMPUTE_SELECTIVE && recompute_part(p, v, k, RECOMPUTE_FFN, e)) ||
	    ffn_backward(p, v, k, dres, e))
		return -1;
	return (mode == RECOMPUTE_SELECTIVE && recompute_part(p, v, k, RECOMPUTE_ATTENTION, e)) ||
			       model_attention_backward(p, v, k, dres, e)
		       ? -1
		       : 0;
}

int model_block_backward(struct pass *p, int i, void *dres, struct err *e)
{
	const struct block_view *v = &p->chunk->views.blocks[i];
	if (model_unit_acquire(p->m, v->unit, e) || model_unit_grads(p->m, v->unit, e))
		return -1;
	model_offload_fetch(p, i);
	model_weights_fp8_refresh(p->m, v);
	model_linear_fp8_enter_backward(p->m);
	int rc = sublayers_backward(p, v, &p->slot->blocks[i], dres, e);
	if (!rc && !p->weight) /* the second half needs what the first one computed */
		model_offload_store(p, i);
	model_unit_release(p->m, v->unit);
	return rc ? rc : model_unit_done(p, v->unit, p->weight, e);
}
