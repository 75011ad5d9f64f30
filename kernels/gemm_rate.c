/* The rate of a backend's matrix products. */
#include "base/clock.h"
#include "base/numbers.h"
#include "kernels/backend.h"

enum { PATTERN = 1021 };

/* Fills p with numbers that repeat: the backend stores the first PATTERN, and copies them. */
static void fill_pattern(struct backend *k, void *p, int64_t count, float *numbers)
{
	int64_t done = min_int64(count, PATTERN);
	k->ops.fp32_to_storage(k, p, numbers, done, NULL, 0);
	for (int64_t n; done < count; done += n) {
		n = min_int64(count - done, done);
		backend_copy(k, (char *)p + (size_t)done * k->element, p, (size_t)n * k->element);
	}
}

/* PATTERN numbers in the backend's memory: floats, or doubles for reference64. */
static float *new_pattern(struct backend *k)
{
	double x[PATTERN];
	float single[PATTERN];
	for (int i = 0; i < PATTERN; i++) {
		x[i] = (double)((uint64_t)i * 2654435761u % PATTERN) / PATTERN - 0.5;
		single[i] = (float)x[i];
	}
	float *p = backend_alloc(k, sizeof x);
	if (p && k->element == sizeof *x)
		backend_put(k, p, x, sizeof x);
	else if (p)
		backend_put(k, p, single, sizeof single);
	return p;
}

/* Products per measurement. On a device there are so many that the wait for them does not count. */
enum { GEMM_QUEUED = 8 };

/* The rate of the fastest product counts, since other work on the machine only slows the others. On
 * a device the first product is not measured: it searches for the algorithm that suits the size. */
static double measure_gemm(struct backend *k, void *const m[3], int64_t n, double seconds)
{
	int queued = backend_on_host(k) ? 1 : GEMM_QUEUED;
	double end = clock_s() + seconds, best = 0;
	if (!backend_on_host(k))
		k->ops.linear_fwd(k, m[0], m[1], m[2], NULL, n, n, n);
	do {
		if (backend_sync(k, NULL))
			return 0;
		double start = clock_s();
		for (int i = 0; i < queued; i++)
			k->ops.linear_fwd(k, m[0], m[1], m[2], NULL, n, n, n);
		if (backend_sync(k, NULL))
			return 0;
		double rate = 2.0 * (double)n * (double)n * (double)n * queued /
			      (clock_s() - start);
		best = rate > best ? rate : best;
	} while (clock_s() < end);
	return best;
}

double backend_gemm_flops(struct backend *k, int64_t n, double seconds)
{
	void *m[3];
	float *numbers = new_pattern(k);
	double best = 0;
	int made = 0;
	while (numbers && made < 3 && (m[made] = backend_alloc(k, (size_t)(n * n) * k->element)))
		fill_pattern(k, m[made++], n * n, numbers);
	if (made == 3)
		best = measure_gemm(k, m, n, seconds);
	while (made)
		backend_free(k, m[--made]);
	backend_free(k, numbers);
	return best;
}
