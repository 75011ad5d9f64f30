#include "kernels/backend.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct backend_name {
	const char *name;
	size_t element;
	int (*fill)(struct backend *k, const char *variant, struct err *e);
	const char *variant;
} backends[] = {
	{ "cpu", sizeof(float), cpu_fill, NULL },
	{ "plain", sizeof(float), reference_fill, NULL },
	{ "cuda", sizeof(float), NULL, NULL }, /* kernels/device.c opens it */
	/* for tests and measurements */
	{ "plain64", sizeof(double), reference64_fill, NULL },
	{ "cpu-v4", sizeof(float), cpu_fill, "v4" },
	{ "cpu-v3", sizeof(float), cpu_fill, "v3" },
	{ "cpu-v2", sizeof(float), cpu_fill, "v2" },
};

enum { BACKENDS = sizeof backends / sizeof backends[0], THREADS_MAX = 1024 };

/* The row of the first `len` bytes of a name. */
static const struct backend_name *backend_find(const char *name, size_t len)
{
	for (int i = 0; i < BACKENDS; i++)
		if (strlen(backends[i].name) == len && !memcmp(backends[i].name, name, len))
			return &backends[i];
	return NULL;
}

static int scratch_reserve(struct backend *k, struct err *e)
{
	void *p = mmap(NULL, (size_t)k->threads * BACKEND_SCRATCH, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return err_errno(e, ERR_NOMEM,
				 "backend %s: cannot reserve %zu MiB of address space for scratch; "
				 "use fewer threads or raise ulimit -v",
				 k->ops.name, (size_t)k->threads * (BACKEND_SCRATCH >> 20));
	k->scratch = p;
	return 0;
}

/* By the processor's threads, with scratch for each. */
static int open_host(struct backend *k, const struct backend_name *b, const char *storage,
		     struct err *e)
{
	if (b->fill(k, b->variant, e) < 0 || scratch_reserve(k, e) < 0)
		return -1;
	return storage ? low_precision_open(k, storage, e) : 0;
}

static int open_cuda(struct backend *k, const char *storage, int device, struct err *e)
{
	if (storage && strcmp(storage, "bf16") && strcmp(storage, "fp16"))
		return err_set(
			e, ERR_USAGE,
			"backend cuda:%s: no such storage type of this backend; use bf16 or fp16",
			storage);
	return backend_cuda_open(k, storage, device, e);
}

int backend_open(const char *backend_name, int threads, struct backend **out, struct err *e)
{
	return backend_open_device(backend_name, threads, 0, out, e);
}

int backend_open_device(const char *backend_name, int threads, int device, struct backend **out,
			struct err *e)
{
	size_t len = strcspn(backend_name, ":");
	const char *storage = backend_name[len] ? backend_name + len + 1 : NULL;
	const struct backend_name *b = backend_find(backend_name, len);
	if (!b)
		return err_set(e, ERR_USAGE,
			       "backend '%s': there is none of that name; use cpu, cuda or plain, "
			       "with :bf16 or :fp16 behind it for storage of 2 bytes",
			       backend_name);
	if (threads < 1 || threads > THREADS_MAX)
		return err_set(e, ERR_USAGE, "backend %s: %d threads; use 1 to %d", backend_name,
			       threads, THREADS_MAX);
	struct backend *k = calloc(1, sizeof *k);
	if (!k)
		return err_set(e, ERR_NOMEM, "backend %s: no memory; free some", backend_name);
	k->threads = threads;
	k->element = b->element;
	k->ops.name = b->name;
	if ((b->fill ? open_host(k, b, storage, e) : open_cuda(k, storage, device, e)) < 0) {
		backend_close(k);
		return -1;
	}
	*out = k;
	return 0;
}

void backend_close(struct backend *k)
{
	if (!k)
		return;
	low_precision_close(k);
	backend_free_all(k);
	if (k->device)
		k->device->close(k);
	if (k->scratch)
		munmap(k->scratch, (size_t)k->threads * BACKEND_SCRATCH);
	free(k);
}

const struct ops *backend_ops(const struct backend *k)
{
	return &k->ops;
}

int backend_threads(const struct backend *k)
{
	return k->threads;
}

bool backend_fp8(const struct backend *k)
{
	return k->fp8;
}

size_t backend_width(const struct backend *k)
{
	return k->element;
}

enum { PATTERN = 1021 };

/* Numbers that repeat: the first ones are stored by the backend, the others are copies of those. */
static void fill_pattern(struct backend *k, void *p, int64_t count, float *numbers)
{
	int64_t made = count < PATTERN ? count : PATTERN;
	k->ops.narrow(k, p, numbers, made, NULL, 0);
	for (int64_t n; made < count; made += n) {
		n = count - made < made ? count - made : made;
		backend_copy(k, (char *)p + (size_t)made * k->element, p, (size_t)n * k->element);
	}
}

/* In the backend's memory: floats, or doubles where those are the storage. */
static float *pattern(struct backend *k)
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

/* Products that are measured together: on a device so many that waiting for them does not count. */
enum { GEMM_QUEUED = 8 };

/* The fastest product counts: what else runs on the machine only slows the others. The first one is
 * not measured on a device, where it looks for the way that suits the size. */
static double gemm_best(struct backend *k, void *const m[3], int64_t n, double seconds)
{
	int queued = backend_on_host(k) ? 1 : GEMM_QUEUED;
	double end = clock_s() + seconds, best = 0;
	if (!backend_on_host(k))
		k->ops.linear_fwd(k, m[0], m[1], m[2], NULL, n, n, n);
	do {
		if (backend_sync(k, NULL) < 0)
			return 0;
		double start = clock_s();
		for (int i = 0; i < queued; i++)
			k->ops.linear_fwd(k, m[0], m[1], m[2], NULL, n, n, n);
		if (backend_sync(k, NULL) < 0)
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
	float *numbers = pattern(k);
	double best = 0;
	int made = 0;
	while (numbers && made < 3 && (m[made] = backend_alloc(k, (size_t)(n * n) * k->element)))
		fill_pattern(k, m[made++], n * n, numbers);
	if (made == 3)
		best = gemm_best(k, m, n, seconds);
	while (made)
		backend_free(k, m[--made]);
	backend_free(k, numbers);
	return best;
}
