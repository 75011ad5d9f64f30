#include "plan/place/cost.h"

#include <math.h>

bool place_better(const struct place_cost *a, const struct place_cost *b)
{
	const double alike = 1e-9;
	if (fabs(a->total - b->total) > alike * b->total)
		return a->total < b->total;
	return a->mean < b->mean * (1 - alike);
}

void place_map_cost(struct group_costs *w, const struct cluster_slot *slots,
		    const struct traffic *t, struct place_cost *out)
{
	struct group_links span;
	struct group_cost_sum sum;
	*out = (struct place_cost){ 0 };
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		if (place_traffic_bytes(t, kind) <= 0)
			continue;
		place_group_costs_of_kind(w, slots, kind, t, &span, &sum);
		out->seconds[kind] = sum.worst;
		out->total += (1 - t->hidden[kind]) * sum.worst;
		out->mean += (1 - t->hidden[kind]) * sum.mean;
	}
}

int place_cost_of(const struct cluster *c, const struct layout *l, const struct cluster_slot *slots,
		  const struct traffic *t, struct place_cost *out, struct err *e)
{
	struct group_costs *w;
	if (place_group_costs_open(c, l, &w, e))
		return -1;
	place_map_cost(w, slots, t, out);
	place_group_costs_close(w);
	return 0;
}
