/* cuda_backend — opens the CUDA backend in tests over the doubles, and checks numbers in its memory.
 * For files that are built with HAVE_CUDA. */
#ifndef MUSTER_TESTS_GPU_CUDA_BACKEND_H
#define MUSTER_TESTS_GPU_CUDA_BACKEND_H

#include "kernels/ops.h"

#include <stdlib.h>
#include <string.h>

static inline struct backend *open_backend(const char *name)
{
	struct backend *k;
	struct err e = ERR_INIT;
	if (backend_open_device(name, 1, 0, &k, &e) < 0)
		fail_msg("%s", e.text);
	return k;
}

static inline void check_all(struct backend *k, const float *p, float expected, int count)
{
	float *back = malloc((size_t)count * sizeof *back);
	assert_non_null(back);
	assert_int_equal(backend_get(k, back, p, (size_t)count * sizeof *back, NULL), 0);
	for (int i = 0; i < count; i++)
		assert_true(back[i] == expected);
	free(back);
}

/* Overwrites the source of the put at once, which must not matter. */
static inline void put_all(struct backend *k, float *p, float value, int count)
{
	float *host = malloc((size_t)count * sizeof *host);
	assert_non_null(host);
	for (int i = 0; i < count; i++)
		host[i] = value;
	backend_put(k, p, host, (size_t)count * sizeof *host);
	memset(host, 0xff, (size_t)count * sizeof *host);
	free(host);
}

#endif
