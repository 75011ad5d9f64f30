/* hwloc's XML, of any version: it gives a consistent machine, or an error that names the line. */
#include "tests/fuzz/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_format(&topo_format_hwloc, data, size);
}
