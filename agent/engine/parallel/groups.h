/*
 * groups — the communicators of one rank, split from the world.
 *
 *     tp      the ranks that share a layer's matrices
 *     kv      the tp ranks that hold the same kv heads, if there are fewer kv heads than tp ranks
 *     cp      the ranks that share a sequence
 *     ep      the ranks that share a layer's experts
 *     tied    first and last stage, if two ranks hold the tied table
 *     store   the replicas of a parameter, as agent/engine/parallel/param_store.h divides them: for
 *             ZeRO over all of them or inside nodes
 *
 * A group of one rank is NULL, and its users then do nothing.
 *
 * On a device, the groups above carry tensors in the device's memory (comm_on_device), on the
 * stream of the rank's operations. Numbers that the host needs, such as how many rows an expert
 * gets, use the host groups cp_values and ep_values. On the host these are cp and ep themselves.
 *
 * Neighboring pipeline ranks have a group of two for each kind of message and direction (a channel
 * of plan/spec/schedule/schedule.h). Each carries messages in one direction only, so that a send in
 * progress never blocks a receive. In an interleaved pipeline the last rank is the predecessor of
 * the first. In a V schedule the second chunk runs in the opposite direction. If a device's library
 * carries tensors, one group of all pipeline ranks has all their messages instead (`pipe`): a
 * communicator takes memory of the device, and the common order of the messages lets them follow
 * each other on one stream.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_GROUPS_H
#define MUSTER_AGENT_ENGINE_PARALLEL_GROUPS_H

#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

enum pp_message { PP_ACT, PP_GRAD, PP_MESSAGES };
enum pp_side { PP_NEXT, PP_PREV, PP_SIDES }; /* the next rank, the previous rank */

struct groups {
	struct comm *world; /* borrowed */
	/* tensor groups are split from this: the world, or the same ranks on the device */
	struct comm *root;
	struct comm *tp, *cp, *ep;
	struct comm *cp_values, *ep_values;
	struct param_store_groups store;
	struct comm *pipe;
	struct comm *in[PP_MESSAGES][PP_SIDES], *out[PP_MESSAGES][PP_SIDES];
};

struct groups_options {
	const struct rank_view *view;
	int node;                                 /* this rank's node, for sharding inside nodes */
	const struct comm_device_options *device; /* NULL: tensors are in the host's memory */
	void *stream;                             /* of the device's operations */
};

/* Collective over world, whose ranks are in the layout's order. With parallel.sync = server the
 * replicas have no groups (agent/engine/server). On failure *out is not set. */
int parallel_groups_open(struct comm *world, const struct groups_options *opt, struct groups *out,
			 struct err *e);
void parallel_groups_close(struct groups *g);

/* Collective over a group of all ranks (groups.root). Sets each of n words to its maximum over the
 * ranks. */
int parallel_largest(struct comm *all, int32_t *words, size_t n, struct err *e);
/* Whether this is the group's first rank. */
bool parallel_is_first(const struct comm *all);

#endif
