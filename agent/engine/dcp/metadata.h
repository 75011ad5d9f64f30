/*
 * metadata — .metadata of a checkpoint of torch.distributed.checkpoint (DCP): its tensors, and where
 * the chunks of each are.
 *
 * The file is a pickle (pickle.h) of
 *
 *     Metadata
 *       state_dict_metadata  {name: TensorStorageMetadata or BytesStorageMetadata}
 *       storage_data         {MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)}
 *
 * A TensorStorageMetadata has the global `size`, `properties` with the dtype, and `chunks`, a list of
 * ChunkStorageMetadata(offsets, sizes). Sharded tensors, DTensors and whole tensors differ only in
 * their number of chunks. MetadataIndex.offset is the offset of a chunk. The chunk's bytes are the
 * archive (zip.h) at [offset, offset + length) of the file relative_path.
 *
 * All other members (planner_data, storage_meta, …) are ignored. BytesStorageMetadata stands for
 * values that are not tensors; muster needs none. Chunks are checked when a tensor is asked for, so
 * optimizer state of any form does not disturb the import of a model.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_METADATA_H
#define MUSTER_AGENT_ENGINE_DCP_METADATA_H

#include "agent/engine/dcp/pickle.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define DCP_METADATA_NAME ".metadata"

enum { DCP_DIMS = 6, DCP_NAME = 256 };

struct dcp_chunk {
	int64_t lo[DCP_DIMS], hi[DCP_DIMS]; /* in the global tensor */
	const char *file;                   /* no NUL at the end; a plain name */
	size_t file_length;
	int64_t at, length; /* of its archive in the file */
	bool checked;       /* its archive was read once, and its CRC is right */
};

struct dcp_tensor {
	char name[DCP_NAME];
	int dims; /* -1: in no form that muster reads */
	int64_t shape[DCP_DIMS];
	const char *dtype;              /* torch's word; NULL: in no form that muster reads */
	const struct dcp_value *listed; /* its chunks as the file lists them */
	struct dcp_chunk *chunks;       /* sorted by lo; NULL until dcp_metadata_chunks */
	int64_t n;
	int64_t tallest; /* the most rows of dimension 0 that a chunk has */
};

struct dcp_metadata {
	struct dcp_tensor *tensors; /* sorted by name */
	int64_t n;
	int64_t values; /* entries that are not tensors */
	struct dcp_place *places;
	int64_t n_places;
	struct dcp_pickle pickle;
};

/* The data must outlive `out`. name: the file's name, for errors. Errors as of dcp_pickle_parse. */
int dcp_metadata_parse(const void *data, size_t n, const char *name, struct dcp_metadata *out,
		       struct err *e);
void dcp_metadata_free(struct dcp_metadata *m);

/* Fills in the tensor's chunks, without empty ones, and proves that they cover it exactly once.
 * ERR_CORRUPT: they do not, or a chunk is in no file; the text does not name the metadata's file. */
int dcp_metadata_chunks(const struct dcp_metadata *m, struct dcp_tensor *t, struct err *e);

#endif
