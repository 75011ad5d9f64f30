/* A layer: its two sublayers, its units, and what its mode recomputes. */
#include "agent/model/stage.h"

/* The feed-forward part: one, or a mixture. */
static int ffn_forward(struct pass *p, const struct block_view *v, struct block_kept *k, void *pending, struct stream *s, struct err *e)
{
	return p->m->moe ? moe_forward(p, v, k, pending, s, e) : mlp_forward(p, v, k, pending, s, e);
}

static int ffn_again(struct pass *p, const struct block_view *v, struct block_kept *k, struct stream *s, struct err *e)
{
	return p->m->moe ? moe_again(p, v, k, s, e) : mlp_again(p, v, k, s, e);
}

static int ffn_backward(struct pass *p, const struct block_view *v, struct block_kept *k, void *dres, struct err *e)
{
	return p->m->moe ? moe_backward(p, v, k, dres, e) : mlp_backward(p, v, k, dres, e);
}

static int sublayers_forward(struct pass *p, const struct block_view *v, struct block_kept *k, struct stream *s, struct err *e)
{
	/* Each sublayer's norm takes what the one before left pending, so one buffer serves them all. */
	void *pending = p->slot->at[SLOT_PENDING];
	return attention_forward(p, v, k, pending, s, e) || ffn_forward(p, v, k, pending, s, e) ? -1 : 0;
}

int block_forward(struct pass *p, int i, struct stream *s, struct err *e)
{
	const struct block_view *v = &p->chunk->views.blocks[i];
	if (unit_hold(p->m, v->unit, e))
		return -1;
	int rc = sublayers_forward(p, v, &p->slot->blocks[i], s, e);
	unit_drop(p->m, v->unit);
	if (!rc && p->keep)
		offload_store(p, i);
	return rc;
}

/* The whole layer again, but for its last product, whose result the backward pass does not need. */
static int all_again(struct pass *p, const struct block_view *v, struct block_kept *k, struct err *e)
{
	struct stream s = { .x = k->at[ACT_NORM1_X] };
	return attention_forward(p, v, k, p->m->scratch[SCRATCH_HIDDEN], &s, e) || ffn_again(p, v, k, &s, e) ? -1 : 0;
}

static int sublayers_backward(struct pass *p, const struct block_view *v, struct block_kept *k, void *dres, struct err *e)
{
	enum job_recompute mode = act_mode(&p->m->d, v->layer);
	if (mode == RECOMPUTE_FULL && all_again(p, v, k, e))
		return -1;
	if ((mode == RECOMPUTE_SELECTIVE && ffn_again(p, v, k, NULL, e)) || ffn_backward(p, v, k, dres, e))
		return -1;
	return (mode == RECOMPUTE_SELECTIVE && attention_again(p, v, k, e)) || attention_backward(p, v, k, dres, e) ? -1 : 0;
}

int block_backward(struct pass *p, int i, void *dres, struct err *e)
{
	const struct block_view *v = &p->chunk->views.blocks[i];
	if (unit_hold(p->m, v->unit, e) || unit_grads(p->m, v->unit, e))
		return -1;
	offload_fetch(p, i);
	int rc = sublayers_backward(p, v, &p->slot->blocks[i], dres, e);
	if (!rc && !p->weight) /* the second half needs what this one has added */
		offload_store(p, i);
	unit_drop(p->m, v->unit);
	return rc ? rc : unit_done(p->m, v->unit, p->weight && p->batch->last, e);
}
