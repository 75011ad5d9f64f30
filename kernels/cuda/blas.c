#include "base/choices.h"
#include "base/hash.h"
#include "kernels/cuda/blas_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of `pre` must have a multiple of PRE_ROW elements
 * (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), and `pre` must be aligned to PRE_ALIGN bytes. */
enum { PRE_ROW = 8, PRE_ALIGN = 16 };

enum { PLANS = 4096, PLANS_MAX = PLANS * 3 / 4 };

/* --- The table of plans ------------------------------------------------------------------- */

static void clear_plans(struct cuda_blas *blas)
{
	for (int i = 0; i < PLANS; i++)
		blas_free_plan(blas->lt, &blas->table[i]);
	blas->plans = 0;
}

/* The plan of that key, or its empty entry. */
static struct blas_plan *find_plan(struct cuda_blas *blas, const struct blas_key *key)
{
	size_t at = (size_t)(hash_bytes(key, sizeof *key) % PLANS);
	while (blas->table[at].used && memcmp(&blas->table[at].key, key, sizeof *key))
		at = (at + 1) % PLANS;
	return &blas->table[at];
}

static struct blas_plan *make_plan(struct backend *k, const struct blas_product *p,
				   const struct blas_key *key)
{
	struct cuda_blas *blas = cuda_of(k)->blas;
	cublasLtMatmulAlgo_t first;
	struct blas_plan *plan = find_plan(blas, key);
	plan->key = *key;
	plan->used = true;
	plan->algo_id = -1;
	blas->plans++;
	plan->possible = blas_describe(blas->lt, k, plan, p) == CUBLAS_STATUS_SUCCESS;
	if (!plan->possible || blas_take_choice(k, plan))
		return plan;
	plan->possible = blas_candidates(blas->lt, blas->handle, plan, &first, 1) == 1;
	if (plan->possible)
		blas_set_algorithm(blas->lt, plan, &first);
	plan->wanted = plan->possible && !p->varies && blas_wants_choice(k, plan);
	return plan;
}

struct blas_plan *blas_plan_of(struct backend *k, const struct blas_product *p)
{
	struct blas_key key;
	blas_fill_key(p, &key);
	struct blas_plan *plan = find_plan(cuda_of(k)->blas, &key);
	return plan->used ? plan : make_plan(k, p, &key);
}

/* Whether an epilogue is used although nothing was measured (blas.h). */
static bool needs_no_other_algorithm(struct backend *k, const struct blas_plan *plan,
				     const struct blas_product *p)
{
	struct blas_product separate = *p;
	separate.after = BLAS_STORE;
	separate.bias = separate.given_pre = NULL;
	separate.sums = NULL;
	separate.pre = NULL;
	return plan->algo_id == blas_plan_of(k, &separate)->algo_id;
}

/* Choices may have changed since the plans were made. */
static void forget_old_plans(struct backend *k, struct cuda_blas *blas)
{
	if (blas->version != choices_version(k->choices) || blas->plans >= PLANS_MAX)
		clear_plans(blas);
	blas->version = choices_version(k->choices);
}

static struct blas_plan *get_plan(struct backend *k, const struct blas_product *p)
{
	struct cuda_blas *blas = cuda_of(k)->blas;
	struct blas_key key;
	forget_old_plans(k, blas);
	blas_fill_key(p, &key);
	struct blas_plan *plan = find_plan(blas, &key);
	if (plan->used)
		return plan;
	plan = make_plan(k, p, &key);
	if (plan->possible && !plan->chosen && p->after != BLAS_STORE && p->after != BLAS_BIAS)
		plan->possible = needs_no_other_algorithm(k, plan, p);
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

cublasStatus_t blas_queue(struct backend *k, const struct blas_plan *plan,
			  const struct blas_product *p, const void *c,
			  const cublasLtMatmulAlgo_t *algo)
{
	const float one = 1, zero = 0;
	const struct cuda_blas *blas = cuda_of(k)->blas;
	cublasStatus_t rc = blas_set_pointers(blas->lt, plan, p);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = blas->lt->Matmul(blas->handle, plan->desc, &one, p->right, plan->a, p->left,
				      plan->b, p->add ? &one : &zero, c, plan->d, p->d, plan->d,
				      algo, blas->workspace, BLAS_WORKSPACE, cuda_of(k)->stream);
	return rc;
}

static bool is_refusal(cublasStatus_t rc)
{
	return rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_ARCH_MISMATCH ||
	       rc == CUBLAS_STATUS_INVALID_VALUE;
}

/* Takes the library's next algorithm in place of one that was refused at launch, first to last. */
static void take_next(struct backend *k, struct blas_plan *plan)
{
	const struct cuda_blas *blas = cuda_of(k)->blas;
	cublasLtMatmulAlgo_t algos[BLAS_CANDIDATES];
	int n = blas_candidates(blas->lt, blas->handle, plan, algos, BLAS_CANDIDATES);
	cudaGetLastError(); /* the runtime's own record of the refusal */
	if (plan->tried < n && !memcmp(&algos[plan->tried], &plan->algo, sizeof plan->algo))
		plan->tried++;
	plan->possible = plan->tried < n;
	if (plan->possible)
		blas_set_algorithm(blas->lt, plan, &algos[plan->tried++]);
	blas_keep_choice(k, plan);
}

bool blas_product(struct backend *k, const struct blas_product *p, const char *op)
{
	struct cuda_backend *c = cuda_of(k);
	if (blas_pre(p) && (p->n % PRE_ROW || blas_alignment(blas_pre(p)) < PRE_ALIGN))
		return false;
	cuda_choose(k);
	struct blas_plan *plan = get_plan(k, p);
	c->last_op = op;
	if (plan->wanted && !c->recording && c->first_error == cudaSuccess)
		blas_measure(k, plan, p);
	while (plan->possible) {
		cublasStatus_t rc = blas_queue(k, plan, p, p->d, &plan->algo);
		if (rc != CUBLAS_STATUS_SUCCESS && is_refusal(rc)) {
			take_next(k, plan);
			continue;
		}
		if (rc != CUBLAS_STATUS_SUCCESS)
			blas_fail(k, rc, op);
		return true;
	}
	return false;
}

/* --- Opening ------------------------------------------------------------------------------ */

int cuda_blas_open(struct backend *k, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	c->blas = calloc(1, sizeof *c->blas);
	if (c->blas) {
		c->blas->table = calloc(PLANS, sizeof *c->blas->table);
		c->blas->timer = blas_timer_open();
	}
	if (!c->blas || !c->blas->table || !c->blas->timer)
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
	if (blas->lt && blas->table)
		clear_plans(blas);
	if (blas->handle)
		blas->lt->Destroy(blas->handle);
	blas_timer_close(blas->timer);
	free(blas->table);
	free(blas);
	cuda_of(k)->blas = NULL;
}
