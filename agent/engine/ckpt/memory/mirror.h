/*
 * mirror — keeps the ranks' shards in memory, behind training: each rank its own, and the copies of
 * those that pairing.h gives it.
 *
 * Training waits for ckpt_mirror_take() alone, which copies the rank's own slices. A thread then
 * computes the digests, sends the copy to its keeper and verifies those that it receives, with a group
 * of its own. A copy counts when all ranks have completed theirs. If one rank fails, all drop the
 * copy, so that every rank always has the same last state (store.h).
 *
 * After the loss of a rank no further copy is taken, because it would replace the last one that is
 * complete on all ranks.
 *
 * The thread ends at once if the world is aborted. Its failures never fail the run: a warning names the
 * first one, until copies succeed again.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_MEMORY_MIRROR_H
#define MUSTER_AGENT_ENGINE_CKPT_MEMORY_MIRROR_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/ckpt/memory/pairing.h"
#include "agent/engine/ckpt/memory/store.h"

struct ckpt_mirror; /* its functions are called from one thread */

struct ckpt_mirror_options {
	struct ckpt_store *store; /* borrowed; while a copy is in progress, nobody else calls it */
	struct pairing_place place; /* of this rank */
	bool peers;                 /* false: each rank keeps only its own shard */
	uint32_t generation;
	json_t *model, *layout;         /* of the manifests; borrowed for the call */
	const struct ckpt_watch *watch; /* called on the thread; NULL: none; borrowed */
	/* called on rank 0's thread before its shard is complete: until then the ranks have no whole
	 * copy of the step; NULL: none */
	const struct ckpt_gate *gate;
};

/* Collective over `world`; the mirror splits a group of its own from it. */
int ckpt_mirror_open(struct comm *world, const struct ckpt_mirror_options *opt,
		     struct ckpt_mirror **out, struct err *e);
/* Cancels a copy in progress. Takes NULL. */
void ckpt_mirror_close(struct ckpt_mirror *m);

/* Whether a copy is in progress on this rank. Never waits. */
bool ckpt_mirror_busy(const struct ckpt_mirror *m);
/* Collective: all ranks take the same step. Waits until the last copy is complete or has failed, and
 * copies the rank's slices. A failure counts as one of the copy. */
void ckpt_mirror_take(struct ckpt_mirror *m, const struct ckpt_state *state,
		      const struct ckpt_tensor *tensors, int n);
/* Collective, after the take: completes the copy behind training. `number` is this rank's, not
 * negative; the ranks agree on the highest. */
void ckpt_mirror_start(struct ckpt_mirror *m, int64_t number);

struct mirror_result {
	int64_t step;   /* of the last copy that all ranks have completed; -1: there is none */
	int64_t number; /* the highest of the ranks' with it */
};
/* Of the last copy. It may be called while the mirror is not busy. */
const struct mirror_result *ckpt_mirror_result(const struct ckpt_mirror *m);

/* Memory that a rank needs for shards of so many bytes: two images of its own shard, and of those that
 * it keeps for others; `copies` is 0 or 1. */
double ckpt_mirror_memory(double bytes, int64_t copies);

#endif
