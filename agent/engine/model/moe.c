#include "agent/engine/model/arena.h"
#include "agent/engine/model/check.h"
#include "agent/engine/model/linear_fp8.h"
#include "agent/engine/model/moe.h"

#include <stdlib.h>

/* --- Memory --- */

static void carve_fixed(const struct model *m, struct model_arena *c, struct moe_saved *k)
{
	const struct act_dims *d = &m->d;
	const struct act_expert_rows *r = &d->routed;
	int64_t choices = d->n * d->top;
	k->chosen = model_arena_take(c, choices * (int64_t)sizeof *k->chosen);
	k->weights = model_arena_take(c, choices * (int64_t)sizeof *k->weights);
	k->probs = model_arena_take(c, d->n * d->experts * (int64_t)sizeof *k->probs);
	k->lse = model_arena_take(c, d->n * (int64_t)sizeof *k->lse);
	k->load = model_arena_take(c, d->micro * d->experts * (int64_t)sizeof *k->load);
	k->at = model_arena_take(c, choices * (int64_t)sizeof *k->at);
	k->from = model_arena_take(c, r->sent * (int64_t)sizeof *k->from);
	k->counts = model_arena_take(c, d->device ? d->experts * (int64_t)sizeof *k->counts : 0);
	if (!r->block)
		return;
	k->per_expert = model_arena_take(c, r->mine * (int64_t)sizeof *k->per_expert);
	k->order = model_arena_take(c, r->received * (int64_t)sizeof *k->order);
	k->back = model_arena_take(c, r->received * (int64_t)sizeof *k->back);
}

static void carve_rows(const struct model *m, struct model_arena *c, int64_t sent, int64_t received,
		       struct moe_saved *k)
{
	int64_t width = m->d.width, row = m->d.c * width, f = m->d.act * width;
	k->x = model_arena_take(c, received * row);
	k->gu = model_arena_take(c, received * 2 * f);
	k->act = model_arena_take(c, received * f);
	k->y = model_arena_take(c, sent * row);
	k->dy = model_arena_take(c, m->d.split ? received * row : 0);
	k->dgu = model_arena_take(c, m->d.split ? received * 2 * f : 0);
}

/* Scratch for one call. */
struct rows {
	void *sent;       /* [sent, c] */
	void *arrival;    /* [received, c] */
	void *out, *dx;   /* [received, c] */
	void *dact, *dgu; /* [received, f], [received, 2f] */
	void *stream[2];  /* [n, c] */
};

static void carve_scratch(const struct model *m, struct model_arena *c, int64_t sent,
			  int64_t received, struct rows *r)
{
	int64_t width = m->d.width, row = m->d.c * width, f = m->d.act * width;
	for (int i = 0; i < 2; i++)
		r->stream[i] = model_arena_take(c, m->d.n * row);
	r->sent = model_arena_take(c, sent * row);
	r->arrival = model_arena_take(c, received * row);
	r->out = model_arena_take(c, received * row);
	r->dx = model_arena_take(c, received * row);
	r->dact = model_arena_take(c, received * f);
	r->dgu = model_arena_take(c, received * 2 * f);
}

/* Grows by an eighth more than needed, except the first time, so that few steps grow it. */
static int grow_memory(struct model *m, struct growing_memory *a, int64_t bytes, struct err *e)
{
	if (bytes <= a->bytes)
		return 0;
	int64_t take = a->bytes ? bytes + bytes / 8 : bytes;
	if (a->base)
		backend_free(m->backend, a->base);
	a->base = backend_alloc(m->backend, (size_t)take);
	a->bytes = a->base ? take : 0;
	return a->base ? 0
		       : err_set(e, ERR_NOMEM,
				 "experts' rows: no memory for %lld bytes; set model.capacity, or "
				 "lower batch.micro",
				 (long long)take);
}

static int fit_kept(struct model *m, struct moe_saved *k, int64_t sent, int64_t received,
		    struct err *e)
{
	struct model_arena c = { 0 };
	carve_rows(m, &c, sent, received, k);
	if (grow_memory(m, &k->rows, c.used, e))
		return -1;
	c = (struct model_arena){ .base = k->rows.base };
	carve_rows(m, &c, sent, received, k);
	return 0;
}

