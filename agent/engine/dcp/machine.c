#include "agent/engine/dcp/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- failures --- */

int dcp_machine_fail(struct dcp_machine *m, const char *why)
{
	return err_set(m->e, ERR_CORRUPT, "%s: damaged pickle: %s at byte %td; save it again",
		       m->name, why, m->at - m->start);
}

int dcp_machine_fail_memory(struct dcp_machine *m)
{
	return err_set(m->e, ERR_NOMEM, "%s: no memory for its values", m->name);
}

/* --- the stack --- */

int dcp_machine_grow(struct dcp_machine *m, struct dcp_value ***list, int64_t *room, int64_t least)
{
	int64_t more = *room ? *room : 64;
	while (more < least)
		more *= 2;
	struct dcp_value **bigger = realloc(*list, (size_t)more * sizeof **list);
	if (!bigger)
		return dcp_machine_fail_memory(m);
	*list = bigger;
	*room = more;
	return 0;
}

int dcp_machine_push(struct dcp_machine *m, struct dcp_value *v)
{
	if (!v)
		return -1;
	if (m->n == DCP_PICKLE_STACK_MAX)
		return dcp_machine_fail(m, "its stack is too deep");
	if (m->n == m->room && dcp_machine_grow(m, &m->stack, &m->room, m->n + 1))
		return -1;
	m->stack[m->n++] = v;
	return 0;
}

int64_t dcp_machine_floor(const struct dcp_machine *m)
{
	return m->depth ? m->marks[m->depth - 1] : 0;
}

struct dcp_value *dcp_machine_pop(struct dcp_machine *m)
{
	if (m->n == dcp_machine_floor(m)) {
		dcp_machine_fail(m, "its stack is empty");
		return NULL;
	}
	return m->stack[--m->n];
}

struct dcp_value *dcp_machine_top(struct dcp_machine *m)
{
	if (m->n == dcp_machine_floor(m)) {
		dcp_machine_fail(m, "its stack is empty");
		return NULL;
	}
	return m->stack[m->n - 1];
}

struct dcp_value *dcp_machine_make(struct dcp_machine *m, enum dcp_kind kind)
{
	if (++m->nodes > DCP_PICKLE_NODES_MAX) {
		dcp_machine_fail(m, "it has too many values");
		return NULL;
	}
	struct dcp_value *v = dcp_arena_take(m->arena, sizeof *v);
	if (v)
		v->kind = kind;
	else
		dcp_machine_fail_memory(m);
	return v;
}

int dcp_machine_add_item(struct dcp_machine *m, struct dcp_value *to, struct dcp_value *item)
{
	if (to->n == to->room) {
		int64_t room = to->room ? to->room * 2 : 4;
		struct dcp_value **items = dcp_arena_take(m->arena, (size_t)room * sizeof *items);
		if (!items)
			return dcp_machine_fail_memory(m);
		if (to->n)
			memcpy(items, to->items, (size_t)to->n * sizeof *items);
		to->items = items;
		to->room = room;
	}
	to->items[to->n++] = item;
	return 0;
}

int dcp_machine_take_mark(struct dcp_machine *m, int64_t *from, int64_t *n)
{
	if (!m->depth)
		return dcp_machine_fail(m, "a mark is missing");
	*from = m->marks[--m->depth];
	*n = m->n - *from;
	m->n = *from;
	return 0;
}

/* --- arguments in the input --- */

bool dcp_machine_read(struct dcp_machine *m, size_t n, const uint8_t **out)
{
	if ((size_t)(m->end - m->at) < n) {
		dcp_machine_fail(m, "it ends early");
		return false;
	}
	*out = m->at;
	m->at += n;
	return true;
}

bool dcp_machine_read_number(struct dcp_machine *m, int width, uint64_t *out)
{
	const uint8_t *b;
	if (!dcp_machine_read(m, (size_t)width, &b))
		return false;
	*out = 0;
	for (int i = width; i-- > 0;)
		*out = *out << 8 | b[i];
	return true;
}
