/* The text of nvidia-smi topo -m. */
#include "tests/fuzz/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_format(&topo_format_smi, data, size);
}
