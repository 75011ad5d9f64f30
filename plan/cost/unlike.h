/*
 * unlike — the devices of a job that names its devices' speeds (plan/spec/speeds.h).
 *
 * The speeds decide how the work is shared. How long a rank takes for its share follows from the
 * machine of its own kind of node: its products, its memory, its host's link, and the links inside
 * the node if they are all alike. All kinds share the network. If the job names a device slower
 * than its kind is, it computes that much slower. For processors, only the job's speeds count.
 */
#ifndef MUSTER_PLAN_COST_UNLIKE_H
#define MUSTER_PLAN_COST_UNLIKE_H

#include "plan/cost/cost.h"

/* How many layers of the job's model such a device computes per second, forward and backward, for
 * one sequence and without any transfer; 0 if memory is lacking. */
double cost_unlike_rate(const struct job *job, const struct model_shape *m,
			const struct cost_machine *machine);

/* A device of this machine and rate. best: the rate of the fastest device. named: what the job says
 * of its speed, over the fastest one's. on_cpu: the rate is not known. */
struct cost_device cost_unlike_device(const struct cost_machine *machine, double rate, double best,
				      double named, bool on_cpu);
/* A node of this kind alone. Returns false if its links differ, or if memory is lacking. */
bool cost_unlike_node(const struct node_kind *k, struct regular_cluster *out);
/* The links of a layout's groups on such nodes: `all`, except inside of the nodes for groups that
 * fit in one and work together in each layer. */
void cost_unlike_links(const struct regular_cluster *node, const struct cost_machine *machine,
		       const struct layout *l, const struct group_links all[GROUP_KINDS],
		       struct group_links own[GROUP_KINDS]);
/* The slower one. */
struct cost_device cost_unlike_slower(struct cost_device a, struct cost_device b);

#endif
