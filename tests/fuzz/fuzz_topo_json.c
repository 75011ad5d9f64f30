/* A cluster as JSON: what is read is written and read again as the same. */
#include "tests/fuzz/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_format(&topo_format_json, data, size);
}
