/*
 * tensor — a warp's operations on matrices, for emulated_meet. Each needs all 32 lanes. PTX ISA 8.5,
 * "Warp-level matrix load instruction: ldmatrix" and "Matrix Fragments for mma.m16n8k16".
 */
#ifndef MUSTER_TESTS_GPU_TENSOR_H
#define MUSTER_TESTS_GPU_TENSOR_H

#include "tests/gpu/emulator/emulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A lane's argument to ldmatrix: its row, 8 elements of 2 bytes aligned to 16, and its registers. */
struct emulated_matrix {
	const uint16_t *row;
	uint32_t *r;
};

void emulated_ldmatrix_x4(void *const lanes[EMULATED_WARP]);
void emulated_ldmatrix_x4_trans(void *const lanes[EMULATED_WARP]);

/* A lane's fragments: d[4] += a[4] · b[2]. Sums over k are in fp32, in rising order. */
struct emulated_product {
	float *d;
	const uint32_t *a, *b;
};

void emulated_mma_bf16(void *const lanes[EMULATED_WARP]);
void emulated_mma_fp16(void *const lanes[EMULATED_WARP]);

#ifdef __cplusplus
}
#endif

#endif
