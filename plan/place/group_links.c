#include "plan/place/group_links.h"

#include "plan/place/exchange.h"

#include <math.h>

/* NCCL's bandwidth shares and latencies of its algorithms: github.com/NVIDIA/nccl,
 * src/graph/tuning.cc. */
#define TREE 0.92 /* share of the ring's bandwidth */

/* The link of a ring's rounds. Its bandwidth is that of the slowest link. Its latency is the mean
 * over all links, because a piece passes one link after the other. */
static struct link_speed ring_link(const struct group_links *s)
{
	struct link_speed in = s->inside, out = s->across;
	if (s->nodes < 2)
		return in;
	double side_by_side = s->per_node * out.bandwidth;
	return (struct link_speed){
		s->per_node > 1 ? fmin(in.bandwidth, side_by_side) : out.bandwidth,
		(s->nodes * out.latency + (s->ranks - s->nodes) * in.latency) / s->ranks
	};
}

/* 0: nothing was measured, and the links count. */
static double measured(const struct group_links *s, enum measured_op op, double bytes)
{
	if (!s->measured || s->nodes > 1 || s->ranks < 2)
		return 0;
	return place_exchange_seconds(s->measured, op, s->ranks, s->crowd, bytes) *
	       place_exchange_share(s->measured, s->crowd) / fmax(1, s->busy);
}

/* Seconds up a tree over the nodes and down again, and along a chain in each node. All bytes are
 * sent twice, but few latencies add up. */
static double tree(const struct group_links *s, double bytes)
{
	double steps = (s->per_node - 1) * s->inside.latency +
		       ceil(log2(s->nodes)) * s->across.latency;
	return s->nodes < 2 ? INFINITY : 2 * (bytes / (TREE * ring_link(s).bandwidth) + steps);
}

/* An all-gather or a reduce-scatter: half of an all-reduce, if only that was measured. */
static double half_exchange(const struct group_links *s, enum measured_op op, double bytes)
{
	double known = measured(s, op, bytes), both = measured(s, MEASURED_ALL_REDUCE, bytes);
	struct link_speed l = ring_link(s);
	if (known > 0 || both > 0)
		return known > 0 ? known : both / 2;
	return s->ranks < 2 ? 0 : (s->ranks - 1) * (bytes / s->ranks / l.bandwidth + l.latency);
}

double place_seconds_gather(const struct group_links *s, double bytes)
{
	return half_exchange(s, MEASURED_ALL_GATHER, bytes);
}

double place_seconds_scatter(const struct group_links *s, double bytes)
{
	return half_exchange(s, MEASURED_REDUCE_SCATTER, bytes);
}

double place_seconds_all_reduce(const struct group_links *s, double bytes)
{
	double known = measured(s, MEASURED_ALL_REDUCE, bytes);
	if (s->ranks < 2 || known > 0)
		return known;
	return fmin(place_seconds_scatter(s, bytes) + place_seconds_gather(s, bytes),
		    tree(s, bytes));
}

double place_seconds_all_to_all(const struct group_links *s, double bytes)
{
	double known = measured(s, MEASURED_ALL_TO_ALL, bytes);
	if (s->ranks < 2 || known > 0)
		return known;
	struct link_speed l = s->nodes < 2 ? s->inside : s->across;
	double share = s->nodes < 2 ? (double)(s->ranks - 1) / s->ranks
				    : (double)(s->ranks - s->per_node) / s->ranks;
	return bytes * share / l.bandwidth + (s->ranks - 1) * l.latency;
}

static double message_seconds(const struct link_speed *l, double bytes)
{
	return l->bandwidth > 0 ? bytes / l->bandwidth + l->latency : 0;
}

double place_seconds_hop(const struct group_links *s, double bytes)
{
	double known = measured(s, MEASURED_MESSAGE, bytes);
	if (known > 0)
		return known;
	return s->ranks < 2 ? 0
			    : fmax(message_seconds(&s->inside, bytes),
				   message_seconds(&s->across, bytes));
}

double place_seconds_meeting(const struct group_links *s, double work)
{
	return work > 0 ? measured(s, MEASURED_MEETING, work * 1e6) : 0;
}
