/* The stored form that an update sets, for backends in the host's memory. */
#include "base/numbers.h"
#include "kernels/backend.h"

uint64_t backend_update_row(const struct update *u, int64_t i, int64_t *count)
{
	if (!u->gap) {
		*count = u->count - i;
		return u->first + (uint64_t)i;
	}
	int64_t in = u->column + i;
	*count = min_int64(u->row - in % u->row, u->count - i);
	return u->first + (uint64_t)(i + in / u->row * u->gap);
}

void backend_update_store(struct backend *k, const struct update *u)
{
	/* a backend of doubles has masters of doubles */
	const size_t stored = backend_width(k),
		     single = stored > sizeof(float) ? stored : sizeof(float);
	for (int64_t i = 0, n; u->stored && i < u->count; i += n) {
		uint64_t first = backend_update_row(u, i, &n);
		k->ops.fp32_to_storage(
			k, (char *)u->stored + (size_t)i * stored,
			(const float *)(const void *)((const char *)u->p + (size_t)i * single), n,
			u->random ? &u->key : NULL, first);
	}
}
