/*
 * state_digest — one digest of the whole training state, which does not depend on the layout.
 *
 * It is the root of a Merkle tree:
 *     leaf     the 128-bit sum of a block of a global tensor (sum.h)
 *     tensor   XXH3-128 of its leaves, in order, each as 16 big-endian bytes
 *     root     XXH3-128 of lines of text: "muster-state 1", the state, and each tensor in the
 *              order of the names:
 *                  step N | samples N | total_steps N | seed N | optimizer WORD
 *                  data SAMPLES VALIDATION      if they are known; the path may change
 *                  number NAME VALUE            sorted by name
 *                  tensor NAME ROWS COLUMNS HEX
 *
 * Each rank adds up the leaves of its boxes while it writes them, and rank 0 adds the ranks' sums,
 * so that every MANIFEST has the leaves (`sums`) and the root (`state_digest`). Two checkpoints
 * with equal digests hold the same state, whatever their layouts are. sum.h says what the leaves
 * detect. Checkpoints of older versions have no leaves; then nothing is compared.
 *
 * ckpt_check_loaded proves that what the ranks have in memory after a load, in whatever
 * layout, is what was saved.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_STATE_DIGEST_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_STATE_DIGEST_H

#include "agent/engine/ckpt/format/manifest.h"
#include "libcomm/comm.h"

/* Computes the root from the leaves: 1; 0 if there is no tensor, or one has none; -1 if there is no memory. */
int ckpt_state_digest(const struct manifest *m, struct digest *out, struct err *e);

/* Adds the sums of a box in memory, in pieces; a box in a device's memory is copied here for it.
 * watch may be NULL. */
int ckpt_sums_add_box(struct ckpt_sums *s, const struct ckpt_tensor *t,
		      const struct ckpt_watch *watch, struct err *e);

/* ckpt_check_loaded (ckpt.h) against a manifest that rank 0 has already; the other ranks pass
 * anything. It must be proven. Moments are ignored if it has no optimizer state. The ranks exchange
 * 32 KiB. */
int ckpt_state_check_loaded(struct comm *world, const struct manifest *m,
			    const struct ckpt_tensor *tensors, int n,
			    const struct ckpt_watch *watch, struct err *e);

#endif
