/* Any bytes as a safetensors file: they are refused, or they give tensors that tile the buffer. */
#include "agent/engine/ckpt/format/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct st_header h;
	if (ckpt_safetensors_parse(data, size, (int64_t)size, "fuzz", &h, &e))
		return 0;
	int64_t at = 0;
	for (int64_t i = 0; i < h.n; i++) {
		if (h.tensors[i].begin != at)
			abort();
		at = h.tensors[i].end;
	}
	if (h.data_at + at != (int64_t)size)
		abort();
	ckpt_safetensors_header_fini(&h);
	return 0;
}
