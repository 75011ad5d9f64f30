/*
 * snapshot — a copy of one rank's tensors in host memory, and the shard that is written from it.
 *
 * The copy is one buffer, which grows if needed and is kept from one save to the next. If tensors
 * are in a device's memory, the buffer is memory that the device copies to at full speed, if there
 * is any.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SAVE_SNAPSHOT_H
#define MUSTER_AGENT_ENGINE_CKPT_SAVE_SNAPSHOT_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/storage/storage.h"

struct snapshot {
	struct ckpt_tensor *tensors; /* those with elements; data points into the buffer */
	int n;
	float *buffer;
	struct ckpt_memory memory; /* the buffer's allocator; all NULL: malloc */
	size_t bytes, cap;
	struct err err;                 /* result of the last ckpt_snapshot_take */
	const struct ckpt_watch *watch; /* called for each piece written; NULL: none */
};

/* Copies the tensors. A box outside its tensor is an error that names the tensor. */
int ckpt_snapshot_take(struct snapshot *s, const struct ckpt_tensor *tensors, int n);
/* Allocates the memory for a copy of these tensors, so that the first copy does not wait for it;
 * touch: makes its pages present, before there is a copy. Another thread may do that. */
int ckpt_snapshot_reserve(struct snapshot *s, const struct ckpt_tensor *tensors, int n,
			  struct err *e);
void ckpt_snapshot_touch(struct snapshot *s);
void ckpt_snapshot_fini(struct snapshot *s);

/* Writes the snapshot to the new file ATTEMPT/shard-RANK.safetensors, makes it durable, and
 * describes it in `part`. The digests are computed from the snapshot as it is written. An empty
 * snapshot writes no file. */
int ckpt_snapshot_write(const struct snapshot *s, const struct ckpt_storage *storage,
			const char *attempt, int rank, struct manifest *part, struct err *e);

/* Writes n of the snapshot's tensors to the new file ATTEMPT/NAME in the same way, and adds the file
 * and its slices to `part`. step: as in ckpt_shard_header. */
int ckpt_shard_write(const struct snapshot *s, const struct ckpt_tensor *list, int n,
		     const struct ckpt_storage *storage, const char *attempt, const char *name,
		     int64_t step, struct manifest *part, struct err *e);
void ckpt_shard_name(int rank, char name[MANIFEST_FILE_NAME]);

/* Appends the bytes that come before the slices in a shard: its safetensors header. None of the boxes
 * is empty. step: -1: it is not in the header, because the file belongs to several checkpoints. */
int ckpt_shard_header(const struct ckpt_tensor *tensors, int n, int64_t step, struct buf *out,
		      struct err *e);
/* Fills name, size and header digest of rank's shard: a header, then `bytes` of slices. */
void ckpt_shard_describe(int rank, const struct buf *header, size_t bytes,
			 struct manifest_file *file);
/* Whether one of the numbers is NaN or infinite. */
bool ckpt_has_bad_number(const char *data, size_t bytes);
/* Sets the error of a tensor that holds one; returns -1. */
int ckpt_bad_number(const char *tensor, struct err *e);
/* Counts the elements of a box. ERR_INTERNAL: it is outside its tensor. */
int ckpt_box_elements(const struct ckpt_tensor *t, int64_t *count, struct err *e);

/* The name of a slice in its shard: the tensor's name and, unless the slice is the whole tensor,
 * its box. */
enum { SLICE_NAME = MANIFEST_TENSOR_NAME + 96 };
void ckpt_slice_name(const char *name, int dims, const int64_t *shape, const int64_t *lo,
		     const int64_t *hi, char out[SLICE_NAME]);

#endif
