#include "agent/engine/model/arena.h"
#include "agent/engine/model/stage.h"
#include "agent/engine/parallel/device.h"

#include <stdlib.h>
#include <string.h>

/* A layer's tensors are contiguous, so that offload copies them as one. */
static void carve_block(struct model *m, struct model_arena *c, const struct slot *s,
			const struct block_view *v, bool first, struct block_saved *k)
{
	for (int a = 0; a < ACTS; a++) {
		enum act_storage home = activations_home(&m->d, v->layer, first, (enum act)a);
		k->at[a] = home == ACT_SAVED
				   ? model_arena_take(c, activations_bytes(&m->d, (enum act)a))
			   : home == ACT_SHARED ? m->recomputed.at[a]
						: NULL;
	}
	if (first)
		k->at[ACT_NORM1_X] = s->at[SLOT_INPUT];
}

static void carve_slot(struct model *m, const struct chunk *ch, struct model_arena *c,
		       struct slot *s)
{
	for (int a = 0; a < SLOTS; a++)
		s->at[a] = model_arena_take(c, activations_slot_bytes(&m->d, &ch->stage,
								      (enum act_slot)a));
	for (int i = 0; i < ch->layers; i++) {
		struct model_arena staged = { .base = m->offload
							      ? model_offload_staged(m->offload, i)
							      : NULL };
		carve_block(m, m->d.offload ? &staged : c, s, &ch->views.blocks[i], i == 0,
			    &s->blocks[i]);
	}
}

/* One copy of each tensor that any layer recomputes. */
static void carve_work(struct model *m, struct model_arena *c)
{
	bool used[ACTS] = { false };
	for (int i = 0; i < m->n_chunks; i++)
		for (int l = 0; l < m->chunks[i].layers; l++)
			for (int a = 0; a < ACTS; a++)
				used[a] |= activations_home(&m->d,
							    m->chunks[i].views.blocks[l].layer,
							    l == 0, (enum act)a) == ACT_SHARED;
	for (int a = 0; a < ACTS; a++)
		m->recomputed.at[a] =
			used[a] ? model_arena_take(c, activations_bytes(&m->d, (enum act)a)) : NULL;
}

static void carve_scratch(struct model *m, struct model_arena *c, int from, int to)
{
	for (int a = from; a < to; a++)
		m->scratch[a] = model_arena_take(c, activations_scratch_bytes(&m->d, m->has_last,
									      (enum act_scratch)a));
}

/* exchanged: tp's group reads and writes the memory, all of which it registers. */
static int alloc_arena(struct model *m, struct model_arena *c, bool exchanged, const char *what,
		       struct err *e)
{
	size_t bytes = c->used ? (size_t)c->used : 1;
	*c = (struct model_arena){ .base = backend_alloc_from(
					   m->backend, exchanged ? m->memory : NULL, bytes) };
	if (!c->base)
		return err_set(e, ERR_NOMEM,
			       "%s: no memory for %zu bytes; lower batch.micro, raise parallel.tp "
			       "or parallel.pp, or set recompute.mode",
			       what, bytes);
	if (exchanged)
		m->exchanged[m->n_exchanged++] = parallel_memory_piece(m->backend, c->base, bytes);
	return 0;
}

static int open_slot(struct model *m, const struct chunk *ch, struct slot *s, struct err *e)
{
	struct model_arena c = { 0 };
	s->blocks = calloc((size_t)ch->layers + 1, sizeof *s->blocks);
	if (!s->blocks)
		return err_set(e, ERR_NOMEM, "no memory for the activations of %d layers",
			       ch->layers);
	carve_slot(m, ch, &c, s);
	if (alloc_arena(m, &c, true, "a micro-batch's activations", e))
		return -1;
	s->memory = c.base;
	carve_slot(m, ch, &c, s);
	return 0;
}

/* Room for the arenas of the recomputed tensors, of the scratch, and of each slot. */
static int open_list(struct model *m, struct err *e)
{
	int n = 2;
	for (int i = 0; i < m->n_chunks; i++)
		n += m->chunks[i].n_slots;
	m->exchanged = calloc((size_t)n, sizeof *m->exchanged);
	return m->exchanged ? 0 : err_set(e, ERR_NOMEM, "no memory for a list of %d arenas", n);
}

static int open_work(struct model *m, struct err *e)
{
	struct model_arena c = { 0 };
	carve_work(m, &c);
	if (!c.used)
		return 0;
	if (alloc_arena(m, &c, true, "recomputed activations", e))
		return -1;
	m->work = c.base;
	carve_work(m, &c);
	return 0;
}

/* One arena for what tp exchanges, and one for the rest. */
static int open_scratch(struct model *m, struct err *e)
{
	for (int i = 0; i < 2; i++) {
		int from = i ? SCRATCH_EXCHANGED : 0, to = i ? SCRATCHES : SCRATCH_EXCHANGED;
		struct model_arena c = { 0 };
		carve_scratch(m, &c, from, to);
		if (alloc_arena(m, &c, i == 0, "the passes' scratch", e))
			return -1;
		m->scratch_memory[i] = c.base;
		carve_scratch(m, &c, from, to);
	}
	m->cp->buffers = (struct cp_buffers){
		m->scratch[SCRATCH_RING_KV],
		m->scratch[SCRATCH_RING_DKV],
		m->scratch[SCRATCH_RING_O],
		m->scratch[SCRATCH_RING_LSE],
	};
	return 0;
}

int model_activations_open(struct model *m, struct err *e)
{
	if ((m->d.offload && model_offload_open(m, &m->offload, e)) || open_list(m, e) ||
	    open_work(m, e) || open_scratch(m, e))
		return -1;
	for (int i = 0; i < m->n_chunks; i++) {
		struct chunk *ch = &m->chunks[i];
		ch->slots = calloc((size_t)ch->n_slots, sizeof *ch->slots);
		if (!ch->slots)
			return err_set(e, ERR_NOMEM, "no memory for %d micro-batches", ch->n_slots);
		for (int s = 0; s < ch->n_slots; s++)
			if (open_slot(m, ch, &ch->slots[s], e))
				return -1;
	}
	return m->memory ? parallel_memory_register(&m->tp->comm, 1, m->exchanged, m->n_exchanged,
						    "activations", e)
			 : 0;
}

static void close_slots(struct model *m, struct chunk *ch)
{
	for (int i = 0; ch->slots && i < ch->n_slots; i++) {
		if (ch->slots[i].memory)
			backend_free(m->backend, ch->slots[i].memory);
		free(ch->slots[i].blocks);
	}
	free(ch->slots);
	ch->slots = NULL;
}

void model_activations_close(struct model *m)
{
	for (int i = 0; m->chunks && i < m->n_chunks; i++)
		close_slots(m, &m->chunks[i]);
	if (m->work)
		backend_free(m->backend, m->work);
	for (int i = 0; i < 2; i++) {
		if (m->scratch_memory[i])
			backend_free(m->backend, m->scratch_memory[i]);
		m->scratch_memory[i] = NULL;
	}
	m->work = NULL;
	free(m->exchanged);
	m->exchanged = NULL;
	m->n_exchanged = 0;
	model_offload_close(m);
}