static int fit_scratch(struct model *m, int64_t sent, int64_t received, struct rows *r,
		       struct err *e)
{
	struct model_arena c = { 0 };
	carve_scratch(m, &c, sent, received, r);
	if (grow_memory(m, &m->moe->rows, c.used, e))
		return -1;
	c = (struct model_arena){ .base = m->moe->rows.base };
	carve_scratch(m, &c, sent, received, r);
	return 0;
}

static int open_kept(struct model *m, struct moe_saved *k, struct err *e)
{
	struct model_arena c = { 0 };
	carve_fixed(m, &c, k);
	k->fixed = backend_alloc(m->backend, (size_t)c.used);
	if (!k->fixed)
		return err_set(e, ERR_NOMEM,
			       "routes of %lld tokens: no memory for %lld bytes; lower batch.micro",
			       (long long)m->d.n, (long long)c.used);
	c = (struct model_arena){ .base = k->fixed };
	carve_fixed(m, &c, k);
	return fit_kept(m, k, m->d.routed.sent, m->d.routed.received, e);
}

static void close_kept(struct model *m, struct moe_saved *k)
{
	ep_plan_close(m->backend, &k->plan);
	if (k->fixed)
		backend_free(m->backend, k->fixed);
	if (k->rows.base)
		backend_free(m->backend, k->rows.base);
}

static void carve_moe(const struct model *m, struct model_arena *c, struct moe *moe)
{
	const struct act_dims *d = &m->d;
	moe->raw = model_arena_take(c, d->n * d->experts * d->width);
	moe->logits = model_arena_take(c, d->n * d->experts * (int64_t)sizeof *moe->logits);
	moe->dweights = model_arena_take(c, d->n * d->top * (int64_t)sizeof *moe->dweights);
	moe->counts = model_arena_take(c, d->experts * (int64_t)sizeof *moe->counts);
	if (!d->device)
		return;
	if (d->routed.block)
		moe->theirs = model_arena_take(c, d->routed.ranks * d->routed.mine *
							  (int64_t)sizeof *moe->theirs);
	moe->choices_dev =
		model_arena_take(c, 2 * d->micro * d->experts * (int64_t)sizeof *moe->choices_dev);
	moe->taken_dev =
		model_arena_take(c, 2 * d->micro * d->experts * (int64_t)sizeof *moe->taken_dev);
}

/* Opens one for each slot and layer, and one that all recomputing layers share. */
static int open_all_kept(struct model *m, struct err *e)
{
	bool again = false;
	for (int i = 0; i < m->n_chunks; i++) {
		struct chunk *ch = &m->chunks[i];
		m->moe->kept[i] = calloc((size_t)(ch->n_slots * ch->layers) + 1,
					 sizeof *m->moe->kept[i]);
		if (!m->moe->kept[i])
			return err_set(e, ERR_NOMEM, "no memory for the experts of %d layers",
				       ch->layers);
		for (int s = 0; s < ch->n_slots; s++)
			for (int l = 0; l < ch->layers; l++) {
				bool shared = activations_experts_recompute(
					&m->d, ch->views.blocks[l].layer);
				struct moe_saved *k = shared ? &m->moe->recomputed
							     : &m->moe->kept[i][s * ch->layers + l];
				ch->slots[s].blocks[l].moe = k;
				again |= shared;
				if (!shared && open_kept(m, k, e))
					return -1;
			}
	}
	return again ? open_kept(m, &m->moe->recomputed, e) : 0;
}

int model_moe_open(struct model *m, struct ep *ep, struct err *e)
{
	struct rows r;
	struct model_arena c = { 0 };
	struct moe *moe = m->moe = calloc(1, sizeof *moe);
	if (!moe)
		return err_set(e, ERR_NOMEM, "no memory for the experts");
	*moe = (struct moe){ .ep = ep, .experts = m->d.experts, .top = m->d.top };
	moe->kept = calloc((size_t)m->n_chunks, sizeof *moe->kept);
	carve_moe(m, &c, moe);
	moe->fixed = backend_alloc(m->backend, (size_t)c.used);
	if (!moe->kept || !moe->fixed)
		return err_set(e, ERR_NOMEM, "router of %lld experts: no memory for %lld bytes",
			       (long long)moe->experts, (long long)c.used);
	c = (struct model_arena){ .base = moe->fixed };
	carve_moe(m, &c, moe);
	return model_route_open(m, e) ||
			       fit_scratch(m, m->d.routed.sent, m->d.routed.received, &r, e) ||
			       open_all_kept(m, e)
		       ? -1
		       : 0;
}

