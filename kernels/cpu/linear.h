/* linear — what the files of matrix products share. */
#ifndef MUSTER_KERNELS_CPU_LINEAR_H
#define MUSTER_KERNELS_CPU_LINEAR_H

#include "kernels/cpu/cpu.h"

/* linear_one.c: y[out] = x[in] · w[out,in]ᵀ + bias[out]; bias may be NULL. */
void CPU(linear_one)(struct backend *k, float *y, const float *x, const float *w, const float *bias,
		     int64_t in, int64_t out);

#endif
