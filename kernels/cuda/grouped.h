/*
 * grouped — grouped products of linear layers by one kernel (grouped.cu).
 *
 * The rows of group i follow those of group i - 1; its weights begin at element i * stride.
 */
#ifndef MUSTER_KERNELS_CUDA_GROUPED_H
#define MUSTER_KERNELS_CUDA_GROUPED_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum grouped_form {
	GROUPED_FWD,   /* y[rows,out] = x[rows,in] · w[out,in]ᵀ: d = y, left = x, right = w */
	GROUPED_INPUT, /* dx[rows,in] = dy[rows,out] · w[out,in]: d = dx, left = dy, right = w */
	/* dw[out,in] = dy[rows,out]ᵀ · x[rows,in], or += when `add`, fp32: d = dw, left = dy,
	 * right = x */
	GROUPED_WEIGHT
};

struct grouped {
	enum grouped_form form;
	void *d;
	const void *left, *right;
	int64_t stride;
	const int64_t *rows; /* in device memory if `most`, their greatest sum, is not 0 */
	int64_t most;
	int groups;
	int64_t in, out;
	bool add;
};

/* Queues all groups. false: the kernel does not support this storage type, these sizes or these
 * addresses, and nothing was queued. */
bool grouped_kernel_product(struct backend *k, const struct grouped *g, const char *op);

/* Queues any groups whose rows are counted in device memory, without tensor cores
 * (linear_fallback.cu). */
void fallback_counted(struct backend *k, const struct grouped *g, const char *op);

#ifdef __cplusplus
}
#endif

#endif
