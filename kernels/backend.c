/* The table of backends, and opening one. */
#include "kernels/backend.h"

#include "base/choices.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct backend_row {
	const char *name;
	size_t element;
	int (*fill)(struct backend *k, const char *variant, struct err *e);
	const char *variant;
} backends[] = {
	{ "cpu", sizeof(float), cpu_fill, NULL },
	{ "reference", sizeof(float), reference_fill, NULL },
	{ "cuda", sizeof(float), NULL, NULL }, /* kernels/device.c opens it */
	/* for tests and measurements */
	{ "reference64", sizeof(double), reference64_fill, NULL },
	{ "cpu-v4", sizeof(float), cpu_fill, "v4" },
	{ "cpu-v3", sizeof(float), cpu_fill, "v3" },
	{ "cpu-v2", sizeof(float), cpu_fill, "v2" },
};

enum { BACKENDS = sizeof backends / sizeof backends[0], THREADS_MAX = 1024 };

/* The row of the first `len` bytes of a name, or NULL. */
static const struct backend_row *find_backend(const char *name, size_t len)
{
	for (int i = 0; i < BACKENDS; i++)
		if (strlen(backends[i].name) == len && !memcmp(backends[i].name, name, len))
			return &backends[i];
	return NULL;
}

static int reserve_scratch(struct backend *k, struct err *e)
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

static int open_host(struct backend *k, const struct backend_row *b, const char *storage,
		     struct err *e)
{
	if (b->fill(k, b->variant, e) || reserve_scratch(k, e))
		return -1;
	backend_fill_shared(&k->ops, true);
	return storage ? low_precision_open(k, storage, e) : 0;
}

static int open_cuda(struct backend *k, const char *storage, int device, struct err *e)
{
	if (storage && strcmp(storage, "bf16") && strcmp(storage, "fp16"))
		return err_set(e, ERR_USAGE,
			       "backend cuda:%s: cuda has no such storage type; use bf16 or fp16",
			       storage);
	k->choices = choices_open();
	if (!k->choices)
		return err_set(e, ERR_NOMEM, "backend cuda: no memory; close other programs");
	if (backend_cuda_open(k, storage, device, e))
		return -1;
	backend_fill_shared(&k->ops, false);
	return 0;
}

static int check_ops(const struct backend *k, struct err *e)
{
	const char *missing = backend_missing_op(&k->ops);
	if (missing)
		return err_set(e, ERR_INTERNAL,
			       "backend %s: it has no form of the op %s; add one "
			       "(kernels/ops_table.h says where)",
			       k->ops.name, missing);
	return 0;
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
	const struct backend_row *b = find_backend(backend_name, len);
	if (!b)
		return err_set(e, ERR_USAGE,
			       "backend '%s': no backend has this name; use cpu, cuda or "
			       "reference, with :bf16 or :fp16 after it for storage of 2 bytes",
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
	if ((b->fill ? open_host(k, b, storage, e) : open_cuda(k, storage, device, e)) ||
	    check_ops(k, e)) {
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
	choices_close(k->choices);
	if (k->scratch)
		munmap(k->scratch, (size_t)k->threads * BACKEND_SCRATCH);
	free(k);
}

struct choices *backend_choices(struct backend *k)
{
	return k->choices;
}

void backend_allow_any_order(struct backend *k, bool allowed)
{
	k->any_order = allowed;
}

const char *backend_notice(struct backend *k)
{
	for (int i = 0; i < BACKEND_NOTICES; i++)
		if (k->notices[i].text[0] && !k->notices[i].taken) {
			k->notices[i].taken = true;
			return k->notices[i].text;
		}
	return NULL;
}

const struct ops *backend_ops(const struct backend *k)
{
	return &k->ops;
}

int backend_threads(const struct backend *k)
{
	return k->threads;
}

bool backend_counts_groups(const struct backend *k, int64_t most, int groups, int64_t in,
			   int64_t out)
{
	const int64_t chunk = 16 / (int64_t)k->element; /* the device's kernel copies 16 bytes */
	return !k->device || (k->element == 2 && in % chunk == 0 && out % chunk == 0 &&
			      most < (int64_t)groups * BACKEND_GROUP_LARGE);
}

bool backend_fp8(const struct backend *k)
{
	return k->fp8;
}

size_t backend_width(const struct backend *k)
{
	return k->element;
}
