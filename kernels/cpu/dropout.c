/* Dropout, a run of elements at a time: first its factors, then the product. */
#include "base/numbers.h"
#include "kernels/cpu/philox.h"

#include <string.h>

enum { RUN = 4 * PHILOX_WORDS };

/* A dropped element becomes 0, even if it is infinite or NaN. */
static void drop_run(float *y, const float *x, const struct dropout *d, uint64_t first, int64_t n)
{
	float keep[RUN];
	dropout_keep(keep, d, first, n);
	#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = keep[i] > 0 ? x[i] * keep[i] : 0;
}

static void dropout(struct backend *k, void *yv, const void *xv, const int64_t *rows, int64_t n,
		    int64_t c, const struct dropout *d)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		if (d->p <= 0) {
			if (y != x)
				memcpy(y + i * c, x + i * c, (size_t)c * sizeof *y);
			continue;
		}
		uint64_t first = (uint64_t)rows[i] * (uint64_t)c;
		for (int64_t j = 0; j < c; j += RUN)
			drop_run(y + i * c + j, x + i * c + j, d, first + (uint64_t)j,
				 min_int64(RUN, c - j));
	}
}

void CPU(dropout)(struct ops *o)
{
	o->dropout = dropout;
}
