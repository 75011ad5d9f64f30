/*
 * groups — the communicators of one rank, split from the world.
 *
 *     tp      the ranks that share a layer's matrices
 *     kv      those of them that hold the same kv heads, when there are fewer of these than ranks
 *     cp      the ranks that share a sequence
 *     ep      the ranks that share a layer's experts
 *     tied    first and last stage, when two ranks hold the tied table
 *     store   the replicas of a parameter, as agent/engine/parallel/param_store.h divides them: for ZeRO
 *             over all of them or inside nodes
 *
 * A group of one rank is NULL: whoever uses it does nothing then.
 *
 * On a device the groups above carry tensors in its memory (comm_on_device), on the stream of the
 * rank's operations; numbers that the host reckons with, such as how many rows an expert gets, go
 * over groups of the host's own, cp_values and ep_values. On the host these are cp and ep
 * themselves.
 *
 * Pipeline ranks that are next to each other have a group of two for each kind of message and
 * direction (a channel of plan/spec/schedule/schedule.h). Each carries messages one way only, so a
 * send under way never stands in front of a receive. In an interleaved pipeline the last rank is
 * before the first; of a V's two chunks the second goes the other way.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_GROUPS_H
#define MUSTER_AGENT_ENGINE_PARALLEL_GROUPS_H

#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

enum pipe_kind { PIPE_ACT, PIPE_GRAD, PIPE_KINDS };
enum pipe_side { PIPE_NEXT, PIPE_PREV, PIPE_SIDES }; /* the rank after this one, the one before */

struct groups {
	struct comm *world; /* borrowed */
	/* what the groups of tensors are split from: the world, or its ranks on the device */
	struct comm *root;
	struct comm *tp, *cp, *ep;
	struct comm *cp_values, *ep_values;
	struct param_store_groups store;
	struct comm *in[PIPE_KINDS][PIPE_SIDES], *out[PIPE_KINDS][PIPE_SIDES];
};

struct groups_options {
	const struct layout *layout;
	struct coords at;
	const struct model_shape *shape;
	int zero;
	enum job_zero_shard shard;
	int node; /* this rank's, for sharding inside nodes */
	/* replicas have no groups: a parameter server is between them (agent/server) */
	bool apart;
	const struct comm_device_options *device; /* NULL: tensors are in the host's memory */
	void *stream;                             /* of the device's operations */
};

/* Collective over world, whose ranks are in the layout's order. */
int parallel_groups_open(struct comm *world, const struct groups_options *opt, struct groups *out,
			 struct err *e);
void parallel_groups_close(struct groups *g);

#endif
