#include "agent/engine/dcp/pickle.h"

#include <string.h>

/* clang-format off */
static const struct dcp_global globals[] = {
	{ "torch.distributed.checkpoint.metadata", "Metadata", DCP_MEANS_METADATA, NULL },
	{ "torch.distributed.checkpoint.metadata", "TensorStorageMetadata", DCP_MEANS_TENSOR, NULL },
	{ "torch.distributed.checkpoint.metadata", "BytesStorageMetadata", DCP_MEANS_BYTES, NULL },
	{ "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata", DCP_MEANS_CHUNK, NULL },
	{ "torch.distributed.checkpoint.metadata", "MetadataIndex", DCP_MEANS_INDEX, NULL },
	{ "torch.distributed.checkpoint.metadata", "TensorProperties", DCP_MEANS_PROPERTIES, NULL },
	{ "torch.distributed.checkpoint.metadata", "StorageMeta", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.filesystem", "_StorageInfo", DCP_MEANS_STORAGE_INFO, NULL },
	/* the plans of the save, which Megatron keeps in the metadata */
	{ "torch.distributed.checkpoint.planner", "SavePlan", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.planner", "WriteItem", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.planner", "WriteItemType", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.planner", "TensorWriteData", DCP_MEANS_NOTHING, NULL },
	{ "torch.distributed.checkpoint.planner", "BytesIOWriteData", DCP_MEANS_NOTHING, NULL },
	{ "megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan", DCP_MEANS_NOTHING, NULL },
	/* the metadata of PyTorch 2.0 */
	{ "torch.distributed._shard.sharded_tensor.metadata", "TensorProperties", DCP_MEANS_PROPERTIES, NULL },
	{ "torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING", DCP_MEANS_NOTHING, NULL },
	{ "torch.serialization", "_get_layout", DCP_MEANS_NOTHING, NULL },
	{ "torch", "Size", DCP_MEANS_SIZE, NULL },
	{ "torch", "device", DCP_MEANS_NOTHING, NULL },
	{ "collections", "OrderedDict", DCP_MEANS_MAPPING, NULL },
	{ "collections", "defaultdict", DCP_MEANS_MAPPING, NULL },
	{ "builtins", "dict", DCP_MEANS_NOTHING, NULL },
	{ "builtins", "list", DCP_MEANS_NOTHING, NULL },
	{ "pathlib", "PosixPath", DCP_MEANS_NOTHING, NULL },
	{ "torch._utils", "_rebuild_tensor_v2", DCP_MEANS_REBUILD_TENSOR, NULL },
	{ "torch._utils", "_rebuild_parameter", DCP_MEANS_REBUILD_PARAMETER, NULL },
	/* the lists of PyTorch's own pickler, in C++ */
	{ "torch.jit._pickle", "build_intlist", DCP_MEANS_ITS_ARGUMENT, NULL },
	{ "torch.jit._pickle", "build_doublelist", DCP_MEANS_ITS_ARGUMENT, NULL },
	{ "torch.jit._pickle", "build_boollist", DCP_MEANS_ITS_ARGUMENT, NULL },
	{ "torch.jit._pickle", "restore_type_tag", DCP_MEANS_ITS_ARGUMENT, NULL },
	{ "torch", "FloatStorage", DCP_MEANS_STORAGE, "float32" },
	{ "torch", "HalfStorage", DCP_MEANS_STORAGE, "float16" },
	{ "torch", "BFloat16Storage", DCP_MEANS_STORAGE, "bfloat16" },
	{ "torch", "DoubleStorage", DCP_MEANS_STORAGE, "float64" },
	{ "torch", "float32", DCP_MEANS_DTYPE, "float32" },
	{ "torch", "float16", DCP_MEANS_DTYPE, "float16" },
	{ "torch", "bfloat16", DCP_MEANS_DTYPE, "bfloat16" },
	{ "torch", "float64", DCP_MEANS_DTYPE, "float64" },
	/* These occur in the metadata of tensors that muster does not import. */
	{ "torch", "uint8", DCP_MEANS_DTYPE, "uint8" },
	{ "torch", "uint16", DCP_MEANS_DTYPE, "uint16" },
	{ "torch", "uint32", DCP_MEANS_DTYPE, "uint32" },
	{ "torch", "uint64", DCP_MEANS_DTYPE, "uint64" },
	{ "torch", "int8", DCP_MEANS_DTYPE, "int8" },
	{ "torch", "int16", DCP_MEANS_DTYPE, "int16" },
	{ "torch", "int32", DCP_MEANS_DTYPE, "int32" },
	{ "torch", "int64", DCP_MEANS_DTYPE, "int64" },
	{ "torch", "bool", DCP_MEANS_DTYPE, "bool" },
	{ "torch", "complex64", DCP_MEANS_DTYPE, "complex64" },
	{ "torch", "complex128", DCP_MEANS_DTYPE, "complex128" },
	{ "torch", "float8_e4m3fn", DCP_MEANS_DTYPE, "float8_e4m3fn" },
	{ "torch", "float8_e4m3fnuz", DCP_MEANS_DTYPE, "float8_e4m3fnuz" },
	{ "torch", "float8_e5m2", DCP_MEANS_DTYPE, "float8_e5m2" },
	{ "torch", "float8_e5m2fnuz", DCP_MEANS_DTYPE, "float8_e5m2fnuz" },
};
/* clang-format on */

static bool equal(const char *text, const char *at, size_t n)
{
	return strlen(text) == n && !memcmp(text, at, n);
}

const struct dcp_global *dcp_pickle_global(const char *module, size_t m, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
		if (equal(globals[i].name, name, n) && equal(globals[i].module, module, m))
			return &globals[i];
	return NULL;
}
