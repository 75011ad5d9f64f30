/* fp8 — products of 8 bits without tensor cores, for what cuBLASLt has no way for. Arguments as
 * those of fp8_product in kernels/ops.h. */
#ifndef MUSTER_KERNELS_CUDA_FP8_H
#define MUSTER_KERNELS_CUDA_FP8_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
#endif
	void
	fp8_fallback_product(struct backend *k, void *d, const struct fp8_tensor *left,
			     const struct fp8_tensor *right, const void *bias, bool single,
			     int64_t m, int64_t n, int64_t depth);

#endif
