#include "agent/engine/train/plant.h"

#include "agent/engine/train/trainer.h"

#include <string.h>

/* The place of the first weight that this rank holds. It is the stored form, which the next passes
 * read. */
static void *first_weight(const struct trainer *t)
{
	const struct param_store *store = t->state.store;
	const struct catalogue *c = param_store_catalogue(store);
	for (int i = 0; i < c->n; i++) {
		int64_t first, count;
		const void *at = param_store_kept(store, &c->params[i], &first, &count);
		if (at && c->params[i].layer >= 0 && c->params[i].dims == 2)
			return (void *)at;
	}
	return NULL;
}

/* All ones are NaN in each format. */
static void spoil_weight(struct trainer *t)
{
	const uint32_t ones = UINT32_MAX;
	void *at = first_weight(t);
	if (at && !param_store_settle(t->state.store, NULL))
		backend_put(pipeline_backend(t->engine), at, &ones,
			    backend_width(pipeline_backend(t->engine)));
}

/* Flips the highest bit of a fraction. In a master, because the next update sets the stored form of
 * it again. */
static void flip_weight(struct trainer *t)
{
	int n;
	const struct param_piece *piece = param_store_pieces(t->state.store, &n);
	uint32_t bits;
	float x;
	if (!n || train_state_read(&t->state, piece, 0, 0, 1, &x, NULL))
		return;
	memcpy(&bits, &x, sizeof bits);
	bits ^= 1u << 22;
	memcpy(&x, &bits, sizeof x);
	train_state_write(&t->state, piece, 0, 0, 1, &x, NULL);
}

static const enum model_plant passes[] = {
	[TRAIN_PLANT_NOTHING] = PLANT_NOTHING, [TRAIN_PLANT_INPUT] = PLANT_INPUT,
	[TRAIN_PLANT_ONCE] = PLANT_INPUT,      [TRAIN_PLANT_GRADIENT] = PLANT_GRADIENT,
	[TRAIN_PLANT_WEIGHT] = PLANT_NOTHING,  [TRAIN_PLANT_FLIP] = PLANT_NOTHING
};

void train_plant_before(struct trainer *t)
{
	if (!t->hooks->plant)
		return;
	struct range span = train_samples_span(t->samples, t->at.step + 1, 0);
	t->plant = t->hooks->plant(t->hooks->drill_arg, t->at.step);
	if (t->hooks->drill_data && t->hooks->drill_data(t->hooks->drill_arg, span.first, span.end))
		t->plant = TRAIN_PLANT_GRADIENT;
	model_plant(pipeline_model(t->engine), passes[t->plant]);
	if (t->plant == TRAIN_PLANT_WEIGHT)
		spoil_weight(t);
	if (t->plant == TRAIN_PLANT_FLIP)
		flip_weight(t);
}

void train_plant_again(struct trainer *t)
{
	if (t->hooks->plant)
		model_plant(pipeline_model(t->engine),
			    t->plant == TRAIN_PLANT_ONCE ? PLANT_NOTHING : passes[t->plant]);
}

void train_plant_after(struct trainer *t)
{
	if (t->plant == TRAIN_PLANT_ONCE)
		model_plant(pipeline_model(t->engine), PLANT_NOTHING);
}
