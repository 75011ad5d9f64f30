/*
 * zero — sharded training state: which rank owns which elements of a unit, and how much memory that
 * needs.
 *
 * The parameter store and the planner share this code, so that a plan predicts a run's memory
 * exactly. agent/engine/parallel/param_store.h explains the ZeRO stages. A unit has shards × copies
 * replicas: its elements are split over the shards, and all copies of a shard own the same piece.
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

/* A unit's replicas, and this rank's place among them. */
struct zero_cut {
	int shards, shard, copies, copy;
};

/* Sets the cuts of the rank at `at`. per_node: with parallel.zero_shard = node, how many replicas
 * of the dense parameters one node holds (replicas are numbered node by node); 0: all replicas are
 * one group of shards. */
void zero_cuts(const struct layout *l, struct coords at, int stage, int per_node,
	       struct zero_cut out[ZERO_CLASSES]);

/* Whether a ZeRO stage splits each of these; every replica holds the others whole. */
struct zero_policy {
	bool state, grads, params;
};
/* With one shard there is nothing to split: the policy is that of stage 0. */
const struct zero_policy *zero_policy(int stage, const struct zero_cut *cut);

/* This rank updates elements [*lo, *hi) of a unit of n elements. */
void zero_owned(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi);
/* The elements that this takes in memory, on every shard equally many: with the padding that makes
 * the blocks of all shards equal (catalogue_block). Its block begins at shard × zero_block() of the
 * whole unit. Padding is zero, and nothing counts, saves or changes it. */
int64_t zero_block(int64_t n, int stage, const struct zero_cut *cut);
/* The same of the whole unit: all shards' blocks. */
int64_t zero_whole(int64_t n, int stage, const struct zero_cut *cut);
/* Of the elements that it updates, this rank counts [*lo, *hi) in norms and saves them. The
 * copies divide them, so that one rank counts each element. Of a parameter that several tp
 * ranks hold, only copy 0 counts; a tied copy does not count. */
void zero_counted(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi);
/* How many elements this rank saves of the parameters, and of each of the optimizer's moments. */
double zero_saved(const struct model_shape *m, const struct share *s, int stage,
		  const struct zero_cut cut[ZERO_CLASSES]);

/* Gradients that every replica holds whole are reduced as soon as so many elements of units are
 * complete, and new parameters that every replica will hold whole are gathered so many at a time.
 * Without ZeRO this is one all-reduce. Under ZeRO each unit is cut by itself, and a bucket is as
 * many operations, which only a device's library launches together; elsewhere each starts alone.
 * A host's network is busy with few elements: 4 MiB of fp32 take some hundred microseconds on a
 * fast link, far more than an operation's fixed cost, and the first reduction starts early.
 * Between devices the fixed cost grows with the replicas and the bandwidth is a hundred times as
 * high: there it is Megatron-Core's rule.
 *
 * What ZeRO 2 reduces after each micro-batch, and what ZeRO 3 gathers, has no buckets: a bucket
 * would need its elements again in buffers, twice, which are 320 MB of gradients on 40 replicas
 * and 8 GB on 1000. Large models' layers are as large as a bucket anyway. */
int64_t zero_bucket(bool device, int replicas);

/* Buffers per kind of unit, if there are that many units: one in use, one being filled. */
enum { ZERO_BUFFERS = 2 };

/* With offload.optimizer, so many elements of each tensor of the optimizer's state are in a
 * device's memory at once, twice; zero_staged_bytes() is that in bytes. */
enum { ZERO_STAGED = 1 << 21 };
double zero_staged_bytes(int tensors);
/* Elements of master weights in host memory that are rounded at once. */
enum { ZERO_PUBLISHED = 1 << 20 };
/* Bytes of a step's numbers in a device's memory (struct step_numbers, kernels/ops.h). */
enum { ZERO_STEP_NUMBERS = 104 };

/* Bytes that the parameter store allocates; doubles, so that absurd sizes do not overflow. masters
 * is 0 in fp32, where the parameters are the masters, and excludes them with offload.optimizer. */
struct zero_memory {
	double params, grads, masters;
	/* stage 3: buffers of whole units' parameters, at most ZERO_BUFFERS of the largest unit of
	 * each kind */
	double gather;
	double reduce; /* stages 2 and 3: the same for gradients */
	double owned;  /* elements of each of the optimizer's moments */
};
/* width: bytes of a stored parameter, 4 or 2. */
void zero_memory_of(const int64_t elements[UNIT_KINDS], const int count[UNIT_KINDS], int stage,
		    const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out);
/* zero_memory_of() for a share's own units. */
void zero_memory(const struct model_shape *m, const struct share *s, int stage,
		 const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out);

#endif
