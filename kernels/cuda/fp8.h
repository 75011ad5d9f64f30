/* fp8 — fp8 products without tensor cores, for those that cuBLASLt does not support. The arguments
 * are those of the op fp8_product (kernels/ops_table.h). */
#ifndef MUSTER_KERNELS_CUDA_FP8_H
#define MUSTER_KERNELS_CUDA_FP8_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
#endif
	void
	fp8_fallback_product(struct backend *k, void *d, const struct fp8_tensor *left,
			     const struct fp8_tensor *right, const void *bias, bool single,
			     bool add, int64_t m, int64_t n, int64_t depth);

#endif
