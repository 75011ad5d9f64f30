/*
 * cuda — the backend for NVIDIA GPUs, in libmuster-cuda.so: what its files share.
 *
 * Host code is C: the backend, memory, streams, graphs and matrix products. Kernels are .cu files
 * with one family of ops each. A family exports cuda_fill_<family>, which enters its ops into the
 * table. An op queues kernels on the backend's stream by launch() of launch.cuh and returns. It
 * does not allocate, wait or fail. What goes wrong becomes the backend's first error, which
 * backend_get and backend_sync return.
 *
 * To add an op, add its kernel to a family's .cu file, and its line to that family's fill function.
 * To add a family, add its .cu file (the build finds it) and its line in CUDA_FAMILIES.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_H
#define MUSTER_KERNELS_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backend.h"

/* clang-format off */
/* The families of ops. */
#define CUDA_FAMILIES(X) \
	X(linear) \
	X(fp8) \
	X(norm) \
	X(act) \
	X(sums) \
	X(rope) \
	X(attention) \
	X(embed) \
	X(dropout) \
	X(rows) \
	X(convert) \
	X(optim) \
	X(xent) \
	X(route)
/* clang-format on */

#define CUDA_DECLARE(family) void cuda_fill_##family(struct backend *k);
CUDA_FAMILIES(CUDA_DECLARE)

enum storage { STORE_FP32, STORE_BF16, STORE_FP16 };

enum {
	CUDA_ALIGN = 256, /* bytes; of every allocation and of the scratch */
	CUDA_SCRATCH = 64 << 20,
	/* bytes of dynamic shared memory that need no attribute: 48 KiB less the static ones */
	CUDA_SHARED_FREE = 32 << 10
};

/* A kernel that uses more shared memory than CUDA_SHARED_FREE, and how much it is allowed now. */
enum { CUDA_KERNELS_MAX = 256 };
struct cuda_allowed {
	const void *kernel;
	size_t shared;
};

struct cuda_pool;
struct cuda_ring;
struct cuda_side;
struct cuda_blas;
struct cuda_attention;

struct cuda_backend {
	enum storage storage;
	int device;
	int sms;             /* multiprocessors */
	int cc;              /* compute capability, such as 90 */
	char isa[8];         /* "sm_90" */
	size_t shared_most;  /* bytes of dynamic shared memory that a block can have */
	cudaStream_t stream; /* of the ops */
	cudaStream_t side;   /* of backend_side_copy */
	void *scratch;       /* CUDA_SCRATCH bytes, for the op that is queued last */

	cudaError_t first_error; /* of anything queued or called; cudaSuccess: none */
	const char *error_where; /* the op, or another action */
	char error_more[160];    /* details, or "" */
	const char *last_op;     /* the op that was queued last */

	bool recording; /* between backend_graph_begin and backend_graph_end */
	struct cuda_allowed allowed[CUDA_KERNELS_MAX];

	struct cuda_pool *pool;
	struct cuda_ring *ring;
	struct cuda_side *copies;
	struct cuda_blas *blas;
	struct cuda_attention *attention;
};

static inline struct cuda_backend *cuda_of(const struct backend *k)
{
	return (struct cuda_backend *)k->state;
}

/* Makes the backend's device current for this thread. Every call of the runtime needs it. */
static inline void cuda_choose(const struct backend *k)
{
	cudaSetDevice(cuda_of(k)->device);
}

/* Records an error, if it is the backend's first. where: the op's name, a string that stays valid.
 * more: details besides CUDA's text, or NULL. */
void cuda_fail(struct backend *k, cudaError_t rc, const char *where, const char *more);
static inline bool cuda_ok(struct backend *k, cudaError_t rc, const char *where)
{
	if (rc != cudaSuccess)
		cuda_fail(k, rc, where, NULL);
	return rc == cudaSuccess;
}

/* As cuda_fail, for a call that returns what went wrong on the device before: in anything that was
 * queued up to the last op. */
