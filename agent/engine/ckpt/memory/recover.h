/*
 * recover — the manifest of a state that is in the memory of the ranks (store.h).
 *
 * It is merged from the manifests of the copies, as a checkpoint's is from those of its shards, and
 * proven in the same way. exchange.h loads from it.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_MEMORY_RECOVER_H
#define MUSTER_AGENT_ENGINE_CKPT_MEMORY_RECOVER_H

#include "agent/engine/ckpt/memory/copies.h"

/* Collective. owned, owners: of ckpt_copies_newest. Appends the text of the manifest to rank 0's
 * buffer. A failure on rank 0 is returned in *why, and only there: its caller shares it. */
int ckpt_recover_manifest(struct comm *group, const struct ckpt_store *store,
			  const struct copy_held *const *owned, int owners, struct buf *text,
			  struct err *why, int *culprit, struct err *e);

#endif
