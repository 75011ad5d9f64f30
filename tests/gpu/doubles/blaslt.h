/*
 * blaslt — a double of cuBLASLt, as far as kernels/cuda uses it: matrix products in column-major
 * order with batches, epilogues and fp8, queued on streams of the runtime's double.
 *
 * The heuristic refuses what the documentation does not list; cublasLtMatmul ends the process when
 * it is called otherwise than its algorithm was asked for (types, shapes, alignment), or with
 * memory that is not the device's.
 */
#ifndef MUSTER_TESTS_GPU_BLASLT_H
#define MUSTER_TESTS_GPU_BLASLT_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

struct blas_layout {
	cudaDataType_t type;
	int32_t batch;
	int64_t rows, cols, ld, stride;
};

struct blas_desc {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	int32_t trans_a, trans_b, bias_type, aux_type; /* types: -1, that of D */
	uint32_t epilogue;
	void *bias, *aux;
	const void *scales[4]; /* of A, B, C, D; NULL: 1 */
	float *amax;
	int64_t bias_stride, aux_ld, aux_stride;
};

/* All that cublasLtMatmul carries out, later. */
struct blas_call {
	struct blas_desc desc;
	struct blas_layout a, b, c, d;
	const void *at_a, *at_b, *at_c;
	void *at_d, *workspace;
	size_t workspace_bytes;
	float alpha, beta;
};

/* The heuristic offers nothing, for tests of what is done then. */
extern bool double_blas_refuses;
/* Epilogues are had with another algorithm than the product alone. */
extern bool double_blas_apart;

/* A step of a stream. */
bool blas_run(void *arg);
size_t blas_width(cudaDataType_t type);
static inline bool blas_is_fp8(cudaDataType_t type)
{
	return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

#endif
