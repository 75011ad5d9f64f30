/*
 * backend — what an opened backend consists of. Only files of kernels/ include this.
 *
 * A backend is a row of the list in backend.c: a function that fills the table of
 * ops (and loads what it needs), and the size of its storage type. Scratch is
 * address space reserved at backend_open, one stretch a thread, of which only the
 * touched pages cost memory: an op never allocates and never fails. A storage
 * type of 2 bytes is put over a backend by low_precision_open (kernels/low_precision/).
 */
#ifndef MUSTER_KERNELS_BACKEND_H
#define MUSTER_KERNELS_BACKEND_H

#include "kernels/ops.h"

/* Bytes of scratch a thread: holds the rows of any sensible shape (2 M floats, twice). */
#define BACKEND_SCRATCH ((size_t)16 << 20)

struct block;  /* one backend_alloc */
struct narrow; /* a storage type of 2 bytes over the backend */

/*
 * What a backend on a device does in place of the host's own memory. Calls are queued in the order
 * of the ops, and what goes wrong shows up in `get`, `sync` and `recorded`. ops.h says what each
 * means.
 */
struct backend_device {
	void *(*alloc)(struct backend *k, size_t bytes); /* zeroed; NULL: no memory */
	void (*free)(struct backend *k, void *p);
	void (*zero)(struct backend *k, void *p, size_t bytes);
	void (*put)(struct backend *k, void *to, const void *from, size_t bytes);
	int (*get)(struct backend *k, void *to, const void *from, size_t bytes, struct err *e);
	void (*copy)(struct backend *k, void *to, const void *from, size_t bytes);
	int (*sync)(struct backend *k, struct err *e);
	void *(*stream)(struct backend *k);
	void *(*host_alloc)(struct backend *k, size_t bytes);
	void (*host_free)(struct backend *k, void *p);
	uint64_t (*side_copy)(struct backend *k, void *to, const void *from, size_t bytes);
	void (*side_wait)(struct backend *k, uint64_t ticket);
	bool (*record)(struct backend *k);
	int (*recorded)(struct backend *k, struct backend_tape **out, struct err *e);
	void (*replay)(struct backend *k, struct backend_tape *t);
	void (*tape_free)(struct backend *k, struct backend_tape *t);
	void (*close)(struct backend *k); /* after all memory was freed */
};

struct backend {
	struct ops ops;
	/* the instruction set it uses, such as "v3"; "base": any processor's */
	const char *isa;
	int threads;
	size_t element; /* bytes of the storage type */
	bool fp8;       /* products of 8 bits are fast */
	char *scratch;  /* threads stretches of BACKEND_SCRATCH bytes */
	struct block *blocks;
	size_t bytes, peak;                  /* backend_alloc'ed now, and at most */
	struct narrow *narrow;               /* NULL: the backend's own storage type */
	const struct backend_device *device; /* NULL: the host */
	void *state;                         /* of the device's backend */
};

/* The scratch of thread t; neighbours lie one after the other. */
static inline void *backend_scratch(struct backend *k, int t)
{
	return k->scratch + (size_t)t * BACKEND_SCRATCH;
}

/* What backend_alloc gave and backend_free did not take back. */
void backend_free_all(struct backend *k);

/* The backends: each fills k's table of ops and says which instruction set that is, or why it
 * cannot work here. `variant` is the word of the backend's row: the instruction set of cpu, NULL
 * for the best that this processor has. */
int reference_fill(struct backend *k, const char *variant, struct err *e);
int reference64_fill(struct backend *k, const char *variant, struct err *e);
int cpu_fill(struct backend *k, const char *variant, struct err *e);

/* Ops that host backends have in common: those made of others, the places of experts' rows, and
 * products of 8 bits. */
void backend_composed(struct ops *o);
void backend_places(struct ops *o);
void backend_product8(struct ops *o);

/* Opens "cuda" out of libmuster-cuda.so, which exports cuda_open_fn under the name
 * muster_kern_cuda. storage: NULL (fp32), "bf16" or "fp16". It sets k's table of ops, element,
 * device, state and isa. size: of struct backend, which both must know alike. */
typedef int cuda_open_fn(struct backend *k, size_t size, const char *storage, int device,
			 struct err *e);
int backend_cuda_open(struct backend *k, const char *storage, int device, struct err *e);

/* Makes an opened fp32 backend store in `storage`, "bf16" or "fp16". */
int low_precision_open(struct backend *k, const char *storage, struct err *e);
void low_precision_close(struct backend *k);

#endif
