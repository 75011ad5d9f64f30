/*
 * blas — matrix products by cuBLASLt, which is loaded when the backend is opened.
 *
 * A product is described in row-major terms; sums are fp32 (never TF32). For each shape, alignment
 * and epilogue there is one algorithm, which is chosen at the first use and kept. Thus the same call
 * gives the same bits, and a training step asks nothing. The algorithm is
 *   - the one in the backend's choices (base/choices.h), if there is one;
 *   - otherwise cuBLASLt's first, by its own estimate. Then an epilogue is refused if it needs another
 *     algorithm than the product alone: on Hopper some epilogues exist only with Ampere's algorithms,
 *     which cost more than a separate op.
 *
 * If choices are wanted (choices_set_mode), the first use also measures up to 16 algorithms, with
 * the operands of that use, and an epilogue against the product with a separate op (blas_measure.c).
 * The choice is used at once, or after all ranks agreed on it.
 *
 * An algorithm that the library refuses at launch is replaced by its next one.
 *
 * A bias's gradient, the sums of the columns of dy, costs no pass over memory as the epilogue of the
 * weight's gradient (BLAS_SUMS), which reads dy anyway. Where that epilogue is refused or slower, a
 * separate sum_rows reads dy once more. For a block of GPT-2 124M with 32 x 1024 tokens in bf16
 * that is:
 *
 *     dy of             written by           MB    a sum there would save
 *     up                gelu_bwd            201    201 without the epilogue BLAS_GELU_SLOPE,
 *                                                  otherwise nothing
 *     qkv               attention, rope     151    nothing: cuDNN's kernels make no sums
 *     attention's out   layernorm_bwd        50    50, less 3 for the blocks' partial sums
 *     down              layernorm_bwd        50    50, less 3
 *
 * So sums in the producing kernels move no fewer bytes than the epilogue. Where it is not used they
 * would save 97 of 453 MB, or 298 if the slope of GELU is no epilogue either. They are not built; the
 * measured choice is between the epilogue and sum_rows. For products of 8 bits, which have no such
 * epilogue, the op that casts dy sums its columns (cast.cuh).
 */
#ifndef MUSTER_KERNELS_CUDA_BLAS_H
#define MUSTER_KERNELS_CUDA_BLAS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BLAS_WORKSPACE = 32 << 20 };

/* The epilogue: what happens to the product before it is stored. */
enum blas_after {
	BLAS_STORE,
	BLAS_BIAS,       /* + bias[n] of every row */
	BLAS_GELU,       /* pre[m,n] = the product, d = gelu(pre), by the tanh formula */
	BLAS_GELU_BIAS,  /* as BLAS_GELU, with pre[m,n] = the product + bias[n] */
	BLAS_GELU_SLOPE, /* * gelu'(given_pre[m,n]) */
	BLAS_SUMS        /* sums[m] = the sums over k of left, fp32 */
};

/* The type of left and right: the storage type, or 8 bits that are multiplied by a scale in device
 * memory. */
enum blas_type { BLAS_STORED, BLAS_E4M3, BLAS_E5M2 };

/* d[m,n] = left[m,k] · right[k,n], or += when `add`. d has the storage type unless `single`. */
struct blas_product {
	void *d;
	const void *left, *right;
	int64_t m, n, k;
	bool left_flipped, right_flipped; /* stored as [k,m], as [n,k] */
	/* elements from one row of left, as it is stored, to the next; 0: the rows have no gaps */
	int64_t left_row;
	bool single; /* d is fp32 */
	bool add;
	bool varies; /* the sizes differ from call to call, so nothing is measured */
	bool fast;   /* products of 8 bits: sums may keep fewer bits */
	enum blas_after after;
	const void *bias;
	float *sums;
	void *pre;
	const void *given_pre;
	enum blas_type left_type, right_type;
	const float *left_scale, *right_scale;
};

/* Queues the product. false: the library does not support it, and nothing was queued. m, n, k > 0. */
bool blas_product(struct backend *k, const struct blas_product *p, const char *op);

/* Queues any product with BLAS_STORE or BLAS_BIAS by our own kernel (linear_fallback.cu), for what
 * the library does not support. */
void fallback_product(struct backend *k, const struct blas_product *p, const char *op);

#ifdef __cplusplus
}
#endif

#endif
