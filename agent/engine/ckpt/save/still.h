/*
 * still — slices that do not change from one checkpoint to the next cost no writing.
 *
 * Frozen parameters, their moments, and those of experts that see no token have the same bytes in
 * each checkpoint. A rank keeps such slices in a shard of their own, shard-RANK-still.safetensors,
 * and gives that file a second name (a hard link) in the next checkpoint while nothing in it has
 * changed. A slice moves there when a save finds it as the one before did, by its digest; a slice
 * that changes again moves back, and the file is then written once more.
 *
 * Why links: each checkpoint remains a folder that has all of its files. Pruning, copying, pushing,
 * repairing and verifying need not know about them, and the file system counts who still needs the
 * bytes. References in the manifest would save no more, but a checkpoint could then not be moved or
 * removed without the others. One file for what is still, because a link is of a whole file.
 *
 * A file is linked only if it is the very one that this process has written and committed, not
 * modified since (storage.h, stamps). In all other cases it is written: the first save of a process,
 * after a failed save, in a storage without links, if the earlier checkpoint is gone. What a disk
 * damages in a linked file is damaged in all checkpoints that share it; a copy in another tier or
 * DIR shares nothing.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SAVE_STILL_H
#define MUSTER_AGENT_ENGINE_CKPT_SAVE_STILL_H

#include "agent/engine/ckpt/save/snapshot.h"

struct ckpt_still; /* of one rank and one DIR */

enum { STILL_LEAST = 1 << 20 }; /* bytes for which there is a file of its own */

struct ckpt_still *ckpt_still_open(void); /* NULL: no memory */
void ckpt_still_close(struct ckpt_still *k);

/* ckpt_snapshot_write that links what has not changed. `k` may be NULL: everything is written. */
int ckpt_still_write(struct ckpt_still *k, const struct snapshot *s,
		     const struct ckpt_storage *storage, const char *attempt, int rank,
		     struct manifest *part, struct err *e);
/* The result of the attempt: it is the checkpoint `path` now, or (NULL) it failed. Takes NULL for
 * `k`. */
void ckpt_still_settle(struct ckpt_still *k, const struct ckpt_storage *storage, const char *path);

#endif
