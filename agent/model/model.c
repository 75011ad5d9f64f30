#include "agent/model/stage.h"

#include <stdlib.h>

int64_t model_boundary(const struct model *m)
{
	return m->n * m->shape.hidden;
}

float *model_input(struct model *m, int slot)
{
	return m->slots[slot].input;
}

float *model_output(struct model *m, int slot)
{
	return m->slots[slot].output;
}

float *model_grad(struct model *m, int slot)
{
	return m->slots[slot].grad;
}

static int blocks_forward(struct model *m, struct slot *slot, struct stream *s, struct err *e)
{
	for (int i = 0; i < m->layers; i++) {
		const struct block_view *v = &m->views.blocks[i];
		struct block_kept *k = &slot->blocks[i];
		/* Each sublayer's norm takes what the one before left pending, so one buffer serves them all. */
		if (attention_forward(m, v, k, slot->pending, s, e) || mlp_forward(m, v, k, slot->pending, s, e))
			return -1;
	}
	return 0;
}

int model_forward(struct model *m, int slot, const int32_t *inputs, const int32_t *targets, bool backward,
		  double *loss, struct err *e)
{
	struct slot *k = &m->slots[slot];
	struct stream s = { .x = k->input };

	if (m->stage.first && embed_forward(m, k->input, inputs, e))
		return -1;
	if (blocks_forward(m, k, &s, e))
		return -1;
	if (m->stage.last)
		return head_forward(m, k, s, targets, backward, loss, e);
	if (s.r)
		m->ops->add(m->kern, s.r, s.x, model_boundary(m));
	k->output = s.r ? s.r : s.x;
	return 0;
}

static int report(const struct model_watch *w, int64_t from, struct err *e)
{
	return w ? w->done(w->arg, from, e) : 0;
}

int model_backward(struct model *m, int slot, const int32_t *inputs, const struct model_watch *watch, struct err *e)
{
	struct slot *k = &m->slots[slot];

	if (m->stage.last && (head_backward(m, k, e) || report(watch, m->views.norm.w, e)))
		return -1;
	for (int i = m->layers - 1; i >= 0; i--) {
		const struct block_view *v = &m->views.blocks[i];
		if (mlp_backward(m, v, &k->blocks[i], k->grad, e) ||
		    attention_backward(m, v, &k->blocks[i], k->grad, e) ||
		    report(watch, v->norm1.w, e)) /* a layer begins with its first norm */
			return -1;
	}
	if (m->stage.first)
		embed_backward(m, k->grad, inputs);
	return report(watch, 0, e);
}

/* What this shard holds of the family's sizes. */
static void shard_sizes(struct model *m)
{
	m->attn = (struct attn_shape){ .batch = m->micro, .seq = m->shape.seq, .dim = (int)m->shape.head_dim };
	if (m->layers) {
		const struct block_view *v = &m->views.blocks[0];
		m->attn.heads = (int)(v->o.in / m->shape.head_dim);
		m->attn.kv_heads = (int)((v->qkv.out / m->shape.head_dim - m->attn.heads) / 2);
		m->ffn = v->down.in;
	}
	if (m->stage.last)
		m->rows = model_head_rows(m->n, m->views.head.out);
}

int model_open(const struct model_options *opt, struct model **out, struct err *e)
{
	struct model *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "model: out of memory");
	m->shape = *opt->shape;
	m->stage = opt->stage;
	m->kern = opt->kern;
	m->ops = kern_ops(opt->kern);
	m->tp = opt->tp;
	m->params = opt->params;
	m->grads = opt->grads;
	m->micro = opt->micro;
	m->n = opt->micro * opt->shape->seq;
	m->layers = opt->stage.layer_hi - opt->stage.layer_lo;
	m->n_slots = opt->slots;
	m->grad_scale = opt->grad_scale;
	if (views_open(opt, &m->views, e))
		goto fail;
	shard_sizes(m);
	if (activations_open(m, e))
		goto fail;
	*out = m;
	return 0;
fail:
	model_close(m);
	return -1;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	activations_close(m);
	views_close(&m->views);
	free(m);
}
