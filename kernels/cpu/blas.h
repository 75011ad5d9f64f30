/*
 * blas — the machine's BLAS, loaded when the backend is opened.
 *
 * It is loaded and not linked so that it finds its environment set (it makes
 * its threads while it loads), that any flavour that is installed will do, and that
 * programs which never multiply start without it. It runs with one thread:
 * the ops cut a product into pieces, one a thread, so that it never waits or
 * spins on its own. Which of its kernels it uses is its own choice, or that of
 * OPENBLAS_CORETYPE; cpu_blas_name tells.
 */
#ifndef MUSTER_KERNELS_CPU_BLAS_H
#define MUSTER_KERNELS_CPU_BLAS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Once a process; later calls return the first one's result. Threads may call it together. For
 * products on `threads` threads at a time: ERR_NOMEM when `ulimit -v` leaves no room for OpenBLAS's
 * buffers, one of BLAS_BUFFER bytes for each thread. OpenBLAS takes them with its first products,
 * and waits for ever when it gets none; under such a limit they are therefore taken here. */
int cpu_blas_open(int threads, struct err *e);

#define BLAS_BUFFER (128.0 * (1 << 20)) /* of OpenBLAS 0.3 on x86-64, the largest */
#define BLAS_LOAD   (64.0 * (1 << 20))  /* the library itself */

/* Which library, such as "libopenblas.so.0 (SkylakeX)"; "" before cpu_blas_open. */
const char *cpu_blas_name(void);

enum { BLAS_ROW_MAJOR = 101, BLAS_PLAIN = 111, BLAS_TRANS = 112 };

/* cblas_sgemm of the library, for blas_gemm alone. */
typedef void blas_sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha,
			   const float *a, int lda, const float *b, int ldb, float beta, float *c,
			   int ldc);
extern blas_sgemm_fn *cpu_blas_sgemm;

/* c[m,n] = alpha · op(a)[m,k] · op(b)[k,n] + beta · c; ld is the distance of rows in memory. */
static inline void blas_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
			     const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
			     float *c, int64_t ldc)
{
	cpu_blas_sgemm(BLAS_ROW_MAJOR, ta ? BLAS_TRANS : BLAS_PLAIN, tb ? BLAS_TRANS : BLAS_PLAIN,
		       (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

#endif
