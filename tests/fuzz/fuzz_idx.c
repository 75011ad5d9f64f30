/* Any bytes as an index of tokens: they are refused, or they give consistent counts. */
#include "agent/engine/data/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct idx x;
	if (data_idx_parse(data, size, "fuzz.idx", &x, &e))
		return 0;
	if (x.tokens < 0 || x.sequences < 0 || x.documents < 0 || !data_token_size(x.type))
		abort();
	for (int64_t i = 0, before = 0; i < x.documents; i++) {
		int64_t at = data_idx_document(&x, data, i);
		if (at < before || at > x.tokens)
			abort();
		before = at;
	}
	return 0;
}
