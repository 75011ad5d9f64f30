/* The heuristic of cuBLASLt's double, and queueing products. */
#include "tests/gpu/doubles/blaslt.h"

#include "tests/gpu/doubles/runtime.h"

#include <stdlib.h>
#include <string.h>

/* The problem for which an algorithm was chosen. */
struct blas_algo {
	uint64_t magic, problem;
	uint64_t workspace;
	uint32_t align[4];
	int32_t id, number;
};
_Static_assert(sizeof(struct blas_algo) <= sizeof(cublasLtMatmulAlgo_t),
	       "an algorithm is copied by its users");

enum { MAGIC = 0x6c74626c, WORKSPACE = 64 << 10 };

/* --- What is supported --- */

static bool product_types(const struct blas_desc *d, cudaDataType_t a, cudaDataType_t b,
			  cudaDataType_t c, cudaDataType_t out)
{
	bool two_bytes = out == CUDA_R_16BF || out == CUDA_R_16F;
	if (d->scale != CUDA_R_32F ||
	    (d->compute != CUBLAS_COMPUTE_32F && d->compute != CUBLAS_COMPUTE_32F_PEDANTIC))
		return false;
	if (!blas_is_fp8(a))
		return a == b && c == out &&
		       (out == a || (out == CUDA_R_32F && (a == CUDA_R_16BF || a == CUDA_R_16F)));
	if (!blas_is_fp8(b) || (a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2) ||
	    double_capability() < 89)
		return false;
	return blas_is_fp8(out) ? c == CUDA_R_16BF || c == CUDA_R_16F
				: c == out && (two_bytes || out == CUDA_R_32F);
}

static bool known_epilogue(uint32_t e)
{
	return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS ||
	       e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
	       e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
	       e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD ||
	       e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB;
}

/* Whether the shapes match; false is the caller's error. */
static bool fits(const struct blas_desc *d, const struct blas_layout *a,
		 const struct blas_layout *b, const struct blas_layout *c,
		 const struct blas_layout *out)
{
	int64_t m = d->trans_a ? a->cols : a->rows, k = d->trans_a ? a->rows : a->cols;
	int64_t n = d->trans_b ? b->rows : b->cols, other = d->trans_b ? b->cols : b->rows;
	const struct blas_layout *all[] = { a, b, c, out };
	for (int i = 0; i < 4; i++)
		if (all[i]->rows < 1 || all[i]->cols < 1 || all[i]->ld < all[i]->rows ||
		    all[i]->batch != out->batch)
			return false;
	return k == other && c->rows == m && c->cols == n && out->rows == m && out->cols == n;
}

/* Whether the tensor cores support an fp8 product: A transposed, B not, everything in units of 16
 * bytes. */
static bool fits_fp8(const struct blas_desc *d, const struct blas_layout *a,
		     const struct blas_layout *b, const struct blas_layout *out)
{
	return !blas_is_fp8(a->type) ||
	       (d->trans_a && !d->trans_b && a->ld % 16 == 0 && b->ld % 16 == 0 &&
		a->rows % 16 == 0 && (size_t)out->ld * blas_width(out->type) % 16 == 0 &&
		out->rows % 16 == 0);
}

/* As on an H200 with cuBLASLt 13.1: algorithms are found for any scales, and those at other addresses
 * are refused at launch. */
static bool scales_fit_fp8(const struct blas_desc *d)
{
	return (uintptr_t)d->scales[0] % 16 == 0 && (uintptr_t)d->scales[1] % 16 == 0;
}

static bool fits_epilogue(const struct blas_desc *d, const struct blas_layout *out, bool fp8)
{
	cudaDataType_t bias = d->bias_type < 0 ? out->type : (cudaDataType_t)d->bias_type;
	if (!known_epilogue(d->epilogue))
		return false;
	if ((d->epilogue & 128) &&
	    (d->aux_ld % 8 || d->aux_ld < out->rows || (uintptr_t)d->aux % 16))
		return false;
	return bias == out->type || fp8;
}

