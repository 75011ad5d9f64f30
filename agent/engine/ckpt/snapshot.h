/*
 * snapshot — a copy of one rank's tensors in host memory, and its shard.
 *
 * One buffer, grown when it must and kept from save to save. Of tensors in a device's memory it is
 * memory that the device copies to at full speed, if there is any.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SNAPSHOT_H
#define MUSTER_AGENT_ENGINE_CKPT_SNAPSHOT_H

#include "agent/engine/ckpt/io.h"
#include "agent/engine/ckpt/manifest.h"

struct snapshot {
	struct ckpt_tensor *tensors; /* those with elements; data points into the buffer */
	int n;
	float *buffer;
	struct ckpt_memory memory; /* whose the buffer is; all NULL: malloc's */
	size_t bytes, cap;
	struct err err;                 /* why the last take failed; ERR_NONE */
	const struct ckpt_watch *watch; /* hears of each piece written; NULL: nobody */
};

/* Copies the tensors; refuses boxes outside their tensor by name. */
int ckpt_snapshot_take(struct snapshot *s, const struct ckpt_tensor *tensors, int n);
void ckpt_snapshot_fini(struct snapshot *s);

/* Writes the snapshot to FOLDER/shard-RANK.safetensors, new and synced, and describes it in `part`:
 * the digests are taken from the snapshot as it is written. Nothing is written when the snapshot is
 * empty. */
int ckpt_snapshot_write(const struct snapshot *s, const struct ckpt_io *io, const char *folder,
			int rank, struct manifest *part, struct err *e);

/* What a slice is called in its shard: the tensor's name, and its box unless it is the whole
 * tensor. */
enum { SLICE_NAME = MANIFEST_TENSOR_NAME + 96 };
void ckpt_slice_name(const char *name, int dims, const int64_t *shape, const int64_t *lo,
		     const int64_t *hi, char out[SLICE_NAME]);

#endif
