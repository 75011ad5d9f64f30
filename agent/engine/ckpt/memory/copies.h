/*
 * copies — which ranks hold copies of which shards in memory (store.h), and the newest state that
 * they make up together.
 *
 * A copy is known by the identity of its shard: a digest of the shard's size, header digest and
 * slice digests. Two shards of one identity have the same bytes, wherever they are: in a store or in
 * a checkpoint.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_MEMORY_COPIES_H
#define MUSTER_AGENT_ENGINE_CKPT_MEMORY_COPIES_H

#include "agent/engine/ckpt/format/header.h"
#include "agent/engine/ckpt/memory/store.h"
#include "libcomm/comm.h"

/* A complete copy, and the rank that holds it. */
struct copy_held {
	int64_t step;
	uint32_t generation;
	int32_t owner, owners;  /* whose shard it is, of how many ranks */
	int32_t rank;           /* that holds it; set by ckpt_copies_gather */
	struct digest identity; /* all zeros: a shard without slices */
};

struct copies {
	struct copy_held *list; /* by identity, then by rank; equal on all ranks */
	int64_t n;
};

/* Collective. Every rank passes its store; NULL: it has none. */
int ckpt_copies_gather(struct comm *group, const struct ckpt_store *store, struct copies *out,
		       int *culprit, struct err *e);
void ckpt_copies_fini(struct copies *c);

/* Sets the identity of a file of a manifest. */
int ckpt_copy_identity(const struct manifest *m, int64_t file, const struct slice_index *index,
		       struct digest *out, struct err *e);
/* The copies of this identity, and their number; 0: there is none. */
int64_t ckpt_copies_of(const struct copies *c, const struct digest *identity,
		       const struct copy_held **first);

/* Finds the newest state of which there is a copy of every owner's shard: that of the last
 * generation, and of these the one of the highest step. An earlier generation may have come further,
 * but the later one did not continue from there. owned[owner]: its copy on the lowest rank; the
 * caller frees it. NULL: there is none. */
int ckpt_copies_newest(const struct copies *c, const struct copy_held ***owned, int *owners,
		       struct err *e);

#endif
