/* The micro-batches that live on this rank, and what is free. */
#include "agent/engine/pipeline/rank.h"

#include <stdlib.h>

/* The rank's own chunk that has the stage; -1: there is none. */
static int own_chunk(const struct engine *g, int stage)
{
	int pp, chunk;
	if (stage < 0 || stage >= layout_n_stages(&g->layout))
		return -1;
	layout_holder(&g->layout, stage, &pp, &chunk);
	return pp == g->at.pp ? chunk : -1;
}

int pipeline_slots_open(struct engine *g, struct err *e)
{
	int chunks = g->layout.chunks;
	g->tracks = calloc((size_t)chunks, sizeof *g->tracks);
	for (int c = 0; g->tracks && c < chunks; c++) {
		struct track *t = &g->tracks[c];
		int stage = layout_stage(&g->layout, g->at.pp, c);
		bool back = g->layout.vee && c == 1;
		*t = (struct track){
			.slots = g->schedule.rows[g->at.pp].slots.live[c],
			.before = own_chunk(g, stage - 1),
			.after = own_chunk(g, stage + 1),
			.from = back ? PIPE_NEXT : PIPE_PREV,
			.to = back ? PIPE_PREV : PIPE_NEXT,
		};
		t->berths = calloc((size_t)t->slots, sizeof *t->berths);
		t->slot_of = calloc((size_t)g->micros, sizeof *t->slot_of);
		if (!t->berths || !t->slot_of)
			return err_set(e, ERR_NOMEM, "%d micro-batches: out of memory", g->micros);
	}
	return g->tracks ? 0 : err_set(e, ERR_NOMEM, "%d chunks: out of memory", chunks);
}

void pipeline_slots_close(struct engine *g)
{
	for (int c = 0; g->tracks && c < g->layout.chunks; c++) {
		free(g->tracks[c].berths);
		free(g->tracks[c].slot_of);
	}
	free(g->tracks);
	g->tracks = NULL;
}

/* The round robin gives messages time to leave. */
int pipeline_slot_find(struct engine *g, int chunk, int micro)
{
	struct track *t = &g->tracks[chunk];
	if (t->slot_of[micro] >= 0)
		return t->slot_of[micro];
	for (int i = 0; i < t->slots; i++) {
		int slot = (t->next_slot + i) % t->slots;
		if (t->berths[slot].taken)
			continue;
		t->berths[slot].taken = true;
		t->next_slot = slot + 1;
		return t->slot_of[micro] = slot;
	}
	return -1;
}

struct berth *pipeline_slot_state(struct engine *g, int chunk, int micro)
{
	struct track *t = &g->tracks[chunk];
	return &t->berths[t->slot_of[micro]];
}

void pipeline_slot_release(struct engine *g, int chunk, int micro)
{
	pipeline_slot_state(g, chunk, micro)->taken = false;
}
