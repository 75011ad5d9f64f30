/*
 * folder — a checkpoint of torch.distributed.checkpoint, or of Megatron's dist_checkpointing in the
 * format torch_dist, which is the same: .metadata and the files that it names (__R_I.distcp).
 *
 * It gives any box of any tensor. Chunks are read in place; at most DCP_PIECE bytes of them are in
 * memory at once. No pickle is executed (pickle.h).
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_FOLDER_H
#define MUSTER_AGENT_ENGINE_DCP_FOLDER_H

#include "agent/engine/dcp/metadata.h"

enum { DCP_PIECE = 1 << 20 };

struct dcp_folder;

/* Whether the path has a .metadata. */
bool dcp_is_folder(const char *path);

int dcp_folder_open(const char *path, struct dcp_folder **out, struct err *e);
void dcp_folder_close(struct dcp_folder *f);

/* Borrowed. */
const struct dcp_metadata *dcp_folder_metadata(const struct dcp_folder *f);

/* Fills in the tensor's chunks (dcp_metadata_chunks). */
int dcp_folder_prepare(struct dcp_folder *f, struct dcp_tensor *t, struct err *e);

/* Converts n stored numbers, little-endian, of torch's dtype. */
typedef void dcp_widen(const char *dtype, const void *from, size_t n, float *to);

/* Reads the box [lo, hi) of the tensor, which has to be inside it, row-major. ERR_CORRUPT or
 * ERR_UNSUPPORTED: the tensor, or a file of it, is refused. */
int dcp_folder_read(struct dcp_folder *f, struct dcp_tensor *t, const int64_t *lo,
		    const int64_t *hi, dcp_widen *widen, float *out, struct err *e);

#endif
