#include "agent/engine/model/check.h"
#include "agent/engine/model/moe.h"
#include "agent/engine/model/graphs.h"
#include "agent/engine/model/linear_fp8.h"
#include "plan/spec/schedule/schedule.h"

#include <stdlib.h>

double model_recompute_s(const struct model *m)
{
	return m->recompute_s;
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
	return m->chunks[chunk].slots[slot].at[SLOT_PENDING];
}

void *model_grad(struct model *m, int chunk, int slot)
{
	return m->chunks[chunk].slots[slot].at[SLOT_GRAD];
}

static struct pass pass_of(struct model *m, int chunk, int slot, const struct model_batch *b)
{
	struct chunk *c = &m->chunks[chunk];
	return (struct pass){ .m = m, .chunk = c, .slot = &c->slots[slot], .batch = b };
}

void model_loss_begin(struct model *m)
{
	backend_zero(m->backend, m->loss, LOSSES * sizeof *m->loss);
}

int model_loss(struct model *m, double *losses, struct err *e)
{
	return backend_get(m->backend, losses, m->loss, LOSSES * sizeof *losses, e);
}

const double *model_losses(const struct model *m)
{
	return m->loss;
}

int model_step_begin(struct model *m, struct err *e)
{
	return m->scales && !m->check ? model_scales_begin(m->scales, e) : 0;
}

struct model_scales *model_scales_of(const struct model *m)
{
	return m->scales;
}

static int forward_layer(struct pass *p, int i, struct stream *s, struct err *e)
{
	struct model *m = p->m;
	int64_t n = model_boundary(m);
	model_check_enter(p, false, p->chunk->stage.layer_lo + i);
	if (i == 0)
		model_check_tensor(m, "input", s->x, n);
	if (model_block_forward(p, i, s, e))
		return -1;
	model_check_tensor(m, "output of attention", s->x, n);
	model_check_tensor(m, "output", s->r, n);
	return 0;
}

static int forward_head(struct pass *p, struct stream s, struct err *e)
{
	model_check_enter(p, false, (int)p->m->shape->layers);
	if (model_head_forward(p, s, e))
		return -1;
	model_check_loss(p->m);
	return 0;
}

static int forward_pass(struct pass *p, struct err *e)
{
	struct model *m = p->m;
	struct stream s = { .x = p->slot->at[SLOT_INPUT] };
	model_check_enter(p, false, -1);
	if (p->chunk->stage.first && model_embed_forward(p, p->slot->at[SLOT_INPUT], e))
		return -1;
	model_plant_input(p, s.x);
	for (int i = 0; i < p->chunk->layers; i++)
		if (forward_layer(p, i, &s, e))
			return -1;
	if (p->chunk->stage.last)
		return forward_head(p, s, e);
	m->ops->add(m->backend, s.r, s.x, model_boundary(m));
	return 0;
}

/* dres: the gradient of the layer's output, which is replaced by that of its input. */
static int backward_layer(struct pass *p, int i, void *dres, struct err *e)
{
	struct model *m = p->m;
	model_check_enter(p, true, p->chunk->stage.layer_lo + i);
	if (i == p->chunk->layers - 1)
		model_check_tensor(m, "gradient of the output", dres, model_boundary(m));
	if (model_block_backward(p, i, dres, e))
		return -1;
	model_check_tensor(m, "gradient of the input", dres, model_boundary(m));
	return 0;
}

static int backward_pass(struct pass *p, struct err *e)
{
	void *grad = p->slot->at[SLOT_GRAD];
	model_check_enter(p, true, (int)p->m->shape->layers);
	if (p->chunk->stage.last && p->input && model_head_backward(p, e))
		return -1;
	for (int i = p->chunk->layers - 1; i >= 0; i--)
		if (backward_layer(p, i, grad, e))
			return -1;
	model_check_enter(p, true, -1);
	return p->chunk->stage.first && p->weight ? model_embed_backward(p, grad, e) : 0;
}

int model_forward(struct model *m, int chunk, int slot, const struct model_batch *b, bool backward,
		  struct err *e)
{
	struct pass p = pass_of(m, chunk, slot, b);
	p.keep = backward;
	model_linear_fp8_pass(m, backward);
	p.loss = backward ? m->loss : NULL;
	model_inputs_forward(&p);
	return model_graphs_run(&p, backward ? GRAPH_FORWARD : GRAPH_EVALUATION, forward_pass, e);
}

