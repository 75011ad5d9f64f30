#include "agent/model/moe.h"

#include <stdlib.h>

double model_again_s(const struct model *m)
{
	return m->again_s;
}

int64_t model_boundary(const struct model *m)
{
	return m->d.s * m->d.c;
}

void *model_input(struct model *m, int chunk, int slot)
{
	return m->chunks[chunk].slots[slot].at[SLOT_INPUT];
}

void *model_output(struct model *m, int chunk, int slot)
{
	return m->chunks[chunk].slots[slot].output;
}

void *model_grad(struct model *m, int chunk, int slot)
{
	return m->chunks[chunk].slots[slot].at[SLOT_GRAD];
}

/* This rank's tokens of whole sequences. */
static const int32_t *local_of(struct model *m, int which, const int32_t *whole)
{
	if (m->cp->size == 1 || !whole)
		return whole;
	int32_t *out = m->local[which];
	for (int64_t b = 0; b < m->d.micro; b++)
		for (int64_t t = 0; t < m->d.seq; t++)
			out[b * m->d.seq + t] = whole[b * m->shape.seq + m->positions[t]];
	return out;
}

static struct pass pass_of(struct model *m, int chunk, int slot, const struct model_batch *b)
{
	struct chunk *c = &m->chunks[chunk];
	return (struct pass){
		.m = m, .chunk = c, .slot = &c->slots[slot], .batch = b,
		.inputs = local_of(m, 0, b->inputs), .targets = local_of(m, 1, b->targets), .starts = local_of(m, 2, b->starts),
	};
}

int model_forward(struct model *m, int chunk, int slot, const struct model_batch *b, bool backward, double *loss, struct err *e)
{
	struct pass p = pass_of(m, chunk, slot, b);
	struct slot *k = p.slot;
	struct stream s = { .x = k->at[SLOT_INPUT] };

	p.keep = backward;
	p.loss = backward ? loss : NULL;
	if (p.chunk->stage.first && embed_forward(&p, k->at[SLOT_INPUT], e))
		return -1;
	for (int i = 0; i < p.chunk->layers; i++)
		if (block_forward(&p, i, &s, e))
			return -1;
	if (p.chunk->stage.last)
		return head_forward(&p, s, loss, e);
	m->ops->add(m->kern, s.r, s.x, model_boundary(m));
	k->output = s.r;
	return 0;
}

int model_backward(struct model *m, int chunk, int slot, const struct model_batch *b, enum model_pass pass, struct err *e)
{
	struct pass p = pass_of(m, chunk, slot, b);
	void *grad = p.slot->at[SLOT_GRAD];

	p.keep = true;
	p.input = pass != BACKWARD_WEIGHT;
	p.weight = pass != BACKWARD_INPUT;
	if (p.chunk->stage.last && p.input && head_backward(&p, e))
		return -1;
	for (int i = p.chunk->layers - 1; i >= 0; i--)
		if (block_backward(&p, i, grad, e))
			return -1;
	return p.chunk->stage.first && p.weight ? embed_backward(&p, grad, e) : 0;
}

/* --- Opening ----------------------------------------------------------------- */

static int open_chunks(struct model *m, const struct model_options *opt, struct err *e)
{
	m->n_chunks = opt->n_chunks;
	m->chunks = calloc((size_t)opt->n_chunks, sizeof *m->chunks);
	m->params = calloc((size_t)opt->catalogue->n_units, sizeof *m->params);
	m->grads = calloc((size_t)opt->catalogue->n_units, sizeof *m->grads);
	if (!m->chunks || !m->params || !m->grads)
		return err_set(e, ERR_NOMEM, "model of %d chunks: out of memory", opt->n_chunks);
	for (int i = 0; i < opt->n_chunks; i++) {
		struct chunk *c = &m->chunks[i];
		c->stage = opt->chunks[i];
		c->layers = c->stage.layer_hi - c->stage.layer_lo;
		c->n_slots = opt->slots[i];
		m->has_last |= c->stage.last;
		if (views_open(opt, i, &c->views, e))
			return -1;
	}
	return 0;
}

/* What follows from the places of this rank's tokens. */
static int open_places(struct model *m, struct err *e)
{
	size_t n = (size_t)m->d.n;
	m->positions = calloc(n, sizeof *m->positions);
	m->samples = calloc((size_t)m->d.micro, sizeof *m->samples);
	bool ok = m->positions && m->samples;
	for (int i = 0; i < 3 && m->cp->size > 1; i++)
		ok = (m->local[i] = calloc(n, sizeof *m->local[i])) && ok;
	if (!ok)
		return err_set(e, ERR_NOMEM, "places of %zu tokens: out of memory", n);
	for (size_t i = 0; i < n; i++)
		m->positions[i] = (int32_t)cp_position(m->cp, m->shape.seq, (int64_t)i % m->d.seq);
	return m->shape.rope ? rope_tables(m, e) : 0;
}

int model_open(const struct model_options *opt, struct model **out, struct err *e)
{
	struct model *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "model: out of memory");
	m->job = opt->job;
	m->shape = *opt->shape;
	m->kern = opt->kern;
	m->ops = kern_ops(opt->kern);
	m->store = opt->store;
	m->tp = opt->tp;
	m->cp = opt->cp;
	m->spill_dir = opt->spill_dir;
	act_dims_of(opt->job, opt->shape, &opt->layout, opt->tp_rank, opt->split, &m->d);
	m->head_first = act_first_head(opt->shape, &opt->layout, opt->tp_rank);
	if (open_chunks(m, opt, e) || open_places(m, e) || activations_open(m, e) ||
	    (m->shape.experts && moe_open(m, opt->ep, e))) {
		model_close(m);
		return -1;
	}
	*out = m;
	return 0;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	moe_close(m);
	activations_close(m);
	for (int i = 0; m->chunks && i < m->n_chunks; i++)
		views_close(&m->chunks[i].views);
	for (int i = 0; i < 3; i++)
		free(m->local[i]);
	free(m->positions);
	free(m->samples);
	if (m->cos)
		kern_free(m->kern, m->cos);
	free(m->grads);
	free(m->params);
	free(m->chunks);
	free(m);
}
