/* A cluster as JSON: a cluster that is read is the same when it is written and read again. */
#include "tests/fuzz/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_format(&topo_format_json, data, size);
}