int model_backward(struct model *m, int chunk, int slot, const struct model_batch *b,
		   enum model_pass pass, struct err *e)
{
	static const enum pass_graph_kind kinds[] = { [BACKWARD_BOTH] = GRAPH_BACKWARD,
						      [BACKWARD_INPUT] = GRAPH_BACKWARD_INPUT,
						      [BACKWARD_WEIGHT] = GRAPH_BACKWARD_WEIGHT };
	struct pass p = pass_of(m, chunk, slot, b);
	p.keep = true;
	model_linear_fp8_pass(m, true);
	p.input = pass != BACKWARD_WEIGHT;
	p.weight = pass != BACKWARD_INPUT;
	model_inputs_backward(&p);
	return model_graphs_run(&p, kinds[pass], backward_pass, e);
}

/* --- Opening --- */

static int open_chunks(struct model *m, const struct model_options *opt, struct err *e)
{
	const struct share *share = &opt->view->share;
	m->n_chunks = share->n_chunks;
	m->chunks = calloc((size_t)m->n_chunks, sizeof *m->chunks);
	m->params = calloc((size_t)opt->catalogue->n_units, sizeof *m->params);
	m->grads = calloc((size_t)opt->catalogue->n_units, sizeof *m->grads);
	if (!m->chunks || !m->params || !m->grads)
		return err_set(e, ERR_NOMEM, "no memory for a model of %d chunks", m->n_chunks);
	for (int i = 0; i < m->n_chunks; i++) {
		struct chunk *c = &m->chunks[i];
		c->stage = share->chunks[i];
		c->layers = c->stage.layer_hi - c->stage.layer_lo;
		c->n_slots = opt->slots[i];
		m->has_last |= c->stage.last;
		if (model_views_open(opt, i, &c->views, e))
			return -1;
	}
	return 0;
}

/* The positions, the stream rows' numbers and the sums of losses. */
static void open_rest(struct model *m)
{
	m->loss = m->d.device ? m->scratch[SCRATCH_LOSS] : m->losses_here;
	m->positions_at = m->d.device ? m->scratch[SCRATCH_POSITIONS] : m->positions;
	if (m->d.device)
		backend_put(m->backend, m->scratch[SCRATCH_POSITIONS], m->positions,
			    (size_t)m->d.n * sizeof *m->positions);
	else
		m->rows = m->scratch[SCRATCH_ROWS];
}

int model_open(const struct model_options *opt, struct model **out, struct err *e)
{
	const struct rank_view *v = opt->view;
	bool split = schedule_splits(v->job->parallel.schedule);
	struct model *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "no memory for the model");
	m->job = v->job;
	m->shape = &v->shape;
	m->backend = opt->backend;
	m->ops = backend_ops(opt->backend);
	m->store = opt->store;
	m->tp = opt->tp;
	m->cp = opt->cp;
	m->spill_dir = opt->spill_dir;
	m->memory = opt->memory;
	m->logit_scale = &opt->numbers->logit_scale;
	activations_dims_of(v->job, m->shape, &v->layout, v->at.tp, split, &m->d);
	m->d.device = !backend_on_host(m->backend);
	m->head_first = activations_first_head(m->shape, &v->layout, v->at.tp);
	if (open_chunks(m, opt, e) || model_inputs_open(m, e) || model_activations_open(m, e) ||
	    model_weights_fp8_open(m, e) || model_linear_fp8_open(m, opt->world, e) ||
	    (m->shape->experts && model_moe_open(m, opt->ep, e)) || model_graphs_open(m, e)) {
		model_close(m);
		return -1;
	}
	open_rest(m);
	*out = m;
	return 0;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	model_graphs_close(m);
	model_moe_close(m);
	model_activations_close(m);
	model_weights_fp8_close(m);
	model_scales_close(m->scales);
	for (int i = 0; m->chunks && i < m->n_chunks; i++)
		model_views_close(&m->chunks[i].views);
	model_inputs_close(m);
	free(m->grads);
	free(m->params);
	free(m->chunks);
	free(m);
}
