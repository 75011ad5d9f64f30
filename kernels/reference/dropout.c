/* Dropout (Srivastava et al., JMLR 2014). An element's index in the global tensor gives its random
 * number. */
#include "kernels/reference/reference.h"

double REFERENCE(keep)(const struct dropout *d, uint64_t element)
{
	uint32_t words[4];
	if (d->p <= 0)
		return 1;
	philox4(d->key, element / 4, words);
	return (double)words[element % 4] * 0x1p-32 < (double)d->p ? 0 : 1 / (1 - (double)d->p);
}

static void dropout(struct backend *k, void *yv, const void *xv, const int64_t *rows, int64_t n,
		    int64_t c, const struct dropout *d)
{
	(void)k;
	real *y = yv;
	const real *x = xv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < c; j++) {
			double keep =
				REFERENCE(keep)(d, (uint64_t)rows[i] * (uint64_t)c + (uint64_t)j);
			y[i * c + j] = keep > 0 ? (real)((double)x[i * c + j] * keep) : 0;
		}
}

void REFERENCE(dropout)(struct ops *o)
{
	o->dropout = dropout;
}
