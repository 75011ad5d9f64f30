#include "kernels/cuda/blas.h"

#include "kernels/cuda/lt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All that a plan depends on. Keys are compared as bytes, so padding must be 0. */
struct key {
	int64_t m, n, k, left_row;
	uint16_t left, right, d, bias, pre; /* alignments */
	uint8_t left_flipped, right_flipped, left_type, right_type, single, add, after, fast;
};

/* A product as the library describes it, and the algorithm for it. */
struct plan {
	struct key key;
	bool used, possible;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	int32_t algo_id; /* -1: none */
};

/* A row of `pre` must have a multiple of PRE_ROW elements
 * (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), and `pre` must be aligned to PRE_ALIGN bytes. */
enum { PRE_ROW = 8, PRE_ALIGN = 16 };

enum { PLANS = 4096, PLANS_MAX = PLANS * 3 / 4 };

struct cuda_blas {
	const struct lt *lt;
	cublasLtHandle_t handle;
	void *workspace;
	int plans;
	struct plan table[PLANS];
};

/* --- Keys --------------------------------------------------------------------------------- */

/* The largest power of 2 that divides an address, at most CUDA_ALIGN. CUDA_ALIGN for NULL. */
static uint16_t alignment(const void *p)
{
	uintptr_t a = (uintptr_t)p | CUDA_ALIGN;
	return (uint16_t)(a & -a);
}

/* The array that the library takes as the bias: the sums are written there. */
static const void *bias_of(const struct blas_product *p)
{
	return p->sums ? p->sums : p->bias;
}

/* The array that the library takes as the auxiliary matrix. */
static const void *pre_of(const struct blas_product *p)
{
	return p->pre ? p->pre : p->given_pre;
}

static void fill_key(const struct blas_product *p, struct key *key)
{
	memset(key, 0, sizeof *key);
	key->m = p->m;
	key->n = p->n;
	key->k = p->k;
	key->left_row = p->left_row;
	key->left = alignment(p->left);
	key->right = alignment(p->right);
	key->d = alignment(p->d);
	key->bias = alignment(bias_of(p));
	key->pre = alignment(pre_of(p));
	key->left_flipped = p->left_flipped;
	key->right_flipped = p->right_flipped;
	key->left_type = (uint8_t)p->left_type;
	key->right_type = (uint8_t)p->right_type;
	key->single = p->single;
	key->add = p->add;
	key->after = (uint8_t)p->after;
	key->fast = p->fast;
}

/* FNV-1a, 64 bits. */
static size_t hash_key(const struct key *key)
{
	const unsigned char *bytes = (const unsigned char *)key;
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < sizeof *key; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return (size_t)(h ^ h >> 32) % PLANS;
}

/* --- Plans -------------------------------------------------------------------------------- */

static void free_plan(const struct lt *lt, struct plan *p)
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

/* Sets the epilogue's pointers, which differ from call to call. */
static void set_pointers(const struct lt *lt, cublasLtMatmulDesc_t desc,
			 const struct blas_product *p, cublasStatus_t *rc)
{
	const void *bias = bias_of(p), *pre = pre_of(p);
	if (bias)
		SET(rc, lt, desc, BIAS_POINTER, bias);
	if (pre)
		SET(rc, lt, desc, EPILOGUE_AUX_POINTER, pre);
	if (p->right_scale)
		SET(rc, lt, desc, A_SCALE_POINTER, p->right_scale);
	if (p->left_scale)
		SET(rc, lt, desc, B_SCALE_POINTER, p->left_scale);
}

/* The library is column-major, where a row-major matrix is its transpose. So d[m,n] is a[n,k] ·
 * b[k,m] there, and right comes first. */
static cublasStatus_t describe_plan(const struct lt *lt, struct backend *k, struct plan *plan,
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
	if (pre_of(p))
		SET(&rc, lt, plan->desc, EPILOGUE_AUX_LD, p->n);
	if (p->fast)
		SET(&rc, lt, plan->desc, FAST_ACCUM, fast);
	set_pointers(lt, plan->desc, p, &rc);
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
				      const struct key *key)
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

/* Takes the library's own choice. Several statuses, or no result, mean that it does not support the
 * product. */
static bool choose_algorithm(struct cuda_blas *blas, struct plan *plan)
{
	const struct lt *lt = blas->lt;
	cublasLtMatmulPreference_t p = NULL;
	cublasLtMatmulHeuristicResult_t best;
	int found = 0;
	bool chosen = lt->MatmulPreferenceCreate(&p) == CUBLAS_STATUS_SUCCESS &&
		      set_preferences(lt, p, &plan->key) == CUBLAS_STATUS_SUCCESS &&
		      lt->MatmulAlgoGetHeuristic(blas->handle, plan->desc, plan->a, plan->b,
						 plan->d, plan->d, p, 1, &best,
						 &found) == CUBLAS_STATUS_SUCCESS &&
		      found && best.state == CUBLAS_STATUS_SUCCESS;
	size_t written;
	if (chosen)
		plan->algo = best.algo;
	if (!chosen || lt->MatmulAlgoConfigGetAttribute(&plan->algo, CUBLASLT_ALGO_CONFIG_ID,
							&plan->algo_id, sizeof plan->algo_id,
							&written) != CUBLAS_STATUS_SUCCESS)
		plan->algo_id = -1;
	if (p)
		lt->MatmulPreferenceDestroy(p);
	return chosen;
}

