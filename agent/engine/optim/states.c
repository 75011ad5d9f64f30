/* Allocates and frees the memory of the states. */
#include "agent/engine/optim/states.h"

#include "base/spill.h"

#include <stdlib.h>
#include <string.h>

static int refuse_table(int n, struct err *e)
{
	return err_set(e, ERR_NOMEM,
		       "optimizer: no memory for a table of %d entries; close other programs", n);
}

/* Pieces of hidden matrices have no element in the state. Gaps between parameters take memory, as
 * they do in the parameters, and the planner counts them (optimizer_memory_of). */
static int place_other(struct optim *o, struct optim_memory *s, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	int64_t next = 0, hidden = 0;
	if (!(s->at = calloc((size_t)n + 1, sizeof *s->at)))
		return refuse_table(n, e);
	for (int i = 0; i < n; i++) {
		bool has = !optimizer_hidden(pieces[i].param);
		s->at[i] = has ? next : -1;
		*(has ? &next : &hidden) += pieces[i].count;
	}
	s->bytes = (size_t)(param_store_owned(o->store) - hidden) * sizeof *s->data;
	return 0;
}

static int place_factors(struct optim *o, int state, struct optim_memory *s, struct err *e)
{
	const struct catalogue *c = param_store_catalogue(o->store);
	int64_t next = 0;
	if (!(s->at = calloc((size_t)c->n + 1, sizeof *s->at)))
		return refuse_table(c->n, e);
	for (int i = 0; i < c->n; i++) {
		int64_t shape[2];
		int dims;
		bool has = optimizer_state_shape(o->kind, state, &c->params[i], shape, &dims);
		s->at[i] = has ? next : -1;
		next += has ? shape[0] : 0;
	}
	s->bytes = (size_t)next * sizeof *s->data;
	return 0;
}

static int place_state(struct optim *o, int state, struct optim_memory *s, struct err *e)
{
	switch (o->traits->states[state].size) {
	case OPTIMIZER_NONE:
		return 0;
	case OPTIMIZER_ELEMENT:
		s->bytes = (size_t)param_store_owned(o->store) * sizeof *s->data;
		return 0;
	case OPTIMIZER_OTHER:
		return place_other(o, s, e);
	case OPTIMIZER_ROW:
	case OPTIMIZER_COLUMN:
		return place_factors(o, state, s, e);
	}
	return 0;
}

static void *alloc_state(const struct optim *o, size_t bytes, const char *spill_dir, struct err *e)
{
	const char *name = o->traits->name;
	void *p = NULL;
	if (!o->spilled) {
		if (!(p = backend_alloc(o->backend, bytes)))
			err_set(e, ERR_NOMEM,
				"optimizer: no memory for %zu bytes of %s's state; raise "
				"parallel.tp, parallel.pp or parallel.zero, or set "
				"offload.optimizer",
				bytes, name);
		return p;
	}
	if (backend_on_host(o->backend))
		return spill_open(spill_dir, "the optimizer's state", bytes, &p, e) ? NULL : p;
	if (!(p = backend_host_alloc(o->backend, bytes)))
		err_set(e, ERR_NOMEM,
			"optimizer: the host has no memory for %zu bytes of %s's state; free "
			"some, or set offload.optimizer = no",
			bytes, name);
	else
		memset(p, 0, bytes);
	return p;
}

int optim_states_open(struct optim *o, const char *spill_dir, struct err *e)
{
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
		struct optim_memory *s = &o->states[i];
		if (o->traits->states[i].size == OPTIMIZER_NONE)
			continue;
		if (place_state(o, i, s, e) || !(s->data = alloc_state(o, s->bytes, spill_dir, e)))
			return -1;
	}
	return 0;
}

void optim_states_close(struct optim *o)
{
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
		struct optim_memory *s = &o->states[i];
		if (!o->spilled)
			backend_free(o->backend, s->data);
		else if (backend_on_host(o->backend))
			spill_close(s->data, s->bytes);
		else
			backend_host_free(o->backend, s->data);
		free(s->at);
	}
}

float *optim_state(struct optim *o, int i, const struct param_piece *piece)
{
	const struct optim_memory *s = &o->states[i];
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	switch (o->traits->states[i].size) {
	case OPTIMIZER_ELEMENT:
		return s->data + piece->at;
	case OPTIMIZER_OTHER:
		return s->at[piece - pieces] < 0 ? NULL : s->data + s->at[piece - pieces];
	default:
		return NULL;
	}
}

float *optim_factor(struct optim *o, int i, const struct param *p)
{
	const struct optim_memory *s = &o->states[i];
	const struct catalogue *c = param_store_catalogue(o->store);
	enum optimizer_size size = o->traits->states[i].size;
	if (size != OPTIMIZER_ROW && size != OPTIMIZER_COLUMN)
		return NULL;
	return s->at[p - c->params] < 0 ? NULL : s->data + s->at[p - c->params];
}
