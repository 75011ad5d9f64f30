/* Any bytes as the end of a metrics.jsonl: the window holds finite numbers, at most as many as it
 * may. */
#include "agent/engine/train/bad_numbers.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bad_numbers b;
	struct bad_number bad;
	train_bad_init(&b, 10, 16);
	if (train_bad_read(&b, (const char *)data, size, 1000, NULL))
		return 0;
	if (b.loss.n != b.norm.n || b.loss.n > 16)
		abort();
	for (int i = 0; i < b.loss.n; i++)
		if (!isfinite(b.loss.last[i]) || !isfinite(b.norm.last[i]))
			abort();
	train_bad_judge(&b, 2, 1, &bad);
	return 0;
}
