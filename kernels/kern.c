#include "kernels/kern.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct backend {
	const char *name;
	size_t element;
	int (*fill)(struct ops *o, const char *variant, struct err *e);
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

static const struct backend *backend_find(const char *name)
{
	for (int i = 0; i < BACKENDS; i++)
		if (!strcmp(backends[i].name, name))
			return &backends[i];
	return NULL;
}

int kern_open(const char *backend, int threads, struct kern **out, struct err *e)
{
	const struct backend *b = backend_find(backend);
	if (!b)
		return err_set(e, ERR_USAGE, "backend '%s': there is none of that name; use cpu or plain", backend);
	if (threads < 1 || threads > THREADS_MAX)
		return err_set(e, ERR_USAGE, "backend %s: %d threads; use 1 to %d", backend, threads, THREADS_MAX);
	struct kern *k = calloc(1, sizeof *k);
	if (!k)
		return err_set(e, ERR_NOMEM, "backend %s: no memory; free some", backend);
	k->threads = threads;
	k->element = b->element;
	k->ops.name = b->name;
	if (b->fill(&k->ops, b->variant, e) < 0)
		goto free_kern;
	k->scratch = mmap(NULL, (size_t)threads * KERN_SCRATCH, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (k->scratch == MAP_FAILED) {
		err_errno(e, ERR_NOMEM, "backend %s: cannot reserve %zu MiB of address space for scratch; "
			  "use fewer threads or raise ulimit -v", backend, (size_t)threads * (KERN_SCRATCH >> 20));
		goto free_kern;
	}
	*out = k;
	return 0;
free_kern:
	free(k);
	return -1;
}

void kern_close(struct kern *k)
{
	if (!k)
		return;
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

static void fill_pattern(struct kern *k, void *p, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		double x = (double)((uint64_t)i * 2654435761u % 1021) / 1021 - 0.5;
		if (k->element == sizeof(float))
			((float *)p)[i] = (float)x;
		else
			((double *)p)[i] = x;
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