/* All that an algorithm depends on. */
static uint64_t problem_of(const struct blas_desc *d, const struct blas_layout *const l[4])
{
	int64_t words[32] = { d->compute,   d->trans_a,  d->trans_b, d->epilogue,
			      d->bias_type, d->aux_type, d->aux_ld,  d->fast },
		h = 17;
	for (int i = 0; i < 4; i++) {
		int64_t more[] = { l[i]->type, l[i]->batch, l[i]->rows,
				   l[i]->cols, l[i]->ld,    l[i]->stride };
		memcpy(&words[8 + 6 * i], more, sizeof more);
	}
	for (int i = 0; i < 32; i++)
		h = (int64_t)(((uint64_t)h ^ (uint64_t)words[i]) * 0x100000001b3u);
	return (uint64_t)h;
}

static uint32_t alignment_of(const void *at)
{
	uint32_t a = BLAS_ALIGN;
	while ((uintptr_t)at % a)
		a /= 2;
	return a;
}

bool double_blas_refuses, double_blas_apart;
int double_blas_fast;
struct double_blas double_blas = { .algorithms = 1 };

static void fill_result(cublasLtMatmulHeuristicResult_t *result, const struct blas_algo *algo)
{
	memset(result, 0, sizeof *result);
	memcpy(&result->algo, algo, sizeof *algo);
	result->workspaceSize = algo->workspace;
	result->state = CUBLAS_STATUS_SUCCESS;
	result->wavesCount = 1;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
					      cublasLtMatmulPreference_t pref, int asked,
					      cublasLtMatmulHeuristicResult_t results[],
					      int *returned)
{
	const struct blas_desc *d = (const struct blas_desc *)(const void *)desc;
	const struct blas_layout *const l[] = { (void *)a, (void *)b, (void *)c, (void *)out };
	const struct blas_pref *p = (const struct blas_pref *)(const void *)pref;
	*returned = 0;
	double_blas.asked++;
	if (!handle || asked < 1 || !fits(d, l[0], l[1], l[2], l[3]))
		return CUBLAS_STATUS_INVALID_VALUE;
	bool fp8 = blas_is_fp8(l[0]->type);
	bool aligned = true;
	for (int i = 0; i < 4; i++)
		aligned &= p->align[i] >= (fp8 ? 16 : blas_width(l[i]->type));
	if (double_blas_refuses ||
	    !product_types(d, l[0]->type, l[1]->type, l[2]->type, l[3]->type) ||
	    !fits_fp8(d, l[0], l[1], l[3]) || !fits_epilogue(d, l[3], fp8) || !aligned)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	struct blas_algo algo = { .magic = MAGIC,
				  .problem = problem_of(d, l),
				  .workspace = p->workspace < WORKSPACE ? p->workspace
									: WORKSPACE };
	memcpy(algo.align, p->align, sizeof algo.align);
	algo.id = double_blas_apart && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT ? 21 : 66;
	for (; *returned < asked && *returned < double_blas.algorithms; ++*returned) {
		algo.number = *returned;
		fill_result(&results[*returned], &algo);
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
				       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
				       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
				       const cublasLtMatmulAlgo_t *algo,
				       cublasLtMatmulHeuristicResult_t *result)
{
	const struct blas_layout *const l[] = { (void *)a, (void *)b, (void *)c, (void *)out };
	struct blas_algo one;
	memcpy(&one, algo, sizeof one);
	double_blas.checks++;
	if (!handle || one.magic != MAGIC || one.number < 0 ||
	    one.number >= double_blas.algorithms ||
	    one.problem != problem_of((const struct blas_desc *)(const void *)desc, l))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	fill_result(result, &one);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
						    cublasLtMatmulAlgoConfigAttributes_t attr,
						    void *to, size_t bytes, size_t *written)
{
	struct blas_algo a;
	memcpy(&a, algo, sizeof a);
	if (a.magic != MAGIC)
		double_misuse(
			"cublasLtMatmulAlgoConfigGetAttribute: no algorithm of the heuristic's");
	if (attr != CUBLASLT_ALGO_CONFIG_ID || bytes != sizeof a.id)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(to, &a.id, sizeof a.id);
	*written = sizeof a.id;
	return CUBLAS_STATUS_SUCCESS;
}

/* --- The product -------------------------------------------------------------------------- */

static void check_matrix(const char *who, const void *at, const struct blas_layout *l,
			 uint32_t align)
{
	size_t last = (size_t)((l->batch - 1) * l->stride + (l->cols - 1) * l->ld + l->rows);
	if (alignment_of(at) < align)
		double_misuse("cublasLtMatmul: %s at %p, where its algorithm was asked for with an "
			      "alignment of %u bytes",
			      who, at, align);
	double_check_memory(who, at, last * blas_width(l->type));
}

static void check_extras(const struct blas_desc *d, const struct blas_layout *out)
{
	int64_t length = d->epilogue == CUBLASLT_EPILOGUE_BGRADB ? out->cols : out->rows;
	size_t bias = blas_width(d->bias_type < 0 ? out->type : (cudaDataType_t)d->bias_type);
	size_t aux = blas_width(d->aux_type < 0 ? out->type : (cudaDataType_t)d->aux_type);
	if (d->epilogue & (4 | 16 | 256 | 512))
		double_check_memory("cublasLtMatmul's bias", d->bias,
				    (size_t)((out->batch - 1) * d->bias_stride + length) * bias);
	if (d->epilogue & 128) {
		double_check_memory("cublasLtMatmul's epilogue's input or output", d->aux,
				    (size_t)((out->batch - 1) * d->aux_stride +
					     (out->cols - 1) * d->aux_ld + out->rows) *
					    aux);
		if ((uintptr_t)d->aux % 16)
			double_misuse("cublasLtMatmul: the epilogue's input or output at %p is not "
				      "aligned to 16 bytes",
				      d->aux);
	}
	for (int i = 0; i < 4; i++)
		if (d->scales[i])
			double_check_memory("cublasLtMatmul's scale", d->scales[i], sizeof(float));
	if (d->amax)
		double_check_memory("cublasLtMatmul's largest", d->amax, sizeof *d->amax);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
			      const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
			      cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
			      cublasLtMatrixLayout_t layout_c, void *out,
			      cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *chosen,
			      void *workspace, size_t bytes, cudaStream_t stream)
{
	const struct blas_desc *d = (const struct blas_desc *)(const void *)desc;
	const struct blas_layout *const l[] = { (void *)layout_a, (void *)layout_b,
						(void *)layout_c, (void *)layout_d };
	struct blas_algo algo;
	if (!chosen)
		double_misuse("cublasLtMatmul without an algorithm");
	memcpy(&algo, chosen, sizeof algo);
	if (handle->device != double_device())
		double_misuse("a handle of device %d is used on device %d", handle->device,
			      double_device());
	if (algo.magic != MAGIC || algo.problem != problem_of(d, l))
		double_misuse("cublasLtMatmul: the algorithm was asked for another product than "
			      "[%lld,%lld] · [%lld,%lld]",
			      (long long)l[0]->rows, (long long)l[0]->cols, (long long)l[1]->rows,
			      (long long)l[1]->cols);
	if (bytes < algo.workspace || (algo.workspace && (uintptr_t)workspace % BLAS_ALIGN))
		double_misuse("cublasLtMatmul: a workspace of %zu bytes at %p, its algorithm needs "
			      "%llu aligned to %d",
			      bytes, workspace, (unsigned long long)algo.workspace, BLAS_ALIGN);
	if (double_blas.refused >> algo.number & 1 ||
	    (blas_is_fp8(l[0]->type) && !scales_fit_fp8(d)))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	double_blas.runs++;
	double_blas.ran = algo.number;
	double_check_memory("cublasLtMatmul's workspace", workspace, algo.workspace);
	double_blas_fast += d->fast;
	struct blas_call call = { .desc = *d,
				  .a = *l[0],
				  .b = *l[1],
				  .c = *l[2],
				  .d = *l[3],
				  .at_a = a,
				  .at_b = b,
				  .at_c = c,
				  .at_d = out,
				  .workspace = workspace,
				  .workspace_bytes = algo.workspace,
				  .algorithm = algo.number };
	memcpy(&call.alpha, alpha, sizeof call.alpha);
	memcpy(&call.beta, beta, sizeof call.beta);
	check_matrix("cublasLtMatmul's A", a, l[0], algo.align[0]);
	check_matrix("cublasLtMatmul's B", b, l[1], algo.align[1]);
	if (call.beta != 0)
		check_matrix("cublasLtMatmul's C", c, l[2], algo.align[2]);
	check_matrix("cublasLtMatmul's D", out, l[3], algo.align[3]);
	check_extras(d, l[3]);
	double_note_launch(stream);
	return double_queue_copy(stream, blas_run, &call, sizeof call) == cudaSuccess
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_EXECUTION_FAILED;
}
