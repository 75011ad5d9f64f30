#include "agent/engine/ckpt/load/turns.h"

#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENT = sizeof(float) };

void ckpt_turns_limit(struct pieces *p, int64_t turn_bytes, int64_t round_bytes)
{
	int64_t most = turn_bytes ? turn_bytes : TURN_BYTES,
		least = min_int64(most, TURN_BYTES_LEAST);
	p->round_bytes = round_bytes ? round_bytes : ROUND_BYTES;
	int64_t even = p->round_bytes / max_int(p->most_senders, 1);
	p->turn_bytes = clamp_int64(even, least, most) / ELEMENT * ELEMENT;
}

struct turn_cursor ckpt_turn_begin(const struct pieces *p, int reader)
{
	return (struct turn_cursor){ .queued = p->queue_at[reader] };
}

/* The elements of a segment that its reader has to gather before it can send them. */
static int64_t count_scattered(const struct pieces *p, const struct segment *s)
{
	int64_t n = 0;
	for (int64_t i = s->slice->group; i < (s->slice + 1)->group; i++) {
		const struct part *cut = &p->groups[i].cut;
		if (!ckpt_part_is_run(&s->slice->box, cut))
			n += ckpt_part_count(&s->slice->box, cut, s->first + s->n) -
			     ckpt_part_count(&s->slice->box, cut, s->first);
	}
	return n;
}

bool ckpt_turn_next(const struct pieces *p, int reader, struct turn_cursor *at, struct turn *out)
{
	int64_t room = p->turn_bytes / ELEMENT, gather = room;
	out->reader = reader;
	out->n = 0;
	while (at->queued < p->queue_at[reader + 1] && out->n < TURN_SEGMENTS && room > 0) {
		struct segment *s = &out->segments[out->n];
		s->slice = &p->slices[p->queue[at->queued]];
		int64_t rest = s->slice->bytes / ELEMENT - at->element;
		*s = (struct segment){ s->slice, at->element, min_int64(room, rest) };
		int64_t scattered = count_scattered(p, s);
		while (scattered > gather && s->n > 1) {
			s->n /= 2;
			scattered = count_scattered(p, s);
		}
		if (scattered > gather && out->n)
			break;
		gather -= scattered;
		room -= s->n;
		at->element += s->n;
		out->n++;
		if (s->n < rest)
			break;
		at->queued++;
		at->element = 0;
	}
	return out->n > 0;
}

void ckpt_turn_messages(const struct pieces *p, const struct turn *t, turn_visit *visit, void *arg)
{
	for (int i = 0; i < t->n; i++) {
		const struct segment *s = &t->segments[i];
		for (int64_t g = s->slice->group; g < (s->slice + 1)->group; g++) {
			struct turn_message m = { .segment = s, .group = &p->groups[g] };
			m.at = ckpt_part_count(&s->slice->box, &m.group->cut, s->first);
			m.n = ckpt_part_count(&s->slice->box, &m.group->cut, s->first + s->n) -
			      m.at;
			if (m.n)
				visit(arg, &m);
		}
	}
}

/* --- Rounds --- */

struct rounds_order {
	const struct pieces *p;
	struct turn_cursor *at; /* of each reader */
	int64_t *received;      /* bytes of each rank in this round */
	int first;              /* the reader that comes first in this round */
	struct turn turn;
	bool fits;
	int64_t sign; /* 1: the turn's messages are added to `received`; -1: removed */
};

int ckpt_rounds_order_open(const struct pieces *p, struct rounds_order **out, struct err *e)
{
	struct rounds_order *o = calloc(1, sizeof *o);
	if (o) {
		o->p = p;
		o->at = malloc((size_t)p->size * sizeof *o->at);
		o->received = malloc((size_t)p->size * sizeof *o->received);
	}
	if (!o || !o->at || !o->received) {
		ckpt_rounds_order_close(o);
		return err_set(e, ERR_NOMEM, "no memory to plan the reading of a checkpoint");
	}
	for (int r = 0; r < p->size; r++)
		o->at[r] = ckpt_turn_begin(p, r);
	*out = o;
	return 0;
}

void ckpt_rounds_order_close(struct rounds_order *o)
{
	if (!o)
		return;
	free(o->at);
	free(o->received);
	free(o);
}

static void count_message(void *arg, const struct turn_message *m)
{
	struct rounds_order *o = arg;
	for (int64_t i = m->group->first; i < m->group->first + m->group->n; i++) {
		int64_t *got = &o->received[o->p->ranks[i]], bytes = m->n * ELEMENT;
		if (o->p->ranks[i] == o->turn.reader)
			continue;
		*got += o->sign * bytes;
		o->fits &= *got <= o->p->round_bytes;
	}
}

static void count_turn(struct rounds_order *o, int64_t sign)
{
	o->sign = sign;
	o->fits = true;
	ckpt_turn_messages(o->p, &o->turn, count_message, o);
}

bool ckpt_rounds_order_next(struct rounds_order *o, void (*visit)(void *arg, const struct turn *t),
			    void *arg)
{
	int turns = 0, size = o->p->size;
	memset(o->received, 0, (size_t)size * sizeof *o->received);
	for (int i = 0; i < size; i++) {
		int reader = (o->first + i) % size;
		struct turn_cursor next = o->at[reader];
		if (!ckpt_turn_next(o->p, reader, &next, &o->turn))
			continue;
		count_turn(o, 1);
		if (!o->fits && turns) {
			count_turn(o, -1);
			continue;
		}
		o->at[reader] = next;
		turns++;
		visit(arg, &o->turn);
	}
	o->first = (o->first + 1) % size;
	return turns > 0;
}
