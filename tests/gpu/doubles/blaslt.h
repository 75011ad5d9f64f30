/*
 * blaslt — a double of the parts of cuBLASLt that kernels/cuda uses: matrix products in column-major
 * order with batches, epilogues and fp8, queued on streams of the runtime's double.
 *
 * The heuristic refuses what the documentation does not list. cublasLtMatmul ends the process if types,
 * shapes or alignment differ from those for which the algorithm was chosen, or if memory is not the
 * device's.
 */
#ifndef MUSTER_TESTS_GPU_BLASLT_H
#define MUSTER_TESTS_GPU_BLASLT_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

/* The largest alignment that is distinguished, in bytes. */
enum { BLAS_ALIGN = 256 };

/* A handle. */
struct cublasLtContext {
	int device;
};

struct blas_layout {
	cudaDataType_t type;
	int32_t batch;
	int64_t rows, cols, ld, stride;
};

struct blas_desc {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	int32_t trans_a, trans_b, bias_type, aux_type; /* types; -1: that of D */
	uint32_t epilogue;
	void *bias, *aux;
	const void *scales[4]; /* of A, B, C, D; NULL: 1 */
	float *amax;
	int64_t bias_stride, aux_ld, aux_stride;
	int8_t fast; /* fast accumulation, which the double computes exactly */
};

struct blas_pref {
	uint64_t workspace;
	uint32_t align[4]; /* of A, B, C, D */
};

/* All that cublasLtMatmul computes later. */
struct blas_call {
	struct blas_desc desc;
	struct blas_layout a, b, c, d;
	const void *at_a, *at_b, *at_c;
	void *at_d, *workspace;
	size_t workspace_bytes;
	float alpha, beta;
	int algorithm;
};

/* The heuristic finds no algorithm, for tests of that case. */
extern bool double_blas_refuses;
enum { BLAS_ALGORITHMS = 12 };
/* What the heuristic finds, and how fast it is on the virtual clock. Each algorithm sums in an
 * order of its own. */
extern struct double_blas {
	int algorithms;                  /* 1 at first, at most BLAS_ALGORITHMS */
	double seconds[BLAS_ALGORITHMS]; /* of a product */
	double epilogue;                 /* seconds that an epilogue other than a bias adds */
	unsigned refused;                /* a bit for each that is not supported at launch */
	int asked, runs, checks;         /* calls of the heuristic, of products, of checks */
	int ran;                         /* the algorithm that ran last */
} double_blas;
/* Epilogues need another algorithm than the product alone. */
extern bool double_blas_apart;
/* How many products were queued with fast accumulation. */
extern int double_blas_fast;

/* A step of a stream. */
bool blas_run(void *arg);
size_t blas_width(cudaDataType_t type);
static inline bool blas_is_fp8(cudaDataType_t type)
{
	return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

#endif