void cuda_fail_queued(struct backend *k, cudaError_t rc, const char *where);
/* Keeps a sentence for backend_notice, unless there is one of that kind. */
void cuda_notice(struct backend *k, enum backend_notice_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Returns -1 and the first error's text, or 0. */
int cuda_failed(const struct backend *k, struct err *e);

/* Queues a kernel that does nothing. */
void cuda_probe(struct backend *k);

/* The parts of an opened backend, one file each. close frees what open created, after the device
 * has finished what was queued. It may be called without open. */
int cuda_memory_open(struct backend *k, struct err *e);
void cuda_memory_close(struct backend *k);
int cuda_stream_open(struct backend *k, struct err *e);
void cuda_stream_close(struct backend *k);
int cuda_blas_open(struct backend *k, struct err *e);
void cuda_blas_close(struct backend *k);

/* Their entries in struct backend_device. */
void *cuda_memory_alloc(struct backend *k, size_t bytes);
void cuda_memory_free(struct backend *k, void *p);
void cuda_memory_zero(struct backend *k, void *p, size_t bytes);
void *cuda_host_alloc(struct backend *k, size_t bytes);
void cuda_host_free(struct backend *k, void *p);
void cuda_put(struct backend *k, void *to, const void *from, size_t bytes);
int cuda_get(struct backend *k, void *to, const void *from, size_t bytes, struct err *e);
void cuda_copy(struct backend *k, void *to, const void *from, size_t bytes);
int cuda_sync(struct backend *k, struct err *e);
uint64_t cuda_side_copy(struct backend *k, void *to, const void *from, size_t bytes);
void cuda_side_wait(struct backend *k, uint64_t ticket);
int cuda_side_await(struct backend *k, uint64_t ticket, struct err *e);
/* tally.cu */
void cuda_tally(struct backend *k, struct tally *t, const void *x, int64_t count,
		enum number_format format, uint64_t first);
bool cuda_graph_begin(struct backend *k);
int cuda_graph_end(struct backend *k, struct backend_graph **out, struct err *e);
void cuda_graph_replay(struct backend *k, struct backend_graph *t);
void cuda_graph_free(struct backend *k, struct backend_graph *t);

/* What is queued from now on begins after all side copies so far. */
void cuda_side_join(struct backend *k);

/* The backend's scratch, valid until the next op. NULL, and an error, for more than CUDA_SCRATCH
 * bytes. An op calls this once and splits the scratch into its arrays. */
void *cuda_scratch(struct backend *k, size_t bytes, const char *op);

/* Allows a kernel `shared` bytes of dynamic shared memory. false, and an error: the device has
 * less. */
bool cuda_allow_shared(struct backend *k, const void *kernel, size_t shared, const char *op);

/* The number of blocks for `work` units, `per_block` per block: at least 1 if there is work, and at
 * most 2^31 - 1. So kernels over many units step by the grid. */
static inline unsigned cuda_blocks(int64_t work, int64_t per_block)
{
	int64_t blocks = (work + per_block - 1) / per_block;
	return blocks > INT32_MAX ? (unsigned)INT32_MAX : (unsigned)blocks;
}

/* As cuda_blocks, with at most `each` blocks per multiprocessor: for kernels that step by the
 * grid. */
static inline unsigned cuda_blocks_most(const struct backend *k, int64_t work, int64_t per_block,
					int each)
{
	unsigned blocks = cuda_blocks(work, per_block), most = (unsigned)(cuda_of(k)->sms * each);
	return blocks < most ? blocks : most;
}

/* Whether 16-byte accesses are aligned, for rows of `row` elements of `width` bytes that begin at
 * p. */
static inline bool cuda_aligned(const void *p, int64_t row, size_t width)
{
	return (uintptr_t)p % 16 == 0 && (size_t)row * width % 16 == 0;
}

#ifdef __cplusplus
}
#endif

#endif