void model_moe_close(struct model *m)
{
	struct moe *moe = m->moe;
	if (!moe)
		return;
	for (int i = 0; moe->kept && i < m->n_chunks; i++) {
		for (int j = 0; moe->kept[i] && j < m->chunks[i].n_slots * m->chunks[i].layers; j++)
			close_kept(m, &moe->kept[i][j]);
		free(moe->kept[i]);
	}
	close_kept(m, &moe->recomputed);
	model_route_close(moe);
	if (moe->fixed)
		backend_free(m->backend, moe->fixed);
	if (moe->rows.base)
		backend_free(m->backend, moe->rows.base);
	free(moe->kept);
	free(moe);
	m->moe = NULL;
}

/* --- Forward --- */

/* Plans the exchange of a layer's rows. */
static int plan_rows(struct model *m, struct moe_saved *k, struct err *e)
{
	struct ep *ep = m->moe->ep;
	if (!k->most)
		return ep_plan(ep, m->backend, m->moe->kept_of, &k->plan, e);
	if (ep->comm)
		return ep_plan_blocks(ep, m->backend,
				      &(struct ep_blocks){ .rows = m->d.routed.block,
							   .counts = k->counts,
							   .theirs = m->moe->theirs,
							   .per_expert = k->per_expert,
							   .order = k->order,
							   .back = k->back },
				      &k->plan, e);
	k->plan.sent = k->plan.received = k->most;
	return 0;
}

static int through_experts(struct pass *p, const struct block_view *v, struct moe_saved *k,
			   const void *full, struct err *e)
{
	struct model *m = p->m;
	struct ep *ep = m->moe->ep;
	struct rows r;
	if (plan_rows(m, k, e) || fit_kept(m, k, k->plan.sent, k->plan.received, e) ||
	    fit_scratch(m, k->plan.sent, k->plan.received, &r, e))
		return -1;
	m->ops->gather_rows(m->backend, r.sent, full, k->from, k->plan.sent, m->d.c);
	if (ep_dispatch(ep, m->backend, &k->plan, r.sent, r.arrival, k->x, m->d.c, e) ||
	    model_unit_acquire(m, v->experts_unit, e))
		return -1;
	model_experts_forward(p, v, k, r.out);
	model_check_tensor(m, "results of the experts", r.out, k->plan.received * m->d.c);
	model_unit_release(m, v->experts_unit);
	return ep_return(ep, m->backend, &k->plan, r.out, r.arrival, k->y, m->d.c, e);
}

/* Routes the normalized stream, and computes the experts' results. */
static int upper_half(struct pass *p, const struct block_view *v, struct block_saved *k,
		      struct stream *s, double *loss, struct err *e)
{
	struct model *m = p->m;
	const void *full;
	model_norm_forward(m, &v->norm2, k->at[ACT_Y2], k->at[ACT_NORM2_X], k->at[ACT_NORM2_STATS],
			   s->x, s->r);
	s->x = k->at[ACT_NORM2_X];
	return model_all_rows(m, k->at[ACT_Y2], &full, e) ||
			       model_route_forward(p, v, k->moe, full, loss, e) ||
			       through_experts(p, v, k->moe, full, e)
		       ? -1
		       : 0;
}

/* stream += Σ weights × experts(norm2(stream)) */
int model_moe_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
		      void *pending, struct stream *s, struct err *e)
{
	struct model *m = p->m;
	if (upper_half(p, v, k, s, p->loss, e))
		return -1;
	s->r = pending;
	m->ops->combine_fwd(m->backend, model_before_reduce(m, pending), k->moe->y, k->moe->at,
			    k->moe->weights, m->d.n, m->d.top, m->d.c);
	if (model_to_stream(m, pending, e))
		return -1;
	model_dropout_forward(p, DROPOUT_MLP, v->layer, pending);
	return 0;
}

