/*
 * header — whether the header of a shard says what the manifest says.
 *
 * The header is what other readers of safetensors go by: a tensor that is renamed there, or a
 * header of another shard, is damage even where muster itself reads by the manifest alone. Two
 * things are compared: the digest of the header's bytes, and, as both could have been changed
 * together, each tensor's name, dtype, shape and place with the manifest's slice there.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_HEADER_H
#define MUSTER_AGENT_ENGINE_CKPT_HEADER_H

#include "agent/engine/ckpt/manifest.h"

/* A slice and the tensor that it is of. */
struct place {
	const struct manifest_tensor *tensor;
	const struct manifest_slice *slice;
};

/* All slices of a manifest in the order of the files' bytes: those of file f are list[first[f]]
 * to list[first[f + 1]]. */
struct places {
	struct place *list;
	int64_t *first;
};

int ckpt_slice_index_build(const struct manifest *m, struct places *out, struct err *e);
void ckpt_slice_index_free(struct places *p);

/* fd: the open file of the checkpoint `path`, of the size that the manifest says. ERR_CORRUPT
 * names the file and the tensor. */
int ckpt_header_check(const char *path, const struct manifest *m, int64_t file, int fd,
		      const struct places *places, struct err *e);

#endif
