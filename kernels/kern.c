#include "kernels/kern.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct backend {
	const char *name;
	size_t element;
	int (*fill)(struct kern *k, const char *variant, struct err *e);
	const char *variant;
} backends[] = {
	{ "cpu", sizeof(float), cpu_fill, NULL },
	{ "plain", sizeof(float), plain_fill, NULL },
	/* for tests and measurements */
	{ "plain64", sizeof(double), plain64_fill, NULL },
	{ "cpu-v4", sizeof(float), cpu_fill, "v4" },
	{ "cpu-v3", sizeof(float), cpu_fill, "v3" },
	{ "cpu-v2", sizeof(float), cpu_fill, "v2" },
};

enum { BACKENDS = sizeof backends / sizeof backends[0], THREADS_MAX = 1024 };

/* The row of the first `len` bytes of a name. */
static const struct backend *backend_find(const char *name, size_t len)
{
	for (int i = 0; i < BACKENDS; i++)
		if (strlen(backends[i].name) == len && !memcmp(backends[i].name, name, len))
			return &backends[i];
	return NULL;
}

static int scratch_reserve(struct kern *k, struct err *e)
{
	k->scratch = mmap(NULL, (size_t)k->threads * KERN_SCRATCH, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (k->scratch == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "backend %s: cannot reserve %zu MiB of address space for scratch; "
				 "use fewer threads or raise ulimit -v", k->ops.name, (size_t)k->threads * (KERN_SCRATCH >> 20));
	return 0;
}

int kern_open(const char *backend, int threads, struct kern **out, struct err *e)
{
	size_t len = strcspn(backend, ":");
	const struct backend *b = backend_find(backend, len);
	if (!b)
		return err_set(e, ERR_USAGE, "backend '%s': there is none of that name; use cpu or plain, "
			       "with :bf16 or :fp16 behind it for storage of 2 bytes", backend);
	if (threads < 1 || threads > THREADS_MAX)
		return err_set(e, ERR_USAGE, "backend %s: %d threads; use 1 to %d", backend, threads, THREADS_MAX);
	struct kern *k = calloc(1, sizeof *k);
	if (!k)
		return err_set(e, ERR_NOMEM, "backend %s: no memory; free some", backend);
	k->threads = threads;
	k->element = b->element;
	k->ops.name = b->name;
	if (b->fill(k, b->variant, e) < 0 || scratch_reserve(k, e) < 0)
		goto free_kern;
	if (backend[len] && narrow_open(k, backend + len + 1, e) < 0)
		goto close_kern;
	*out = k;
	return 0;
close_kern:
	kern_close(k);
	return -1;
free_kern:
	free(k);
	return -1;
}

void kern_close(struct kern *k)
{
	if (!k)
		return;
	narrow_close(k);
	kern_free_all(k);
	munmap(k->scratch, (size_t)k->threads * KERN_SCRATCH);
	free(k);
}

const struct ops *kern_ops(const struct kern *k)
{
	return &k->ops;
}

int kern_threads(const struct kern *k)
{
	return k->threads;
}

size_t kern_width(const struct kern *k)
{
	return k->element;
}

enum { PATTERN = 1021 };

static void fill_pattern(struct kern *k, void *p, int64_t count)
{
	double x[PATTERN];
	float narrower[PATTERN];
	for (int i = 0; i < PATTERN; i++) {
		x[i] = (double)((uint64_t)i * 2654435761u % PATTERN) / PATTERN - 0.5;
		narrower[i] = (float)x[i];
	}
	for (int64_t at = 0; at < count; at += PATTERN) {
		int64_t n = count - at < PATTERN ? count - at : PATTERN;
		if (k->element == sizeof *x)
			memcpy((double *)p + at, x, (size_t)n * sizeof *x);
		else
			k->ops.narrow(k, (char *)p + (size_t)at * k->element, narrower, n, NULL, 0);
	}
}

/* The fastest product counts: what else runs on the machine only slows the others. */
static double gemm_best(struct kern *k, void *const m[3], int64_t n, double seconds)
{
	double end = clock_s() + seconds, best = 0;
	do {
		double start = clock_s();
		k->ops.linear_fwd(k, m[0], m[1], m[2], NULL, n, n, n);
		double rate = 2.0 * (double)n * (double)n * (double)n / (clock_s() - start);
		best = rate > best ? rate : best;
	} while (clock_s() < end);
	return best;
}

double kern_gemm_flops(struct kern *k, int64_t n, double seconds)
{
	void *m[3];
	double best = 0;
	int made = 0;
	while (made < 3 && (m[made] = kern_alloc(k, (size_t)(n * n) * k->element)))
		fill_pattern(k, m[made++], n * n);
	if (made == 3)
		best = gemm_best(k, m, n, seconds);
	while (made)
		kern_free(k, m[--made]);
	return best;
}
