#include "agent/engine/parallel/param_store_order.h"

#include <stdlib.h>

/* The order is learned up to this length. A longer step has very many micro-batches, which repeat
 * the same pattern. */
enum { ORDER_MAX = 1 << 16 };

static void append_demand(struct demand_order *o, int unit)
{
	if (o->n == ORDER_MAX)
		return;
	if (o->n == o->room) {
		int room = o->room ? 2 * o->room : 256;
		int *units = realloc(o->units, (size_t)room * sizeof *units);
		if (!units)
			return;
		o->units = units;
		o->room = room;
	}
	o->units[o->n++] = unit;
}

static void follow_demand(struct demand_order *o, int unit)
{
	for (int i = 0; i < o->n; i++) {
		int place = (o->at + i) % o->n;
		if (o->units[place] == unit) {
			o->at = place + 1;
			return;
		}
	}
}

void param_store_order_note(struct demand_order *o, int unit)
{
	if (o->learned)
		follow_demand(o, unit);
	else
		append_demand(o, unit);
}

void param_store_order_learn(struct demand_order *o)
{
	o->learned = o->n > 0;
}

void param_store_order_rewind(struct demand_order *o)
{
	o->at = 0;
	if (!o->learned)
		o->n = 0;
}

int param_store_order_peek(const struct demand_order *o, int ahead)
{
	return o->learned && o->at + ahead < o->n ? o->units[o->at + ahead] : -1;
}

void param_store_order_fini(struct demand_order *o)
{
	free(o->units);
}
