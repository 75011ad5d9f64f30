/* NCCL's topology XML. */
#include "tests/fuzz/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_format(&topo_format_nccl, data, size);
}
