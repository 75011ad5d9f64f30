#include "kernels/cuda/blas_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- Keys --------------------------------------------------------------------------------- */

/* The largest power of 2 that divides the address. */
uint16_t blas_alignment(const void *p)
{
	uintptr_t a = (uintptr_t)p | CUDA_ALIGN;
	return (uint16_t)(a & -a);
}

/* The array that the library takes as the bias: the sums are written there. */
static const void *bias_of(const struct blas_product *p)
{
	return p->sums ? p->sums : p->bias;
}

const void *blas_pre(const struct blas_product *p)
{
	return p->pre ? p->pre : p->given_pre;
}

void blas_fill_key(const struct blas_product *p, struct blas_key *key)
{
	memset(key, 0, sizeof *key);
	key->m = p->m;
	key->n = p->n;
	key->k = p->k;
	key->left_row = p->left_row;
	key->left = blas_alignment(p->left);
	key->right = blas_alignment(p->right);
	key->d = blas_alignment(p->d);
	key->bias = blas_alignment(bias_of(p));
	key->pre = blas_alignment(blas_pre(p));
	key->left_flipped = p->left_flipped;
	key->right_flipped = p->right_flipped;
	key->left_type = (uint8_t)p->left_type;
	key->right_type = (uint8_t)p->right_type;
	key->single = p->single;
	key->fast = p->fast;
	key->after = (uint8_t)p->after;
}

void blas_write_key(const struct backend *k, const struct blas_key *key, char text[BLAS_KEY_TEXT])
{
	static const char *const types[] = { "fp32", "bf16", "fp16" };
	static const char *const operands[] = { "", "e4m3", "e5m2" };
	static const char *const afters[] = {
		[BLAS_STORE] = "store",         [BLAS_BIAS] = "bias",        [BLAS_GELU] = "gelu",
		[BLAS_GELU_BIAS] = "gelu+bias", [BLAS_GELU_SLOPE] = "dgelu", [BLAS_SUMS] = "sums",
	};
	snprintf(text, BLAS_KEY_TEXT,
		 "matmul %s%s%s%s %s%s%s m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " row=%" PRId64
		 " align=%u,%u,%u,%u,%u %s",
		 types[cuda_of(k)->storage], key->single ? ">fp32" : "", operands[key->left_type],
		 operands[key->right_type], key->left_flipped ? "T" : "N",
		 key->right_flipped ? "T" : "N", key->fast ? " fast" : "", key->m, key->n, key->k,
		 key->left_row, key->left, key->right, key->d, key->bias, key->pre,
		 afters[key->after]);
}

/* --- Plans -------------------------------------------------------------------------------- */

void blas_free_plan(const struct lt *lt, struct blas_plan *p)
{
	if (p->desc)
		lt->MatmulDescDestroy(p->desc);
	if (p->a)
		lt->MatrixLayoutDestroy(p->a);
	if (p->b)
		lt->MatrixLayoutDestroy(p->b);
	if (p->d)
		lt->MatrixLayoutDestroy(p->d);
	memset(p, 0, sizeof *p);
}

static cudaDataType storage_type(const struct backend *k)
{
	static const cudaDataType types[] = { CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F };
	return types[cuda_of(k)->storage];
}

static cudaDataType operand_type(const struct backend *k, enum blas_type type)
{
	return type == BLAS_STORED ? storage_type(k)
	       : type == BLAS_E4M3 ? CUDA_R_8F_E4M3
				   : CUDA_R_8F_E5M2;
}

