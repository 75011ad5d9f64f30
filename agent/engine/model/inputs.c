/* Selects this rank's tokens and their numbers in the run, and puts them where the operations read
 * them. */
#include "agent/engine/model/stage.h"

#include <stdlib.h>

/* Returns this rank's tokens of whole sequences. */
static const int32_t *local_of(struct model *m, int which, const int32_t *whole)
{
	if (m->cp->size == 1 || !whole)
		return whole;
	int32_t *out = m->local[which];
	for (int64_t b = 0; b < m->d.micro; b++)
		for (int64_t t = 0; t < m->d.seq; t++)
			out[b * m->d.seq + t] = whole[b * m->shape->seq + m->positions[t]];
	return out;
}

/* Numbers the stream's rows in the run: sample × seq + position. Sequence shards are in the order
 * of tp ranks. */
static void number_rows(struct model *m, int64_t sample)
{
	int64_t first = m->tp->sp ? m->tp->rank * m->d.s : 0;
	for (int64_t i = 0; i < m->d.s; i++) {
		int64_t token = first + i;
		m->rows[i] = (sample + token / m->d.seq) * m->shape->seq + m->positions[token];
	}
}

static bool drops_rows(const struct pass *p)
{
	return p->keep && p->m->d.dropout;
}

static bool drops_weights(const struct pass *p)
{
	return p->keep && p->m->job->model.attn_dropout > 0;
}

static void numbers_of(struct pass *p)
{
	struct model *m = p->m;
	for (int64_t i = 0; drops_weights(p) && i < m->d.micro; i++)
		m->samples[i] = p->batch->sample + i;
	if (drops_rows(p))
		number_rows(m, p->batch->sample);
}

static void in_place(struct pass *p)
{
	struct model *m = p->m;
	numbers_of(p);
	p->inputs = local_of(m, 0, p->batch->inputs);
	p->targets = local_of(m, 1, p->batch->targets);
	p->starts = local_of(m, 2, p->batch->starts);
	p->samples = m->samples;
	p->rows = m->rows;
}

/* --- On a device: a part of the slot --- */

static void *place_of(const struct pass *p, enum act_input which)
{
	char *at = p->slot->at[SLOT_INPUTS];
	for (int a = 0; a < (int)which; a++)
		at += activations_place_bytes(&p->m->d, (enum act_input)a);
	return at;
}

static void in_slot(struct pass *p)
{
	p->inputs = place_of(p, PLACE_INPUTS);
	p->targets = place_of(p, PLACE_TARGETS);
	p->starts = p->batch->starts ? place_of(p, PLACE_STARTS) : NULL;
	p->samples = place_of(p, PLACE_SAMPLES);
	p->rows = place_of(p, PLACE_ROWS);
}

static void put_tokens(struct pass *p, int which, enum act_input place, const int32_t *whole)
{
	if (whole)
		backend_put(p->m->backend, place_of(p, place), local_of(p->m, which, whole),
			    (size_t)p->m->d.n * sizeof *whole);
}

static void put_all(struct pass *p)
{
	struct model *m = p->m;
	numbers_of(p);
	if (p->chunk->stage.first)
		put_tokens(p, 0, PLACE_INPUTS, p->batch->inputs);
	if (p->chunk->stage.last)
		put_tokens(p, 1, PLACE_TARGETS, p->batch->targets);
	put_tokens(p, 2, PLACE_STARTS, p->batch->starts);
	if (drops_weights(p))
		backend_put(m->backend, place_of(p, PLACE_SAMPLES), m->samples,
			    (size_t)m->d.micro * sizeof *m->samples);
	if (drops_rows(p))
		backend_put(m->backend, place_of(p, PLACE_ROWS), m->rows,
			    (size_t)m->d.s * sizeof *m->rows);
}

void model_inputs_forward(struct pass *p)
{
	if (!p->m->d.device) {
		in_place(p);
		return;
	}
	put_all(p);
	in_slot(p);
}

void model_inputs_backward(struct pass *p)
{
	if (p->m->d.device)
		in_slot(p);
	else
		in_place(p);
}

/* --- Opening --- */

int model_inputs_open(struct model *m, struct err *e)
{
	size_t n = (size_t)m->d.n;
	m->positions = calloc(n, sizeof *m->positions);
	m->samples = calloc((size_t)m->d.micro, sizeof *m->samples);
	bool ok = m->positions && m->samples;
	for (int i = 0; i < 3 && m->cp->size > 1; i++)
		ok = (m->local[i] = calloc(n, sizeof *m->local[i])) && ok;
	if (m->d.dropout && m->d.device)
		ok = (m->rows = calloc((size_t)m->d.s, sizeof *m->rows)) && ok;
	if (!ok)
		return err_set(e, ERR_NOMEM, "no memory for the positions of %zu tokens", n);
	for (size_t i = 0; i < n; i++)
		m->positions[i] = (int32_t)cp_position(m->cp, m->shape->seq, (int64_t)i % m->d.seq);
	return m->shape->rope ? model_rope_tables(m, e) : 0;
}

void model_inputs_close(struct model *m)
{
	for (int i = 0; i < 3; i++)
		free(m->local[i]);
	if (m->d.device)
		free(m->rows);
	free(m->positions);
	free(m->samples);
	if (m->cos)
		backend_free(m->backend, m->cos);
}
