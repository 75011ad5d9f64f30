#include "agent/engine/train/holdings.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct collector {
	struct backend *backend;
	struct holdings *h;
	/* in the backend's memory, one for each holding; on the host, they are not part of what the
	 * plan counts */
	struct tally *tallies;
};

/* The finalizer of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", 2014), chained. */
static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) + 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

static enum held_class class_of(const struct catalogue *c, const struct param *p, bool tied)
{
	if (tied && p->role == PARAM_EMBED)
		return HELD_TIED;
	if (c->units[p->unit].kind == UNIT_EXPERTS)
		return HELD_EXPERTS;
	if (p->copies == 1)
		return HELD_SPLIT;
	return p->role == PARAM_K_W || p->role == PARAM_K_B || p->role == PARAM_V_W ||
			       p->role == PARAM_V_B
		       ? HELD_SHARED
		       : HELD_COPIES;
}

static uint64_t key_of(const struct held *t, int state)
{
	uint64_t h = mix(hash_text(t->param->name), (uint64_t)t->what << 8 | (uint64_t)state);
	for (int i = 0; i < 2; i++)
		h = mix(mix(h, (uint64_t)t->param->lo[i]), (uint64_t)t->param->hi[i]);
	return mix(mix(h, (uint64_t)t->first), (uint64_t)t->count);
}

/* state: the number of the optimizer's state. here: x is in the host's memory. */
static void add_held(struct collector *c, struct held t, int state, const void *x, bool here,
		     enum number_format format)
{
	if (!x || !t.count)
		return;
	t.key = key_of(&t, state);
	if (here)
		backend_tally_host(&t.tally, x, t.count, format, 0, 1);
	else
		backend_tally(c->backend, &c->tallies[c->h->n], x, t.count, format, 0);
	c->h->list[c->h->n++] = t;
}

static int open_collector(struct collector *c, struct backend *k, int most, struct holdings *h,
			  struct err *e)
{
	*h = (struct holdings){ .list = calloc((size_t)most + 1, sizeof *h->list) };
	*c = (struct collector){ .backend = k, .h = h };
	c->tallies = backend_on_host(k) ? calloc((size_t)most + 1, sizeof *c->tallies)
					: backend_alloc(k, ((size_t)most + 1) * sizeof *c->tallies);
	return h->list && c->tallies
		       ? 0
		       : err_set(e, ERR_NOMEM,
				 "no memory for the tallies of %d tensors; close other programs",
				 most);
}

/* Reads the tallies of the tensors in the backend's memory. Frees *h after a failure. */
static int close_collector(struct collector *c, int rc, struct err *e)
{
	struct tally t;
	size_t bytes = (size_t)c->h->n * sizeof t;
	struct tally *all = malloc(bytes + 1);
	if (!rc && !all)
		rc = err_set(e, ERR_NOMEM, "no memory for %d tallies", c->h->n);
	if (!rc)
		rc = backend_get(c->backend, all, c->tallies, bytes, e);
	for (int i = 0; !rc && i < c->h->n; i++) {
		struct tally *to = &c->h->list[i].tally;
		to->sum += all[i].sum;
		to->weighted += all[i].weighted;
		to->bad += all[i].bad;
	}
	free(all);
	if (backend_on_host(c->backend))
		free(c->tallies);
	else if (c->tallies)
		backend_free(c->backend, c->tallies);
	if (rc)
		train_holdings_close(c->h);
	return rc;
}

static void add_parameters(struct collector *c, const struct param_store *store)
{
	const struct catalogue *cat = param_store_catalogue(store);
	bool tied = catalogue_find(cat, PARAM_HEAD, -1, -1) == NULL;
	for (int i = 0; i < cat->n; i++) {
		struct held t = { .param = &cat->params[i], .what = HELD_PARAMETER };
		const void *x = param_store_kept(store, t.param, &t.first, &t.count);
		t.class = class_of(cat, t.param, tied);
		add_held(c, t, 0, x, false, backend_format(c->backend));
	}
}

/* In fp32 the stored parameters are the masters. */
static void add_states(struct collector *c, const struct train_state *state)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(state->store, &n);
	bool copies = backend_width(c->backend) < sizeof(float);
	for (int i = 0; i < n; i++)
		for (int s = copies ? 0 : 1; s < train_state_tensors(state); s++)
			add_held(c,
				 (struct held){ .param = pieces[i].param,
						.what = s ? HELD_STATE : HELD_MASTER,
						.class = HELD_STATES,
						.first = pieces[i].first,
						.count = pieces[i].count },
				 s, train_state_at(state, &pieces[i], s),
				 train_state_on_host(state, s), NUMBER_FP32);
}

int train_holdings_state(const struct train_state *state, bool states, struct holdings *out,
			 struct err *e)
{
	struct backend *k = param_store_backend(state->store);
	struct collector c;
	int pieces;
	param_store_pieces(state->store, &pieces);
	int most = param_store_catalogue(state->store)->n +
		   (states ? pieces * train_state_tensors(state) : 0);
	int rc = open_collector(&c, k, most, out, e);
	if (!rc && states)
		rc = optim_wait(state->optim, e);
	if (!rc)
		add_parameters(&c, state->store);
	if (!rc && states)
		add_states(&c, state);
	return close_collector(&c, rc, e);
}

int train_holdings_gradients(const struct param_store *store, struct holdings *out, struct err *e)
{
	struct collector c;
	int n;
	const struct param_piece *pieces = param_store_pieces(store, &n);
	int rc = open_collector(&c, param_store_backend(store), n, out, e);
	for (int i = 0; !rc && i < n; i++)
		add_held(&c,
			 (struct held){ .param = pieces[i].param,
					.what = HELD_GRADIENT,
					.class = HELD_STATES,
					.first = pieces[i].first,
					.count = pieces[i].count },
			 0, pieces[i].grad, false, NUMBER_FP32);
	return close_collector(&c, rc, e);
}

void train_holdings_close(struct holdings *h)
{
	free(h->list);
	*h = (struct holdings){ 0 };
}

void train_holdings_sum(const struct holdings *h, const char *isa, struct held_sum *sums)
{
	memset(sums, 0, HELD_CLASSES * sizeof *sums);
	for (int i = 0; i < h->n; i++) {
		const struct held *t = &h->list[i];
		struct held_sum *s = &sums[t->class];
		if (!s->key)
			s->key = hash_text(isa) | 1;
		s->key = mix(s->key, t->key) | 1;
		s->digest = mix(mix(s->digest, t->tally.sum), t->tally.weighted);
	}
}

const struct held *train_holdings_bad(const struct holdings *h)
{
	for (int i = 0; i < h->n; i++)
		if (h->list[i].tally.bad)
			return &h->list[i];
	return NULL;
}
