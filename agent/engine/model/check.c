/* Check mode: counts the numbers of each tensor that are NaN or infinite as soon as it is computed,
 * and notes the first tensor that has some. It waits for the device after each tensor. */
#include "agent/engine/model/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct model_check {
	struct model_finding found;
	struct model_place at; /* where the pass is */
	struct tally *tally;   /* in the backend's memory */
};

int model_check_begin(struct model *m, struct err *e)
{
	m->check = calloc(1, sizeof *m->check);
	if (m->check)
		m->check->tally = backend_alloc(m->backend, sizeof *m->check->tally);
	if (m->check && m->check->tally)
		return 0;
	free(m->check);
	m->check = NULL;
	return err_set(e, ERR_NOMEM, "no memory for the check of a step; lower batch.micro");
}

void model_check_end(struct model *m, struct model_finding *out)
{
	*out = m->check->found;
	backend_free(m->backend, m->check->tally);
	free(m->check);
	m->check = NULL;
}

void model_check_enter(const struct pass *p, bool backward, int layer)
{
	struct model_check *c = p->m->check;
	if (c)
		c->at = (struct model_place){ .micro = p->batch->number,
					      .backward = backward,
					      .layer = layer };
}

/* Notes a tensor with `bad` bad numbers of n. */
static void note_tensor(struct model_check *c, const char *what, int64_t bad, int64_t n)
{
	c->at.order++;
	if (!bad)
		return;
	c->found = (struct model_finding){ .bad = bad, .count = n, .at = c->at };
	snprintf(c->found.what, sizeof c->found.what, "%s", what);
}

/* An error of the device is left to the pass, which meets it too. */
static void check_numbers(struct model *m, const char *what, const void *x, int64_t n,
			  enum number_format format)
{
	struct model_check *c = m->check;
	struct tally t;
	if (c->found.bad)
		return;
	backend_zero(m->backend, c->tally, sizeof *c->tally);
	backend_tally(m->backend, c->tally, x, n, format, 0);
	if (!backend_get(m->backend, &t, c->tally, sizeof t, NULL))
		note_tensor(c, what, (int64_t)t.bad, n);
}

void model_check_tensor(struct model *m, const char *what, const void *x, int64_t n)
{
	if (m->check)
		check_numbers(m, what, x, n, backend_format(m->backend));
}

void model_check_gradients(struct model *m, int unit)
{
	const struct catalogue *c = param_store_catalogue(m->store);
	const struct unit *u = &c->units[unit];
	for (int i = u->first; m->check && !m->check->found.bad && i < u->first + u->n_params;
	     i++) {
		const struct param *p = &c->params[i];
		const struct grad_range r = { p->offset - u->lo, p->count };
		if (!param_store_has_grads(m->store, unit, &r, 1))
			continue;
		check_numbers(m, p->name, m->grads[unit] + (p->offset - u->lo), p->count,
			      NUMBER_FP32);
		m->check->found.gradient = m->check->found.bad;
	}
}

void model_check_loss(struct model *m)
{
	double losses[LOSSES];
	if (m->check && !m->check->found.bad && !model_loss(m, losses, NULL))
		note_tensor(m->check, "loss", !isfinite(losses[LOSS_ALL]), 1);
}

/* --- What a step leaves behind ---------------------------------------------------------- */

struct visit {
	struct model *m;
	struct tally *at;           /* in the backend's memory; NULL: only count */
	struct model_place *places; /* of the tallies, in host memory */
	int n;
};

static void visit_tensor(struct visit *v, const void *x, int64_t bytes, struct model_place place)
{
	if (!x || !bytes)
		return;
	if (v->at) {
		backend_tally(v->m->backend, &v->at[v->n], x, bytes / 4, NUMBER_FP32, 0);
		v->places[v->n] = place;
	}
	v->n++;
}

