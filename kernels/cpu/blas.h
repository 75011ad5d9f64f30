/*
 * blas — the machine's BLAS, loaded when the backend is opened.
 *
 * It is loaded instead of linked for three reasons: its environment must be set before it loads,
 * since it creates its threads then; any installed BLAS will do; and programs that never multiply
 * start without it. It runs with one thread: the ops split a product into one piece per thread, so
 * that it never waits or spins. It chooses its own kernels, or OPENBLAS_CORETYPE does; cpu_blas_name
 * reports them.
 */
#ifndef MUSTER_KERNELS_CPU_BLAS_H
#define MUSTER_KERNELS_CPU_BLAS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Loads the library, once per process; later calls return the result of the first one. Threads may
 * call it at the same time. threads: how many will compute products at the same time. ERR_NOMEM:
 * `ulimit -v` leaves no room for OpenBLAS's buffers, BLAS_BUFFER bytes per thread. OpenBLAS allocates
 * them in its first products, and waits forever if it gets none. Under such a limit they are
 * therefore allocated here. */
int cpu_blas_open(int threads, struct err *e);

#define BLAS_BUFFER (128.0 * (1 << 20)) /* of OpenBLAS 0.3 on x86-64, which has the largest */
#define BLAS_LOAD   (64.0 * (1 << 20))  /* the library itself */

/* The library, such as "libopenblas.so.0 (SkylakeX)"; "" before cpu_blas_open. */
const char *cpu_blas_name(void);

enum { BLAS_ROW_MAJOR = 101, BLAS_PLAIN = 111, BLAS_TRANS = 112 };

/* cblas_sgemm of the library; only blas_gemm calls it. */
typedef void blas_sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha,
			   const float *a, int lda, const float *b, int ldb, float beta, float *c,
			   int ldc);
extern blas_sgemm_fn *cpu_blas_sgemm;

/* c[m,n] = alpha · op(a)[m,k] · op(b)[k,n] + beta · c; ld: elements from one row in memory to the
 * next. */
static inline void blas_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
			     const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
			     float *c, int64_t ldc)
{
	cpu_blas_sgemm(BLAS_ROW_MAJOR, ta ? BLAS_TRANS : BLAS_PLAIN, tb ? BLAS_TRANS : BLAS_PLAIN,
		       (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

#endif
