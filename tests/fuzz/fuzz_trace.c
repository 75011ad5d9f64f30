/* Any bytes as the dumps of two ranks, with a zero byte between them: they are refused or
 * diagnosed. */
#include "libcomm/flight/diagnose.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *cut = memchr(data, 0, size);
	size_t first = cut ? (size_t)(cut - data) : size;
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	int rc = comm_trace_add(&t, (const char *)data, first, "first", &e);
	if (rc == 0 && cut)
		rc = comm_trace_add(&t, (const char *)cut + 1, size - first - 1, "second", &e);
	if (rc == 0 && comm_diagnose(&t, &d, &e) == 0)
		comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
	return 0;
}
