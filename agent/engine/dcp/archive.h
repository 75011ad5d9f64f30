/*
 * archive — one chunk of a tensor as torch.save wrote it: data.pkl, which describes the tensor, and
 * data/KEY, the bytes of its storage.
 *
 * data.pkl is _rebuild_tensor_v2(storage, offset, size, stride, …). Strides need not be those of a
 * contiguous tensor: the writer keeps a transposed tensor's. Every element is proved to lie inside
 * the storage.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_ARCHIVE_H
#define MUSTER_AGENT_ENGINE_DCP_ARCHIVE_H

#include "agent/engine/dcp/metadata.h"

struct dcp_archive {
	const char *dtype;        /* torch's word */
	int64_t at;               /* of element 0 in the file */
	int64_t size[DCP_DIMS];   /* as the chunk's */
	int64_t stride[DCP_DIMS]; /* in elements; not negative */
};

/* Bytes of one element; 0: muster does not import the dtype. */
int dcp_dtype_size(const char *dtype);

/* Reads the archive of a chunk of `t`. The file is open at fd. The first time, the CRC of the
 * storage is checked. name: the file's name, for errors. */
int dcp_archive_read(int fd, const char *name, const struct dcp_tensor *t, struct dcp_chunk *c,
		     struct dcp_archive *out, struct err *e);

#endif
