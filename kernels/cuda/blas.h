/*
 * blas — matrix products by cuBLASLt, which is loaded when the backend is opened.
 *
 * A product is told in row-major terms; sums are fp32 (never TF32). How cuBLASLt makes it is asked
 * once for each shape, alignment and epilogue, and kept: so the same call gives the same bits, and
 * a step asks nothing. An epilogue that takes another algorithm than the product alone is refused:
 * on Hopper some are only had with Ampere's, which cost more than an op.
 */
#ifndef MUSTER_KERNELS_CUDA_BLAS_H
#define MUSTER_KERNELS_CUDA_BLAS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BLAS_WORKSPACE = 32 << 20 };

/* What is done to the product before it is stored. */
enum blas_after {
	BLAS_STORE,
	BLAS_BIAS,       /* + bias[n] of every row */
	BLAS_GELU,       /* pre[m,n] = the product, d = gelu(pre), by the tanh formula */
	BLAS_GELU_BIAS,  /* the same with + bias[n] in pre */
	BLAS_GELU_SLOPE, /* * gelu'(pre[m,n]) */
	BLAS_SUMS        /* bias[m] = the sums over k of left, fp32 */
};

/* What left and right are: of the storage type, or of 8 bits, which are multiplied with a scale
 * of the device's memory. */
enum blas_type { BLAS_STORED, BLAS_E4M3, BLAS_E5M2 };

/* d[m,n] = left[m,k] · right[k,n], or += when `add`. d has the storage type unless `single`. */
struct blas_product {
	void *d;
	const void *left, *right;
	int64_t m, n, k;
	bool left_flipped, right_flipped; /* stored as [k,m], as [n,k] */
	bool single;                      /* d is fp32 */
	bool add;
	enum blas_after after;
	void *bias, *pre;
	enum blas_type left_type, right_type;
	const float *left_scale, *right_scale;
};

/* Queues it; false: the library has no way for it, and nothing was queued. m, n, k > 0. */
bool blas_product(struct backend *k, const struct blas_product *p, const char *op);

/* Any product after BLAS_STORE or BLAS_BIAS by a kernel of ours, for what the library has no way
 * for (linear_fallback.cu). */
void fallback_product(struct backend *k, const struct blas_product *p, const char *op);

#ifdef __cplusplus
}
#endif

#endif
