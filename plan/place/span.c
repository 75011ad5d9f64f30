#include "plan/place/span.h"

#include <math.h>
#include <stdlib.h>

/* What is not known of a link. */
#define UNKNOWN_BANDWIDTH 1e9
#define UNKNOWN_LATENCY 20e-6

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

static void worst(struct span_link *l, double bandwidth, double latency)
{
	bandwidth = known(bandwidth, UNKNOWN_BANDWIDTH);
	l->bandwidth = l->bandwidth > 0 ? fmin(l->bandwidth, bandwidth) : bandwidth;
	l->latency = fmax(l->latency, known(latency, UNKNOWN_LATENCY));
}

static void add_neighbours(const struct cluster *c, struct cluster_slot a, struct cluster_slot b, struct span *s)
{
	const struct node_kind *k = cluster_kind(c, a.node);
	if (a.node == b.node) {
		struct topo_link link = cluster_link(k, a.device, b.device);
		worst(&s->inside, link.bandwidth, link.latency);
	} else if (cluster_joined(c, a.node, b.node)) {
		worst(&s->inside, k->link_bandwidth, k->link_latency);
	} else {
		worst(&s->across, k->net_bandwidth, k->net_latency);
	}
}

/* The ranks of a group come node by node. */
static void add_group(const struct cluster *c, const struct cluster_slot *slots, const int *ranks, struct span *s)
{
	int nodes = 0;
	for (int i = 0, run; i < s->ranks; i += run) {
		for (run = 1; i + run < s->ranks && cluster_joined(c, slots[ranks[i]].node, slots[ranks[i + run]].node); run++)
			continue;
		nodes++;
		s->per_node = s->per_node && s->per_node < run ? s->per_node : run;
	}
	s->nodes = nodes > s->nodes ? nodes : s->nodes;
	for (int i = 0; i < s->ranks && s->ranks > 1; i++)
		add_neighbours(c, slots[ranks[i]], slots[ranks[(i + 1) % s->ranks]], s);
}

int spans_of(const struct cluster *c, const struct layout *l, const struct cluster_slot *slots, struct span spans[GROUP_KINDS], struct err *e)
{
	int world = layout_world(l), *ranks = malloc((size_t)world * sizeof *ranks);
	if (!ranks)
		return err_set(e, ERR_NOMEM, "no memory for the groups of %d ranks; close other programs", world);
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		spans[kind] = (struct span){ .ranks = group_size(l, kind) };
		for (int lead = 0; lead < world; lead++) {
			if (!group_leads(l, kind, lead))
				continue;
			group_ranks(l, kind, lead, ranks);
			add_group(c, slots, ranks, &spans[kind]);
		}
	}
	free(ranks);
	return 0;
}

/* Of a rank's messages round the ring. */
static struct span_link ring_link(const struct span *s)
{
	struct span_link in = s->inside, out = s->across;
	if (s->nodes < 2)
		return in;
	double side_by_side = s->per_node * out.bandwidth;
	return (struct span_link){ s->per_node > 1 ? fmin(in.bandwidth, side_by_side) : out.bandwidth, fmax(in.latency, out.latency) };
}

double span_all_reduce(const struct span *s, double bytes)
{
	struct span_link l = ring_link(s);
	return s->ranks < 2 ? 0 : 2 * (s->ranks - 1) * (bytes / s->ranks / l.bandwidth + l.latency);
}

double span_all_to_all(const struct span *s, double bytes)
{
	if (s->ranks < 2)
		return 0;
	struct span_link l = s->nodes < 2 ? s->inside : s->across;
	double share = s->nodes < 2 ? (double)(s->ranks - 1) / s->ranks : (double)(s->ranks - s->per_node) / s->ranks;
	return bytes * share / l.bandwidth + (s->ranks - 1) * l.latency;
}

double span_hop(const struct span *s, double bytes)
{
	struct span_link l = s->nodes < 2 ? s->inside : s->across;
	return s->ranks < 2 ? 0 : bytes / l.bandwidth + l.latency;
}
