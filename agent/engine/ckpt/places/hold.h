/*
 * hold — keeps a checkpoint from being pruned while somebody reads it.
 *
 * A reader holds a shared lock on the checkpoint's MANIFEST.json. A run that keeps only its last
 * checkpoints, and `muster ckpt prune`, remove only what they can lock exclusively. These are locks
 * of the open file (F_OFD_SETLK), which end with their process and reach other nodes where the file
 * system carries them (NFS 4, Lustre with flock). Without them, and in storages other than folders, holding has no effect: a reader whose
 * checkpoint is removed then fails with a missing file.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_HOLD_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_HOLD_H

#include <stdbool.h>

enum ckpt_hold_for { CKPT_HOLD_READ, CKPT_HOLD_REMOVE };

struct ckpt_hold {
	int fd; /* -1: nothing is locked */
};

/* false: somebody else holds the checkpoint `path` in a way that excludes this one. */
bool ckpt_hold_take(struct ckpt_hold *h, const char *path, enum ckpt_hold_for why);
void ckpt_hold_release(struct ckpt_hold *h);

#endif
