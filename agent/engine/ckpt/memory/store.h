/*
 * store — copies of shards in this rank's host memory, from which a run recovers without storage.
 *
 * A copy is the image of one rank's shard at one step, byte for byte what a checkpoint would have
 * written, and the manifest of that one file (manifest.h) with the digests of its slices. A rank
 * keeps its own shard (take, then seal) and those of the peers whose copies it holds (receive, then
 * check). A shard without slices has an image of no bytes.
 *
 * Each owner has two images. A new one replaces the older, so the last complete one stays valid
 * until the new one is complete too. A save of step N therefore must not begin on any rank before
 * all ranks have completed the one before it; then there is a step that is complete everywhere at
 * every moment.
 *
 * A store outlives the generation whose copies it holds. The next generation may have another
 * number of ranks, so each copy records the number of its own. ckpt_store_begin() sets it for the copies
 * that follow.
 *
 * The images' memory is kept from one step to the next. One thread at a time calls the store.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_MEMORY_STORE_H
#define MUSTER_AGENT_ENGINE_CKPT_MEMORY_STORE_H

#include "agent/engine/ckpt/format/manifest.h"

#include <stdatomic.h>

struct ckpt_store;

struct ckpt_store_options {
	int owners;             /* ranks that may own a shard: 0 to owners - 1 */
	json_t *model, *layout; /* of the manifests of this rank's shards; a copy is kept */
	/* called for each piece that is digested, until the next begin; NULL: none */
	const struct ckpt_watch *watch;
	/* set while a seal or a check is to end early; NULL: never. Valid until the next begin. */
	const atomic_bool *cancel;
};

/* A complete copy. It is valid until the second take or receive of its owner after it, or until it is
 * dropped. */
struct store_copy {
	int owner, owners;           /* whose shard it is, of how many ranks */
	const struct manifest *part; /* state, generation, at most one file, its slices */
	const char *image;           /* part->files[0].size bytes */
};

int ckpt_store_open(const struct ckpt_store_options *opt, struct ckpt_store **out, struct err *e);
void ckpt_store_close(struct ckpt_store *s); /* takes NULL */
/* The copies that follow are of these ranks. Those that are there stay. */
int ckpt_store_begin(struct ckpt_store *s, const struct ckpt_store_options *opt, struct err *e);

/* Copies this rank's slices: the only part that training waits for. The copy is not complete yet.
 * Empty boxes are left out. ERR_NOMEM, ERR_INTERNAL: there is no new copy, the last one is still
 * valid. */
int ckpt_store_take(struct ckpt_store *s, int owner, const struct ckpt_state *state,
		    uint32_t generation, const struct ckpt_tensor *tensors, int n, struct err *e);
/* Computes the digests and completes the copy. ERR_NUMERIC: a tensor holds NaN or infinity, and the
 * copy is dropped. ERR_ABORTED: cancelled; it is dropped. */
int ckpt_store_seal(struct ckpt_store *s, int owner, struct err *e);

/* Prepares to receive a copy that another rank holds: `text` is its manifest (ckpt_manifest_write).
 * Sets where its bytes go. ERR_CORRUPT: the text does not describe a shard of the owner. */
int ckpt_store_receive(struct ckpt_store *s, int owner, const char *text, size_t n, char **image,
		       size_t *bytes, struct err *e);
/* Verifies the digests of what was received and completes the copy. ERR_CORRUPT names the tensor;
 * the copy is dropped. ERR_ABORTED: as for the seal. */
int ckpt_store_check(struct ckpt_store *s, int owner, struct err *e);

/* Drops all copies. Keeps the memory. */
void ckpt_store_forget(struct ckpt_store *s);
/* Drops the copies that `stays` rejects, and what is not complete. Frees their memory. */
void ckpt_store_retain(struct ckpt_store *s,
		       bool (*stays)(const void *arg, int64_t step, uint32_t generation),
		       const void *arg);
/* Drops the complete copies of this state, such as those that other ranks could not complete. Keeps
 * the memory. */
void ckpt_store_drop(struct ckpt_store *s, int64_t step, uint32_t generation);

/* The complete copy of the owner's shard of that step and generation. false: there is none. */
bool ckpt_store_find(const struct ckpt_store *s, int owner, int64_t step, uint32_t generation,
		     struct store_copy *out);
/* Sets the owner's i-th complete copy, the newest first. false: it has fewer. */
bool ckpt_store_list(const struct ckpt_store *s, int owner, int i, struct store_copy *out);

/* Every owner of a copy is below it. */
int ckpt_store_owners(const struct ckpt_store *s);

#endif