static void visit_layer(struct visit *v, const struct chunk *ch, const struct slot *s, int i)
{
	const struct act_dims *d = &v->m->d;
	int layer = ch->stage.layer_lo + i;
	for (int a = 0; a < ACTS; a++)
		if (activations_home(d, layer, i == 0, (enum act)a) == ACT_SAVED)
			visit_tensor(v, s->blocks[i].at[a], activations_bytes(d, (enum act)a),
				     (struct model_place){ .backward = a >= ACT_DATTN &&
								       a <= ACT_DUP,
							   .layer = layer,
							   .order = a + 1 });
}

/* The output belongs to the last layer, and the gradient, which the pass has replaced by that of
 * the input, to the first one. */
static void visit_slot(struct visit *v, const struct chunk *ch, const struct slot *s)
{
	const struct act_dims *d = &v->m->d;
	const struct stage *g = &ch->stage;
	const struct model_place first = { .layer = g->layer_lo },
				 last = { .layer = g->layer_hi - 1, .order = ACTS + 1 },
				 end = { .layer = g->layer_lo,
					 .order = ACTS + 1,
					 .backward = true };
	visit_tensor(v, s->at[SLOT_INPUT], activations_slot_bytes(d, g, SLOT_INPUT), first);
	for (int i = 0; !d->offload && i < ch->layers; i++)
		visit_layer(v, ch, s, i);
	visit_tensor(v, s->at[SLOT_PENDING], activations_slot_bytes(d, g, SLOT_PENDING), last);
	visit_tensor(v, s->at[SLOT_GRAD], activations_slot_bytes(d, g, SLOT_GRAD), end);
}

static int visit_all(struct model *m, struct tally *at, struct model_place *places)
{
	struct visit v = { .m = m, .at = at, .places = places };
	for (int c = 0; c < m->n_chunks; c++)
		for (int s = 0; s < m->chunks[c].n_slots; s++)
			visit_slot(&v, &m->chunks[c], &m->chunks[c].slots[s]);
	return v.n;
}

int model_retained(struct model *m, struct model_kept *out, struct err *e)
{
	int n = visit_all(m, NULL, NULL);
	size_t bytes = (size_t)n * sizeof(struct tally);
	*out = (struct model_kept){ .n = n,
				    .tallies = calloc((size_t)n + 1, sizeof *out->tallies),
				    .places = calloc((size_t)n + 1, sizeof *out->places) };
	struct tally *at = backend_alloc(m->backend, bytes + sizeof *at);
	int rc = out->tallies && out->places && at
			 ? 0
			 : err_set(e, ERR_NOMEM, "no memory for the tallies of %d tensors", n);
	if (!rc) {
		visit_all(m, at, out->places);
		rc = backend_get(m->backend, out->tallies, at, bytes, e);
	}
	if (at)
		backend_free(m->backend, at);
	if (rc)
		model_kept_fini(out);
	return rc;
}

void model_kept_fini(struct model_kept *k)
{
	free(k->tallies);
	free(k->places);
	*k = (struct model_kept){ 0 };
}

/* --- Faults for drills ------------------------------------------------------------------ */

void model_plant(struct model *m, enum model_plant what)
{
	m->plant = what;
}

/* Sets the first number to NaN. In each format, all ones are NaN. */
static void set_nan(struct model *m, void *x, size_t width)
{
	const uint32_t ones = UINT32_MAX;
	backend_put(m->backend, x, &ones, width);
}

void model_plant_input(const struct pass *p, void *x)
{
	if (p->m->plant == PLANT_INPUT && p->batch->number == 0)
		set_nan(p->m, x, backend_width(p->m->backend));
}

/* Of the first matrix of each layer: copies of a vector on other tp ranks do not count in the
 * norm. */
void model_plant_gradient(const struct pass *p, int unit)
{
	const struct catalogue *c = param_store_catalogue(p->m->store);
	const struct unit *u = &c->units[unit];
	int i = u->first;
	if (p->m->plant != PLANT_GRADIENT || p->batch->number || u->kind != UNIT_LAYER)
		return;
	while (i < u->first + u->n_params - 1 && c->params[i].dims < 2)
		i++;
	set_nan(p->m, p->m->grads[unit] + (c->params[i].offset - u->lo), sizeof(float));
}
