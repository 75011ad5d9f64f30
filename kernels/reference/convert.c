/* Conversions between the storage type and the type of sums, which are the same here, and sums. */
#include "kernels/reference/reference.h"

static void accumulate(struct backend *k, float *yf, const float *xf, int64_t count)
{
	(void)k;
	real *y = (real *)yf;
	const real *x = (const real *)xf;
	for (int64_t i = 0; i < count; i++)
		y[i] += x[i];
}

static void copy(real *y, const real *x, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		y[i] = x[i];
}

static void storage_to_fp32(struct backend *k, float *y, const void *x, int64_t count)
{
	(void)k;
	copy((real *)y, x, count);
}

static void fp32_to_storage(struct backend *k, void *y, const float *x, int64_t count,
			    const struct philox_key *key, uint64_t first)
{
	(void)k;
	(void)key;
	(void)first;
	copy(y, (const real *)x, count);
}

void REFERENCE(convert)(struct ops *o)
{
	o->accumulate = accumulate;
	o->storage_to_fp32 = storage_to_fp32;
	o->fp32_to_storage = fp32_to_storage;
}
