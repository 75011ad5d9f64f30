#include "plan/place/links.h"

struct seen {
	const struct cluster *c;
	struct place_links *links;
};

static int adapter_of(const struct cluster *c, struct cluster_slot s)
{
	const struct node_kind *k = topo_cluster_kind(c, s.node);
	return k->parts && k->parts[s.device].nic >= 0 ? k->parts[s.device].nic : s.device;
}

static void note_flow(void *with, struct cluster_slot from, struct cluster_slot to)
{
	const struct seen *s = with;
	struct place_links *l = s->links;
	if (from.node == to.node) {
		enum link_kind kind = topo_cluster_link(topo_cluster_kind(s->c, from.node),
							from.device, to.device)
					      .kind;
		l->inside = kind < l->inside ? kind : l->inside;
	} else if (topo_cluster_share_nvlink(s->c, from.node, to.node)) {
		l->fabric = true;
	} else {
		int hops = topo_cluster_hops(s->c, from.node, to.node);
		l->hops = hops > l->hops ? hops : l->hops;
		l->rails &= adapter_of(s->c, from) == adapter_of(s->c, to);
	}
}

void place_links_of(const struct cluster *c, const struct layout *l, const struct traffic *t,
		    struct group_costs *w, const struct cluster_slot *slots,
		    struct place_links out[GROUP_KINDS])
{
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		struct seen s = { c, &out[kind] };
		struct group_cost_sum sum;
		out[kind] = (struct place_links){ .inside = LINK_SELF,
						  .rails = c->rails,
						  .bytes = place_traffic_bytes(t, kind) };
		place_group_costs_of_kind(w, slots, kind, t, &out[kind].span, &sum);
		out[kind].seconds = sum.worst;
		out[kind].waited = (1 - t->hidden[kind]) * sum.worst;
		if (place_group_size(l, kind) > 1)
			place_group_flows(w, slots, kind, note_flow, &s);
	}
}
