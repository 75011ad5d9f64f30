/*
 * zero — the arithmetic of sharded training state: who owns which elements of a unit, and what that
 * takes of memory.
 *
 * The store (agent/engine/parallel/param_store.h says what the ZeRO stages are) and the planner share it,
 * so that a plan's memory is the run's, to the byte. A unit's replicas are shards × copies ranks:
 * its elements are cut over the shards; copies own the same piece.
 */
#ifndef MUSTER_PLAN_SPEC_MODEL_ZERO_H
#define MUSTER_PLAN_SPEC_MODEL_ZERO_H

#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* Experts have replicas of their own. */
enum zero_class { ZERO_DENSE, ZERO_EXPERTS, ZERO_CLASSES };
enum zero_class zero_class(enum unit_kind kind);

/* A unit's replicas, and this rank among them. */
struct zero_cut {
	int shards, shard, copies, copy;
};

/* The cuts of the rank at `at`. per_node: how many replicas of what is not an expert a node holds,
 * with parallel.zero_shard = node, where replicas come node by node; 0: all are one group of
 * shards. */
void zero_cuts(const struct layout *l, struct coords at, int stage, int per_node,
	       struct zero_cut out[ZERO_CLASSES]);

/* What a stage cuts; the rest is whole on every replica. */
struct zero_policy {
	bool state, grads, params;
};
/* Without shards (1) there is nothing to cut: stage 0's. */
const struct zero_policy *zero_policy(int stage, const struct zero_cut *cut);

/* Of a unit of n elements, [*lo, *hi) are this rank's to update. */
void zero_owned(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi);
/* And of those, [*lo, *hi) are its to count in norms and to save: the copies share them, each
 * element is one rank's. Of parameters that several tp ranks hold only copy 0's count, of a tied
 * copy none. */
void zero_counted(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi);
/* Elements of all parameters that this rank saves, and of each of the optimizer's moments. */
double zero_saved(const struct model_shape *m, const struct share *s, int stage,
		  const struct zero_cut cut[ZERO_CLASSES]);

/* Buffers for units of a kind, where there are so many: one in use, one under way. */
enum { ZERO_BUFFERS = 2 };

/* Elements of each tensor of the optimizer's state that pass through a device's memory at once,
 * twice, with offload.optimizer; and the bytes of that. */
enum { ZERO_STAGED = 1 << 21 };
double zero_staged_bytes(int tensors);
/* Elements of masters in the host's memory that are rounded at once. */
enum { ZERO_PUBLISHED = 1 << 20 };

/* Bytes that the store takes (double: sizes beyond any machine must not overflow). Masters: 0 in
 * fp32 storage, where they are the parameters; not counted with offload.optimizer. */
struct zero_memory {
	double params, grads, masters;
	/* buffers of whole units' parameters, under stage 3: the most of each kind, ZERO_BUFFERS
	 * times at most */
	double gather;
	double reduce; /* and of their gradients, under stages 2 and 3 */
	double owned;  /* elements of each of the optimizer's moments */
};
/* width: bytes of a stored parameter, 4 or 2. */
void zero_memory_of(const int64_t elements[UNIT_KINDS], const int count[UNIT_KINDS], int stage,
		    const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out);
/* The same of a share's own units. */
void zero_memory(const struct model_shape *m, const struct share *s, int stage,
		 const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out);

#endif
