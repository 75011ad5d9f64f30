/*
 * header — compares the header of a shard with the manifest.
 *
 * Other readers of safetensors use the header: a tensor that was renamed there, or the header of
 * another shard, is damage even if muster itself reads by the manifest alone. Two things are
 * compared: the digest of the header's bytes, and, because both could have been changed together,
 * each tensor's name, dtype, shape and offset with the slice of the manifest.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_HEADER_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_HEADER_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/storage/storage.h"

/* A slice and its tensor. */
struct slice_entry {
	const struct manifest_tensor *tensor;
	const struct manifest_slice *slice;
};

/* All slices of a manifest in the order of the files' bytes: the slices of file f are
 * entries[first[f]] to entries[first[f + 1] - 1]. */
struct slice_index {
	struct slice_entry *entries;
	int64_t *first;
};

int ckpt_slice_index_build(const struct manifest *m, struct slice_index *out, struct err *e);
void ckpt_slice_index_free(struct slice_index *x);

/* f: the open file of the checkpoint `path`, of the size in the manifest. ERR_CORRUPT names the
 * file and the tensor. */
int ckpt_header_check(const char *path, const struct manifest *m, int64_t file, struct ckpt_file *f,
		      const struct slice_index *index, struct err *e);

/* Writes the header of a file again from the manifest, into an empty buffer. ERR_CORRUPT: the result
 * does not have the digest in the manifest, because another version of muster wrote it. */
int ckpt_header_rebuild(const struct manifest *m, int64_t file, const struct slice_index *index,
			struct buf *out, struct err *e);

#endif
