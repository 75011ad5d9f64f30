#include "plan/place/refine.h"

#include <stdlib.h>
#include <string.h>

static void exchange(struct cluster_slot *a, struct cluster_slot *b)
{
	struct cluster_slot keep = *a;
	*a = *b;
	*b = keep;
}

/* Lists the free devices of nodes that hold ranks. */
static int list_free(const struct cluster *c, const struct cluster_slot *slots, int world,
		     struct cluster_slot *out, bool *used, const int *base)
{
	int n = 0;
	for (int r = 0; r < world; r++)
		used[base[slots[r].node] + slots[r].device] = true;
	for (int i = 0; i < c->n_nodes; i++) {
		bool some = false;
		for (int d = 0; d < topo_cluster_kind(c, i)->devices; d++)
			some |= used[base[i] + d];
		for (int d = 0; some && d < topo_cluster_kind(c, i)->devices; d++)
			if (!used[base[i] + d])
				out[n++] = (struct cluster_slot){ i, d };
	}
	return n;
}

/* One round over all pairs. Returns whether something has changed. all: the ranks' slots, then the
 * free ones. */
static bool round_of(struct group_costs *w, const struct traffic *t, int world, int n, int budget,
		     struct cluster_slot *all, struct place_cost *cost, int *tried)
{
	bool changed = false;
	for (int a = 0; a < world; a++)
		for (int b = a + 1; b < n && *tried < budget; b++) {
			struct place_cost here;
			exchange(&all[a], &all[b]);
			place_map_cost(w, all, t, &here);
			++*tried;
			if (place_better(&here, cost)) {
				*cost = here;
				changed = true;
			} else {
				exchange(&all[a], &all[b]);
			}
		}
	return changed;
}

int place_refine_map(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, int budget, struct cluster_slot *slots,
		     struct place_cost *cost, struct err *e)
{
	int world = layout_world(l), devices = topo_cluster_devices(c), tried = 0;
	struct cluster_slot *all = calloc((size_t)devices + 1, sizeof *all);
	bool *used = calloc((size_t)devices + 1, sizeof *used);
	int *base = calloc((size_t)c->n_nodes + 1, sizeof *base);
	if (!all || !used || !base) {
		tried = err_set(e, ERR_NOMEM,
				"no memory for the devices of %s; close other programs", c->name);
	} else {
		for (int i = 0; i < c->n_nodes; i++)
			base[i + 1] = base[i] + topo_cluster_kind(c, i)->devices;
		memcpy(all, slots, (size_t)world * sizeof *all);
		int n = world + list_free(c, slots, world, all + world, used, base);
		while (tried < budget && round_of(w, t, world, n, budget, all, cost, &tried))
			continue;
		memcpy(slots, all, (size_t)world * sizeof *all);
	}
	free(base);
	free(used);
	free(all);
	return tried;
}
