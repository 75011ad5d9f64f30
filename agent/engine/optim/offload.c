#include "agent/engine/optim/offload.h"

#include "plan/spec/model/zero.h"

#include <stdlib.h>

enum { BUFFERS = 2, TENSORS = 3 };

struct optim_offload {
	struct backend *backend;
	bool moved[TENSORS]; /* m, v, p: which of them are in the host's memory */
	float *memory;
	float *buffers[BUFFERS][TENSORS];        /* [ZERO_STAGED]; NULL: not moved */
	uint64_t copied_in[BUFFERS], copied_out; /* tickets of the last copies */
};

/* A part of an update, and the buffer that it passes through. */
struct part {
	const struct update *whole;
	int64_t first, count;
	int buffer;
};

int optim_offload_open(struct backend *k, int states, bool masters, struct optim_offload **out,
		       struct err *e)
{
	struct optim_offload *a = calloc(1, sizeof *a);
	if (!a)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	*a = (struct optim_offload){ .backend = k, .moved = { true, states > 1, masters } };
	size_t bytes = (size_t)zero_staged_bytes(states + masters);
	a->memory = backend_alloc(k, bytes);
	if (!a->memory) {
		optim_offload_close(a);
		return err_set(e, ERR_NOMEM,
			       "optimizer: no memory for %zu bytes of buffers for its offloaded "
			       "state; lower batch.micro",
			       bytes);
	}
	float *next = a->memory;
	for (int b = 0; b < BUFFERS; b++)
		for (int t = 0; t < TENSORS; t++)
			if (a->moved[t]) {
				a->buffers[b][t] = next;
				next += ZERO_STAGED;
			}
	*out = a;
	return 0;
}

void optim_offload_close(struct optim_offload *a)
{
	if (!a)
		return;
	backend_free(a->backend, a->memory);
	free(a);
}

/* Goes to the next part of the same update, or to the first part of the next update. Returns false
 * if there is none. */
static bool next_part(struct part *p, const struct update *end)
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
	p->buffer = (p->buffer + 1) % BUFFERS;
	return true;
}

static float *host_address(const struct part *p, int tensor)
{
	float *const whole[TENSORS] = { p->whole->m, p->whole->v, p->whole->p };
	return whole[tensor] + p->first;
}

static void copy_part(struct optim_offload *a, const struct part *p, bool out)
{
	for (int t = 0; t < TENSORS; t++) {
		float *here = a->buffers[p->buffer][t];
		if (!a->moved[t])
			continue;
		uint64_t ticket = backend_side_copy(a->backend, out ? host_address(p, t) : here,
						    out ? here : host_address(p, t),
						    (size_t)p->count * sizeof(float));
		*(out ? &a->copied_out : &a->copied_in[p->buffer]) = ticket;
	}
}

/* width: bytes of a stored parameter. */
static struct update update_of_part(const struct optim_offload *a, const struct part *p,
				    size_t width)
{
	struct update u = *p->whole;
	int64_t left;
	u.p = a->moved[2] ? a->buffers[p->buffer][2] : u.p + p->first;
	u.g += p->first;
	u.m = a->buffers[p->buffer][0];
	u.v = a->buffers[p->buffer][1];
	u.count = p->count;
	if (u.stored)
		u.stored = (char *)u.stored + (size_t)p->first * width;
	u.first = backend_update_row(p->whole, p->first, &left);
	u.column = u.gap ? (u.column + p->first) % u.row : 0;
	return u;
}

/* A copy begins after the ops that were queued before it. The next part's copy is therefore queued
 * before the update that it overlaps with. Copies keep their order, so a buffer's content has left
 * before the buffer is filled again. */
void optim_offload_update(struct optim_offload *a, const struct update *u, int n,
			  void (*apply)(const struct update *part, void *arg), void *arg)
{
	struct part next = { .whole = u, .buffer = BUFFERS - 1 };
	bool more = next_part(&next, u + n);
	if (more)
		copy_part(a, &next, false);
	while (more) {
		struct part now = next;
		more = next_part(&next, u + n);
		if (more)
			copy_part(a, &next, false);
		struct update part = update_of_part(a, &now, backend_width(a->backend));
		backend_side_wait(a->backend, a->copied_in[now.buffer]);
		apply(&part, arg);
		copy_part(a, &now, true);
	}
}

int optim_offload_wait(struct optim_offload *a, struct err *e)
{
	if (a->copied_out)
		backend_side_wait(a->backend, a->copied_out);
	return backend_sync(a->backend, e);
}
