/* Any text as data.path: it is refused, or it gives sources whose samples are read one by one, at
 * any place in the order. */
#include "agent/engine/data/blend.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void deal(const struct blend *b, int64_t k)
{
	int source = -1;
	int64_t index = -1;
	data_blend_place(b, k, &source, &index);
	if (source < 0 || source >= b->n || index < 0 || index > k)
		abort();
	for (int s = 0; s < b->n; s++) {
		int64_t before = data_blend_count(b, k, s), after = data_blend_count(b, k + 1, s);
		if (after - before != (s == source) || (s == source && before != index))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct blend b;
	char *words = strndup((const char *)data, size);
	if (!words)
		abort();
	if (!data_blend_open(words, &b, &e)) {
		for (int64_t k = 0; k < 40; k++)
			deal(&b, k);
		for (int64_t k = 1; k < INT64_MAX / 8; k *= 7)
			deal(&b, k);
		data_blend_fini(&b);
	} else if (!e.text[0]) {
		abort();
	}
	free(words);
	return 0;
}
