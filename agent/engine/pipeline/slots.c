/* Slots of micro-batches on this rank. */
#include "agent/engine/pipeline/rank.h"

#include <stdlib.h>

/* This rank's chunk that has the stage. -1: none. */
static int own_chunk(const struct engine *g, int stage)
{
	int pp, chunk;
	if (stage < 0 || stage >= layout_n_stages(&g->view->layout))
		return -1;
	layout_holder(&g->view->layout, stage, &pp, &chunk);
	return pp == g->view->at.pp ? chunk : -1;
}

int pipeline_slots_open(struct engine *g, struct err *e)
{
	int chunks = g->view->layout.chunks;
	g->chunk_states = calloc((size_t)chunks, sizeof *g->chunk_states);
	for (int c = 0; g->chunk_states && c < chunks; c++) {
		struct chunk_state *t = &g->chunk_states[c];
		int stage = layout_stage(&g->view->layout, g->view->at.pp, c);
		bool back = g->view->layout.vee && c == 1;
		*t = (struct chunk_state){
			.slots = g->schedule.rows[g->view->at.pp].slots.live[c],
			.before = own_chunk(g, stage - 1),
			.after = own_chunk(g, stage + 1),
			.from = back ? PP_NEXT : PP_PREV,
			.to = back ? PP_PREV : PP_NEXT,
		};
		t->slot_states = calloc((size_t)t->slots, sizeof *t->slot_states);
		t->slot_of = calloc((size_t)g->view->batch.micros, sizeof *t->slot_of);
		if (!t->slot_states || !t->slot_of)
			return err_set(e, ERR_NOMEM, "pipeline: no memory for %d micro-batches",
				       g->view->batch.micros);
	}
	return g->chunk_states ? 0
			       : err_set(e, ERR_NOMEM, "pipeline: no memory for %d chunks", chunks);
}

void pipeline_slots_close(struct engine *g)
{
	for (int c = 0; g->chunk_states && c < g->view->layout.chunks; c++) {
		free(g->chunk_states[c].slot_states);
		free(g->chunk_states[c].slot_of);
	}
	free(g->chunk_states);
	g->chunk_states = NULL;
}

/* Slots are taken round-robin, which gives sends time to complete before a slot is reused. */
int pipeline_slot_find(struct engine *g, int chunk, int micro)
{
	struct chunk_state *t = &g->chunk_states[chunk];
	if (t->slot_of[micro] >= 0)
		return t->slot_of[micro];
	for (int i = 0; i < t->slots; i++) {
		int slot = (t->next_slot + i) % t->slots;
		if (t->slot_states[slot].taken)
			continue;
		t->slot_states[slot].taken = true;
		t->next_slot = slot + 1;
		return t->slot_of[micro] = slot;
	}
	return -1;
}

struct slot_state *pipeline_slot_state(struct engine *g, int chunk, int micro)
{
	struct chunk_state *t = &g->chunk_states[chunk];
	return &t->slot_states[t->slot_of[micro]];
}

void pipeline_slots_begin(struct engine *g)
{
	for (int c = 0; c < g->view->layout.chunks; c++) {
		struct chunk_state *t = &g->chunk_states[c];
		t->began_at = t->next_slot;
		for (int i = 0; i < g->view->batch.micros; i++)
			t->slot_of[i] = -1;
		for (int i = 0; i < t->slots; i++)
			t->slot_states[i].taken = false;
	}
}

void pipeline_slot_release(struct engine *g, int chunk, int micro)
{
	pipeline_slot_state(g, chunk, micro)->taken = false;
}
