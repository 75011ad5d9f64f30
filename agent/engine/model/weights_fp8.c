/* The layers' weights in 8 bits, which are cast once per step (linear_fp8.h). */
#include "agent/engine/model/arena.h"
#include "agent/engine/model/linear_fp8.h"

#include <stdlib.h>

static struct linear_view *linear_of(struct block_view *v, enum act_linear l)
{
	struct linear_view *const linears[] = { [ACT_LINEAR_QKV] = &v->qkv,
						[ACT_LINEAR_O] = &v->o,
						[ACT_LINEAR_UP] = &v->up,
						[ACT_LINEAR_DOWN] = &v->down };
	return linears[l];
}

static void carve_layer(const struct model *m, struct model_arena *c, struct block_view *v)
{
	struct fp8_scale *scales = model_arena_take(c, ACT_LINEARS * ACT_FP8_SCALE_BYTES);
	for (int l = 0; l < ACT_LINEARS; l++) {
		const enum act_linear linear = (enum act_linear)l;
		struct weight_copy *copy = &v->copies->linears[l];
		copy->at = model_arena_take(c, activations_fp8_weight(&m->d, linear, false));
		copy->transposed = model_arena_take(c, activations_fp8_weight(&m->d, linear, true));
		copy->scale = scales ? scales + l : NULL;
		linear_of(v, (enum act_linear)l)->copy = copy->at ? copy : NULL;
	}
}

static void carve(struct model *m, struct model_arena *c)
{
	for (int i = 0; i < m->n_chunks; i++)
		for (int l = 0; l < m->chunks[i].layers; l++)
			carve_layer(m, c, &m->chunks[i].views.blocks[l]);
}

static int open_layers(struct model *m, struct err *e)
{
	for (int i = 0; i < m->n_chunks; i++)
		for (int l = 0; l < m->chunks[i].layers; l++) {
			struct block_view *v = &m->chunks[i].views.blocks[l];
			v->copies = calloc(1, sizeof *v->copies);
			if (!v->copies)
				return err_set(e, ERR_NOMEM,
					       "no memory for the 8-bit weights of %d layers",
					       m->chunks[i].layers);
		}
	return 0;
}

int model_weights_fp8_open(struct model *m, struct err *e)
{
	struct model_arena c = { 0 };
	if (!m->d.fp8_weights)
		return 0;
	if (open_layers(m, e))
		return -1;
	carve(m, &c);
	if (!c.used)
		return 0;
	m->weights_fp8 = backend_alloc(m->backend, (size_t)c.used);
	if (!m->weights_fp8)
		return err_set(e, ERR_NOMEM,
			       "the weights in 8 bits: no memory for %lld bytes; raise parallel.tp "
			       "or parallel.pp, or set parallel.zero = 3",
			       (long long)c.used);
	c = (struct model_arena){ .base = m->weights_fp8 };
	carve(m, &c);
	return 0;
}

void model_weights_fp8_close(struct model *m)
{
	if (m->weights_fp8)
		backend_free(m->backend, m->weights_fp8);
	m->weights_fp8 = NULL;
	for (int i = 0; m->chunks && i < m->n_chunks; i++)
		for (int l = 0; m->chunks[i].views.blocks && l < m->chunks[i].layers; l++) {
			free(m->chunks[i].views.blocks[l].copies);
			m->chunks[i].views.blocks[l].copies = NULL;
		}
}

static bool stale(const struct model *m, const struct block_view *v)
{
	return v->copies && v->copies->version != param_store_version(m->store);
}

static void cast_weights(struct model *m, const struct linear_view *l)
{
	const void *w = model_unit_param(m, l->unit, l->w);
	const struct fp8_copies all = { .at = l->copy->at,
					.transposed = l->copy->transposed,
					.scale = l->copy->scale,
					.format = FP8_E4M3 },
				none = { .scale = l->copy->scale };
	m->ops->fp8_cast(m->backend, w, l->out, l->in, &none);
	m->ops->fp8_cast_current(m->backend, w, l->out, l->in, &all);
}

void model_weights_fp8_refresh(struct model *m, const struct block_view *v)
{
	const struct linear_view *const linears[] = { &v->qkv, &v->o, &v->up, &v->down };
	if (!stale(m, v))
		return;
	backend_zero(m->backend, v->qkv.copy->scale, ACT_LINEARS * ACT_FP8_SCALE_BYTES);
	for (int l = 0; l < ACT_LINEARS; l++)
		if (linears[l]->copy)
			cast_weights(m, linears[l]);
	v->copies->version = param_store_version(m->store);
}

bool model_weights_fp8_stale(const struct pass *p)
{
	int n = 0;
	for (int i = 0; i < p->chunk->layers; i++)
		n += stale(p->m, &p->chunk->views.blocks[i]);
	return n && n == p->chunk->layers;
}

void model_weights_fp8_refreshed(const struct pass *p)
{
	for (int i = 0; i < p->chunk->layers; i++)
		p->chunk->views.blocks[i].copies->version = param_store_version(p->m->store);
}

int model_weights_fp8_refresh_all(struct pass *p, struct err *e)
{
	struct model *m = p->m;
	for (int i = 0; i < p->chunk->layers; i++) {
		const struct block_view *v = &p->chunk->views.blocks[i];
		if (!stale(m, v))
			continue;
		if (model_unit_acquire(m, v->unit, e))
			return -1;
		model_weights_fp8_refresh(m, v);
		model_unit_release(m, v->unit);
	}
	return 0;
}
