#include "agent/engine/optim/away.h"

#include "plan/spec/model/zero.h"

#include <stdlib.h>

enum { PLACES = 2, TENSORS = 3 };

struct optim_offload {
	struct backend *backend;
	bool moved[TENSORS]; /* m, v, p: which of them are away */
	float *memory;
	float *at[PLACES][TENSORS];  /* [ZERO_STAGED], NULL where it is not away */
	uint64_t come[PLACES], gone; /* tickets of the last copies */
};

/* A part of an update, and the place it passes through. */
struct part {
	const struct update *whole;
	int64_t first, count;
	int place;
};

int optim_away_open(struct backend *k, int moments, bool masters, struct optim_offload **out, struct err *e)
{
	struct optim_offload *a = calloc(1, sizeof *a);
	if (!a)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	*a = (struct optim_offload){ .backend = k, .moved = { true, moments > 1, masters } };
	size_t bytes = (size_t)zero_staged_bytes(moments + masters);
	a->memory = backend_alloc(k, bytes);
	if (!a->memory) {
		optim_away_close(a);
		return err_set(e, ERR_NOMEM,
			       "optimizer: no memory for %zu bytes of its state on the way; lower "
			       "batch.micro",
			       bytes);
	}
	float *next = a->memory;
	for (int p = 0; p < PLACES; p++)
		for (int t = 0; t < TENSORS; t++)
			if (a->moved[t]) {
				a->at[p][t] = next;
				next += ZERO_STAGED;
			}
	*out = a;
	return 0;
}

void optim_away_close(struct optim_offload *a)
{
	if (!a)
		return;
	backend_free(a->backend, a->memory);
	free(a);
}

/* The next part: of the same update, or the next one's first. False: there is none. */
static bool advance(struct part *p, const struct update *end)
{
	p->first += p->count;
	while (p->whole < end && p->first >= p->whole->count) {
		p->whole++;
		p->first = 0;
	}
	if (p->whole == end)
		return false;
	int64_t left = p->whole->count - p->first;
	p->count = left < ZERO_STAGED ? left : ZERO_STAGED;
	p->place = (p->place + 1) % PLACES;
	return true;
}

static float *home(const struct part *p, int tensor)
{
	float *const homes[TENSORS] = { p->whole->m, p->whole->v, p->whole->p };
	return homes[tensor] + p->first;
}

static void copy(struct optim_offload *a, const struct part *p, bool back)
{
	for (int t = 0; t < TENSORS; t++) {
		float *here = a->at[p->place][t];
		if (!a->moved[t])
			continue;
		uint64_t ticket = backend_side_copy(a->backend, back ? home(p, t) : here,
						    back ? here : home(p, t),
						    (size_t)p->count * sizeof(float));
		*(back ? &a->gone : &a->come[p->place]) = ticket;
	}
}

static struct update update_of(const struct optim_offload *a, const struct part *p, size_t width)
{
	struct update u = *p->whole;
	u.p = a->moved[2] ? a->at[p->place][2] : u.p + p->first;
	u.g += p->first;
	u.m = a->at[p->place][0];
	u.v = a->at[p->place][1];
	u.count = p->count;
	if (u.stored)
		u.stored = (char *)u.stored + (size_t)p->first * width;
	u.first += (uint64_t)p->first;
	return u;
}

/* A copy begins after the ops that were queued before it: so the next part's comes before the
 * update that it goes on beside. Copies keep their order, so what a place had is gone before it is
 * filled again. */
void optim_away_update(struct optim_offload *a, const struct update *u, int n,
		       void (*apply)(const struct update *part, void *arg), void *arg)
{
	struct part next = { .whole = u, .place = PLACES - 1 };
	bool more = advance(&next, u + n);
	if (more)
		copy(a, &next, false);
	while (more) {
		struct part now = next;
		more = advance(&next, u + n);
		if (more)
			copy(a, &next, false);
		struct update part = update_of(a, &now, backend_width(a->backend));
		backend_side_wait(a->backend, a->come[now.place]);
		apply(&part, arg);
		copy(a, &now, true);
	}
}

int optim_away_settle(struct optim_offload *a, struct err *e)
{
	if (a->gone)
		backend_side_wait(a->backend, a->gone);
	return backend_sync(a->backend, e);
}