int model_moe_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			struct stream *s, struct err *e)
{
	struct model *m = p->m;
	if (activations_experts_recompute(&m->d, v->layer))
		return upper_half(p, v, k, s, NULL, e);
	if (s)
		model_norm_forward(m, &v->norm2, k->at[ACT_Y2], k->at[ACT_NORM2_X],
				   k->at[ACT_NORM2_STATS], s->x, s->r);
	else
		model_norm_forward(m, &v->norm2, k->at[ACT_Y2], NULL, k->at[ACT_NORM2_STATS],
				   k->at[ACT_NORM2_X], NULL);
	return 0;
}

/* --- Backward --- */

/* The experts' backward pass, and their unit of the parameter store. */
static int experts_pass(struct pass *p, const struct block_view *v, struct moe_saved *k,
			const struct rows *r, struct err *e)
{
	struct model *m = p->m;
	if ((p->input && model_unit_acquire(m, v->experts_unit, e)) ||
	    (p->weight && model_unit_grads(m, v->experts_unit, e)))
		return -1;
	model_experts_backward(p, v, k, r->dx, k->dy, r->dact);
	if (p->input) {
		model_check_tensor(m, "gradient of the experts' input", r->dx,
				   k->plan.received * m->d.c);
		model_unit_release(m, v->experts_unit);
	}
	return p->weight ? model_unit_done(p, v->experts_unit, true, e) : 0;
}

/* Sets dy2 to this rank's part of the gradient of the normalized input, from the gradient dsub of
 * the sublayer's result. */
static int input_pass(struct pass *p, const struct block_view *v, struct block_saved *bk,
		      const void *dsub, void *dy2, struct rows *r, struct err *e)
{
	struct model *m = p->m;
	struct moe_saved *k = bk->moe;
	struct ep *ep = m->moe->ep;
	const void *full;
	void *dfull = model_before_reduce(m, dy2), *y2 = bk->at[ACT_Y2];

	if (model_all_rows(m, dsub, &full, e))
		return -1;
	m->ops->combine_bwd(m->backend, r->sent, m->moe->dweights, full, k->y, k->at, k->weights,
			    m->d.n, m->d.top, m->d.c);
	if (ep_dispatch(ep, m->backend, &k->plan, r->sent, r->arrival, k->dy, m->d.c, e) ||
	    experts_pass(p, v, k, r, e) ||
	    ep_return(ep, m->backend, &k->plan, r->dx, r->arrival, r->sent, m->d.c, e))
		return -1;
	m->ops->combine_fwd(m->backend, dfull, r->sent, k->at, NULL, m->d.n, m->d.top, m->d.c);
	if (m->tp->sp) {
		if (tp_gather(m->tp, y2, r->stream[0], (size_t)(m->d.s * m->d.c), e))
			return -1;
		y2 = r->stream[0];
	}
	return model_route_backward(p, v, k, dfull, y2, r->stream[1], e);
}

int model_moe_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
		       void *dres, struct err *e)
{
	struct model *m = p->m;
	void *dy2 = m->scratch[SCRATCH_HIDDEN];
	struct fp8_copies to;
	struct rows r;

	if (fit_scratch(m, k->moe->plan.sent, k->moe->plan.received, &r, e))
		return -1;
	if (!m->d.split) {
		k->moe->dy = r.out;
		k->moe->dgu = r.dgu;
	}
	if (!p->input)
		return experts_pass(p, v, k->moe, &r, e);
	if (input_pass(p, v, k, model_dropout_backward(p, DROPOUT_MLP, v->layer, dres), dy2, &r,
		       e) ||
	    model_to_stream(m, dy2, e))
		return -1;
	model_norm_backward(m, &v->norm2, dres, dy2, dres, k->at[ACT_NORM2_X],
			    k->at[ACT_NORM2_STATS], model_linear_fp8_row_copies(p, &v->o, &to));
	return 0;
}