static const uint32_t epilogues[] = {
	[BLAS_STORE] = CUBLASLT_EPILOGUE_DEFAULT,
	[BLAS_BIAS] = CUBLASLT_EPILOGUE_BIAS,
	[BLAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX,
	[BLAS_GELU_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
	[BLAS_GELU_SLOPE] = CUBLASLT_EPILOGUE_DGELU,
	[BLAS_SUMS] = CUBLASLT_EPILOGUE_BGRADB,
};

/* Sets an attribute of a description, unless *rc is already a failure. */
#define SET(rc, lt, desc, attribute, value) \
	do { \
		if (*(rc) == CUBLAS_STATUS_SUCCESS) \
			*(rc) = (lt)->MatmulDescSetAttribute( \
				desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value)); \
	} while (0)

cublasStatus_t blas_set_pointers(const struct lt *lt, const struct blas_plan *plan,
				 const struct blas_product *p)
{
	const void *bias = bias_of(p), *pre = blas_pre(p);
	cublasLtMatmulDesc_t desc = plan->desc;
	cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
	if (bias)
		SET(&rc, lt, desc, BIAS_POINTER, bias);
	if (pre)
		SET(&rc, lt, desc, EPILOGUE_AUX_POINTER, pre);
	if (p->right_scale)
		SET(&rc, lt, desc, A_SCALE_POINTER, p->right_scale);
	if (p->left_scale)
		SET(&rc, lt, desc, B_SCALE_POINTER, p->left_scale);
	return rc;
}

/* The library is column-major, where a row-major matrix is its transpose. So d[m,n] is a[n,k] ·
 * b[k,m] there, and right comes first. */
cublasStatus_t blas_describe(const struct lt *lt, struct backend *k, struct blas_plan *plan,
			     const struct blas_product *p)
{
	cublasOperation_t a = p->right_flipped ? CUBLAS_OP_T : CUBLAS_OP_N,
			  b = p->left_flipped ? CUBLAS_OP_T : CUBLAS_OP_N;
	cudaDataType left = operand_type(k, p->left_type), right = operand_type(k, p->right_type);
	cudaDataType d = p->single ? CUDA_R_32F : storage_type(k);
	const int8_t fast = 1;
	int64_t left_row = p->left_row ? p->left_row : p->left_flipped ? p->m : p->k;
	uint64_t rows = (uint64_t)p->m, cols = (uint64_t)p->n, depth = (uint64_t)p->k;
	cublasStatus_t rc = lt->MatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
	SET(&rc, lt, plan->desc, TRANSA, a);
	SET(&rc, lt, plan->desc, TRANSB, b);
	SET(&rc, lt, plan->desc, EPILOGUE, epilogues[p->after]);
	if (blas_pre(p))
		SET(&rc, lt, plan->desc, EPILOGUE_AUX_LD, p->n);
	if (p->fast)
		SET(&rc, lt, plan->desc, FAST_ACCUM, fast);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = blas_set_pointers(lt, plan, p);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = p->right_flipped ? lt->MatrixLayoutCreate(&plan->a, right, depth, cols, p->k)
				      : lt->MatrixLayoutCreate(&plan->a, right, cols, depth, p->n);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = p->left_flipped
			     ? lt->MatrixLayoutCreate(&plan->b, left, rows, depth, left_row)
			     : lt->MatrixLayoutCreate(&plan->b, left, depth, rows, left_row);
	return rc == CUBLAS_STATUS_SUCCESS ? lt->MatrixLayoutCreate(&plan->d, d, cols, rows, p->n)
					   : rc;
}

static cublasStatus_t set_preferences(const struct lt *lt, cublasLtMatmulPreference_t prefer,
				      const struct blas_key *key)
{
	/* The parts of a split sum are added in fp32, through the workspace. */
	const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const uint64_t workspace = BLAS_WORKSPACE;
	const uint32_t a = key->right, b = key->left, d = key->d;
	const struct {
		cublasLtMatmulPreferenceAttributes_t which;
		const void *value;
		size_t bytes;
	} rows[] = {
		{ CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace },
		{ CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d },
		{ CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d },
	};
	cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
	for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]) && rc == CUBLAS_STATUS_SUCCESS; i++)
		rc = lt->MatmulPreferenceSetAttribute(prefer, rows[i].which, rows[i].value,
						      rows[i].bytes);
	return rc;
}

/* Several statuses, or no result, mean that the library does not support the product. */
int blas_candidates(const struct lt *lt, cublasLtHandle_t handle, const struct blas_plan *plan,
		    cublasLtMatmulAlgo_t *algos, int most)
{
	cublasLtMatmulPreference_t p = NULL;
	cublasLtMatmulHeuristicResult_t results[BLAS_CANDIDATES];
	int found = 0, kept = 0;
	if (lt->MatmulPreferenceCreate(&p) != CUBLAS_STATUS_SUCCESS)
		return 0;
	if (set_preferences(lt, p, &plan->key) != CUBLAS_STATUS_SUCCESS ||
	    lt->MatmulAlgoGetHeuristic(handle, plan->desc, plan->a, plan->b, plan->d, plan->d, p,
				       most < BLAS_CANDIDATES ? most : BLAS_CANDIDATES, results,
				       &found) != CUBLAS_STATUS_SUCCESS)
		found = 0;
	for (int i = 0; i < found; i++)
		if (results[i].state == CUBLAS_STATUS_SUCCESS)
			algos[kept++] = results[i].algo;
	lt->MatmulPreferenceDestroy(p);
	return kept;
}

bool blas_supports(const struct lt *lt, cublasLtHandle_t handle, const struct blas_plan *plan,
		   const cublasLtMatmulAlgo_t *algo)
{
	cublasLtMatmulHeuristicResult_t result;
	return lt->MatmulAlgoCheck(handle, plan->desc, plan->a, plan->b, plan->d, plan->d, algo,
				   &result) == CUBLAS_STATUS_SUCCESS &&
	       result.workspaceSize <= BLAS_WORKSPACE;
}

void blas_set_algorithm(const struct lt *lt, struct blas_plan *plan,
			const cublasLtMatmulAlgo_t *algo)
{
	size_t written;
	plan->algo = *algo;
	if (lt->MatmulAlgoConfigGetAttribute(&plan->algo, CUBLASLT_ALGO_CONFIG_ID, &plan->algo_id,
					     sizeof plan->algo_id,
					     &written) != CUBLAS_STATUS_SUCCESS)
		plan->algo_id = -1;
}
