#include "agent/model/stage.h"

#include <stdlib.h>
#include <string.h>

/* Cuts one allocation into pieces. With base NULL it only measures: the same code walks both times. */
struct carver {
	float *base;
	int64_t used; /* elements */
};

static float *carve(struct carver *c, int64_t elements)
{
	float *p = c->base ? c->base + c->used : NULL;
	c->used += (elements + 15) / 16 * 16; /* 64-byte lines */
	return p;
}

static void carve_norm(struct model *m, struct carver *c, struct norm_kept *k, bool sums)
{
	k->x = sums ? carve(c, model_boundary(m)) : NULL;
	k->mean = m->shape.rms ? NULL : carve(c, m->n);
	k->rstd = carve(c, m->n);
}

static void carve_block(struct model *m, struct carver *c, const struct block_view *v, struct block_kept *k, bool first)
{
	carve_norm(m, c, &k->norm1, !first); /* nothing is pending in front of a stage's first norm */
	carve_norm(m, c, &k->norm2, true);
	k->y1 = carve(c, model_boundary(m));
	k->qkv = carve(c, m->n * v->qkv.out);
	k->o = carve(c, m->n * v->o.in);
	k->lse = carve(c, m->n * m->attn.heads);
	k->y2 = carve(c, model_boundary(m));
	k->up = carve(c, m->n * v->up.out);
	k->act = carve(c, m->n * v->down.in);
}

static void carve_slot(struct model *m, struct carver *c, struct slot *s)
{
	s->input = carve(c, model_boundary(m));
	s->pending = carve(c, model_boundary(m));
	s->grad = carve(c, model_boundary(m));
	for (int i = 0; i < m->layers; i++)
		carve_block(m, c, &m->views.blocks[i], &s->blocks[i], i == 0);
	if (m->stage.last) {
		carve_norm(m, c, &s->norm, m->layers > 0);
		s->y = carve(c, model_boundary(m));
	}
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void carve_scratch(struct model *m, struct carver *c, struct scratch *t)
{
	if (m->layers) {
		const struct block_view *v = &m->views.blocks[0];
		t->hidden = carve(c, model_boundary(m));
		t->wide = carve(c, m->n * most(v->qkv.out, v->up.out));
		t->narrow = carve(c, m->n * most(v->o.in, v->down.in));
	}
	if (m->stage.last) {
		t->logits = carve(c, m->rows * m->views.head.out);
		t->max = carve(c, m->rows);
		t->sums = carve(c, m->rows * 2);
	}
}

static int take(struct model *m, struct carver *c, const char *what, struct err *e)
{
	size_t bytes = (size_t)c->used * sizeof(float);
	*c = (struct carver){ .base = kern_alloc(m->kern, bytes ? bytes : sizeof(float)) };
	if (c->base)
		return 0;
	return err_set(e, ERR_NOMEM, "%s: no memory for %zu bytes; lower batch.micro, or raise parallel.tp or parallel.pp",
		       what, bytes);
}

int activations_open(struct model *m, struct err *e)
{
	m->slots = calloc((size_t)m->n_slots, sizeof *m->slots);
	if (!m->slots)
		return err_set(e, ERR_NOMEM, "%d micro-batches: out of memory", m->n_slots);
	for (int i = 0; i < m->n_slots; i++) {
		struct slot *s = &m->slots[i];
		struct carver c = { 0 };
		s->blocks = calloc((size_t)m->layers + 1, sizeof *s->blocks);
		if (!s->blocks)
			return err_set(e, ERR_NOMEM, "%d layers' activations: out of memory", m->layers);
		carve_slot(m, &c, s);
		if (take(m, &c, "a micro-batch's activations", e))
			return -1;
		s->memory = c.base;
		carve_slot(m, &c, s);
	}
	struct carver c = { 0 };
	carve_scratch(m, &c, &m->scratch);
	if (take(m, &c, "the passes' scratch", e))
		return -1;
	m->scratch.memory = c.base;
	carve_scratch(m, &c, &m->scratch);
	return 0;
}

void activations_close(struct model *m)
{
	for (int i = 0; m->slots && i < m->n_slots; i++) {
		if (m->slots[i].memory)
			kern_free(m->kern, m->slots[i].memory);
		free(m->slots[i].blocks);
	}
	free(m->slots);
	m->slots = NULL;
	if (m->scratch.memory)
		kern_free(m->kern, m->scratch.memory);
	memset(&m->scratch, 0, sizeof m->scratch);
}