static void clear_plans(struct cuda_blas *blas)
{
	for (int i = 0; i < PLANS; i++)
		free_plan(blas->lt, &blas->table[i]);
	blas->plans = 0;
}

/* The plan of that key, or its empty entry. */
static struct plan *find_plan(struct cuda_blas *blas, const struct key *key)
{
	size_t at = hash_key(key);
	while (blas->table[at].used && memcmp(&blas->table[at].key, key, sizeof *key))
		at = (at + 1) % PLANS;
	return &blas->table[at];
}

static struct plan *make_plan(struct backend *k, const struct blas_product *p,
			      const struct key *key)
{
	struct cuda_blas *blas = cuda_of(k)->blas;
	if (blas->plans == PLANS_MAX)
		clear_plans(blas);
	struct plan *plan = find_plan(blas, key);
	plan->key = *key;
	plan->used = true;
	blas->plans++;
	plan->possible = describe_plan(blas->lt, k, plan, p) == CUBLAS_STATUS_SUCCESS &&
			 choose_algorithm(blas, plan);
	return plan;
}

static struct plan *get_plan(struct backend *k, const struct blas_product *p)
{
	struct key key;
	fill_key(p, &key);
	struct plan *plan = find_plan(cuda_of(k)->blas, &key);
	if (plan->used)
		return plan;
	if (p->after == BLAS_STORE || p->after == BLAS_BIAS)
		return make_plan(k, p, &key);
	struct blas_product alone = *p;
	alone.after = BLAS_STORE;
	alone.bias = alone.given_pre = NULL;
	alone.sums = NULL;
	alone.pre = NULL;
	int32_t id = get_plan(k, &alone)->algo_id;
	plan = make_plan(k, p, &key);
	plan->possible &= plan->algo_id == id;
	return plan;
}

/* --- Products ----------------------------------------------------------------------------- */

/* The library's statuses have no counterpart among CUDA's, so its own text is kept too. */
static void blas_fail(struct backend *k, cublasStatus_t rc, const char *op)
{
	struct cuda_backend *c = cuda_of(k);
	cudaError_t cuda = cudaGetLastError();
	char more[96];
	snprintf(more, sizeof more, "cuBLASLt: %s", c->blas->lt->GetStatusString(rc));
	cuda_fail(k,
		  cuda != cudaSuccess                ? cuda
		  : rc == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation
						     : cudaErrorUnknown,
		  op, more);
}

bool blas_product(struct backend *k, const struct blas_product *p, const char *op)
{
	const float one = 1, zero = 0, *beta = p->add ? &one : &zero;
	struct cuda_backend *c = cuda_of(k);
	struct cuda_blas *blas = c->blas;
	if (pre_of(p) && (p->n % PRE_ROW || alignment(pre_of(p)) < PRE_ALIGN))
		return false;
	cuda_choose(k);
	struct plan *plan = get_plan(k, p);
	if (!plan->possible)
		return false;
	cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
	set_pointers(blas->lt, plan->desc, p, &rc);
	c->last_op = op;
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = blas->lt->Matmul(blas->handle, plan->desc, &one, p->right, plan->a, p->left,
				      plan->b, beta, p->d, plan->d, p->d, plan->d, &plan->algo,
				      blas->workspace, BLAS_WORKSPACE, c->stream);
	if (rc != CUBLAS_STATUS_SUCCESS)
		blas_fail(k, rc, op);
	return true;
}

/* --- Opening ------------------------------------------------------------------------------ */

int cuda_blas_open(struct backend *k, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	c->blas = calloc(1, sizeof *c->blas);
	if (!c->blas)
		return err_set(
			e, ERR_NOMEM,
			"backend cuda: no memory for a table of products; close other programs");
	if (lt_load(&c->blas->lt, e))
		return -1;
	c->blas->workspace = cuda_memory_alloc(k, BLAS_WORKSPACE);
	if (!c->blas->workspace)
		cuda_fail(k, cudaErrorMemoryAllocation, "allocating the workspace of products",
			  NULL);
	else if (c->blas->lt->Create(&c->blas->handle) != CUBLAS_STATUS_SUCCESS)
		cuda_fail(k, cudaErrorUnknown, "opening cuBLASLt",
			  "install a version that the driver supports");
	return cuda_failed(k, e);
}

void cuda_blas_close(struct backend *k)
{
	struct cuda_blas *blas = cuda_of(k)->blas;
	if (!blas)
		return;
	if (blas->lt)
		clear_plans(blas);
	if (blas->handle)
		blas->lt->Destroy(blas->handle);
	free(blas);
	cuda_of(k)->blas = NULL;
}
