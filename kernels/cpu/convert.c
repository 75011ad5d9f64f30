/* The storage type is fp32 here, so converting is copying. */
#include "base/numbers.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

static void accumulate(struct backend *k, float *y, const float *x, int64_t count)
{
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, count))
	for (int64_t i = 0; i < count; i++)
		y[i] += x[i];
}

enum { PIECE = 1 << 16 };

static void copy(struct backend *k, float *y, const float *x, int64_t count)
{
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, count))
	for (int64_t i = 0; i < count; i += PIECE)
		memcpy(y + i, x + i, (size_t)min_int64(PIECE, count - i) * sizeof *y);
}

static void storage_to_fp32(struct backend *k, float *y, const void *x, int64_t count)
{
	copy(k, y, x, count);
}

static void fp32_to_storage(struct backend *k, void *y, const float *x, int64_t count,
			    const struct philox_key *key, uint64_t first)
{
	(void)key;
	(void)first;
	copy(k, y, x, count);
}

void CPU(convert)(struct ops *o)
{
	o->accumulate = accumulate;
	o->storage_to_fp32 = storage_to_fp32;
	o->fp32_to_storage = fp32_to_storage;
}
