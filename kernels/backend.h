/*
 * backend — what an opened backend consists of. Only files of kernels/ include this.
 *
 * A backend is a row of the table in backend.c: a function that fills the table of ops (and loads
 * the libraries it needs), and the size of its storage type. backend_open then enters the shared
 * forms of ops that the backend left out, and refuses a backend that lacks an op.
 *
 * Scratch is address space that backend_open reserves, BACKEND_SCRATCH bytes per thread. Only the
 * pages that are used take memory. Thus an op never allocates and never fails. For storage of 2
 * bytes, low_precision_open (kernels/low_precision/) replaces the table of an fp32 backend.
 *
 * To add a backend: write its fill function, declare it below, and add its row in backend.c.
 * tests/conform/test_ops.c and tests/unit/kernels/test_backend.c name the backends that they test.
 */
#ifndef MUSTER_KERNELS_BACKEND_H
#define MUSTER_KERNELS_BACKEND_H

#include "kernels/ops.h"

/* Bytes of scratch per thread: enough for the rows of any sensible shape (2 M floats, twice). */
#define BACKEND_SCRATCH ((size_t)16 << 20)

struct block;         /* one backend_alloc */
struct low_precision; /* storage of 2 bytes over an fp32 backend */

/*
 * What a device's backend does in place of the host's memory functions; kernels/ops.h describes
 * each function. Calls are queued in the order of the ops. `get`, `sync` and `graph_end` report
 * what went wrong.
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
	int (*side_await)(struct backend *k, uint64_t ticket, struct err *e);
	void (*tally)(struct backend *k, struct tally *t, const void *x, int64_t count,
		      enum number_format format, uint64_t first);
	bool (*graph_begin)(struct backend *k);
	int (*graph_end)(struct backend *k, struct backend_graph **out, struct err *e);
	void (*graph_replay)(struct backend *k, struct backend_graph *t);
	void (*graph_free)(struct backend *k, struct backend_graph *t);
	void (*close)(struct backend *k); /* after all memory was freed */
};

/* The notices of a device's backend (backend_notice): the first text of each kind is kept. */
enum backend_notice_kind { NOTICE_ATTENTION, NOTICE_PRODUCT, BACKEND_NOTICES };
struct backend_notice {
	char text[600];
	bool taken;
};

struct backend {
	struct ops ops;
	const char *isa; /* the instruction set, such as "v3"; "base": any processor's */
	int threads;
	size_t element; /* bytes of the storage type */
	bool fp8;       /* fp8 products are fast */
	bool any_order; /* backend_allow_any_order */
	char *scratch;  /* threads × BACKEND_SCRATCH bytes */
	struct block *blocks;
	size_t bytes, peak;                  /* allocated now, and at most */
	struct low_precision *low_precision; /* NULL: the storage type is the backend's own */
	const struct backend_device *device; /* NULL: the host */
	struct choices *choices;             /* NULL: the host */
	struct backend_notice notices[BACKEND_NOTICES];
	void *state; /* of the device's backend */
};

/* The scratch of thread t. Scratch of thread t + 1 follows it. */
static inline void *backend_scratch(struct backend *k, int t)
{
	return k->scratch + (size_t)t * BACKEND_SCRATCH;
}

/* Frees all that backend_alloc gave and backend_free did not take back. */
void backend_free_all(struct backend *k);

/* Each fills k's table of ops and sets k->isa, or fails where the backend cannot work. `variant`
 * comes from the backend's row: the instruction set of cpu, or NULL for the best that this
 * processor has. */
int reference_fill(struct backend *k, const char *variant, struct err *e);
int reference64_fill(struct backend *k, const char *variant, struct err *e);
int cpu_fill(struct backend *k, const char *variant, struct err *e);

/* The shared forms of ops: backend_host_<op> in fp8.c, route_rows.c and composed.c,
 * backend_composed_<op> in composed.c. */
#define DECLARE_OWN(op, parameters)
#define DECLARE_HOST(op, parameters)       void backend_host_##op parameters;
#define DECLARE_COMPOSED(op, parameters)   void backend_composed_##op parameters;
#define OP(op, operands, form, parameters) DECLARE_##form(op, parameters)
#include "kernels/ops_table.h"

/* update_store.c: sets the stored form of an update, if it has one, in the host's memory. */
void backend_update_store(struct backend *k, const struct update *u);

/* Enters the shared form of each op that `o` lacks; those of form HOST only with `host`. */
void backend_fill_shared(struct ops *o, bool host);
/* Enters the ops with operands FP32 of an fp32 backend's table. */
void backend_fill_fp32(struct ops *o, const struct ops *fp32);

/* Opens cuda from libmuster-cuda.so, which exports a cuda_open_fn under the name muster_cuda_open.
 * It sets k's table of ops, element, device, state and isa, and the machine of k->choices. size is
 * that of struct backend, which the program and the library must agree on. storage: NULL (fp32),
 * "bf16" or "fp16". */
typedef int cuda_open_fn(struct backend *k, size_t size, const char *storage, int device,
			 struct err *e);
int backend_cuda_open(struct backend *k, const char *storage, int device, struct err *e);

/* Makes an opened fp32 backend store in `storage`, "bf16" or "fp16". */
int low_precision_open(struct backend *k, const char *storage, struct err *e);
void low_precision_close(struct backend *k);

#endif
