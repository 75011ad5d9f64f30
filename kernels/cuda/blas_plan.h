/* blas_plan — a product as cuBLASLt describes it, and the algorithms for it. For blas.c and
 * blas_measure.c. */
#ifndef MUSTER_KERNELS_CUDA_BLAS_PLAN_H
#define MUSTER_KERNELS_CUDA_BLAS_PLAN_H

#include "kernels/cuda/blas.h"
#include "kernels/cuda/lt.h"

enum {
	BLAS_CANDIDATES = 16, /* algorithms that are asked for */
	BLAS_KEY_TEXT = 192   /* bytes of a key's text, with its NUL */
};

/* All that an algorithm depends on. Keys are compared as bytes, so padding must be 0. Whether the
 * product is added is not part of it: the library's algorithms do not depend on that. */
struct blas_key {
	int64_t m, n, k, left_row;
	uint16_t left, right, d, bias, pre; /* alignments */
	uint8_t left_flipped, right_flipped, left_type, right_type, single, fast, after;
};

struct blas_plan {
	struct blas_key key;
	bool used, possible;
	bool chosen;   /* by what was measured */
	bool wanted;   /* is to be measured at the next use */
	int zero_uses; /* whose operands were zeros, so that nothing was measured */
	int tried;     /* the library's algorithms so far that were refused at launch */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	int32_t algo_id; /* -1: none */
};

void blas_fill_key(const struct blas_product *p, struct blas_key *key);
/* The key's text in struct choices. The library's version is part of the machine. */
void blas_write_key(const struct backend *k, const struct blas_key *key, char text[BLAS_KEY_TEXT]);

/* Describes the product; the plan has no algorithm yet. */
cublasStatus_t blas_describe(const struct lt *lt, struct backend *k, struct blas_plan *plan,
			     const struct blas_product *p);
void blas_free_plan(const struct lt *lt, struct blas_plan *plan);
/* Sets the epilogue's pointers, which differ from call to call. */
cublasStatus_t blas_set_pointers(const struct lt *lt, const struct blas_plan *plan,
				 const struct blas_product *p);
/* The array that the library takes as the auxiliary matrix. */
const void *blas_pre(const struct blas_product *p);
/* The alignment of an address, at most CUDA_ALIGN. CUDA_ALIGN for NULL. */
uint16_t blas_alignment(const void *p);

/* The library's algorithms for the product, the best first by its own estimate. Returns their
 * number, at most `most` and BLAS_CANDIDATES; 0: it does not support the product. */
int blas_candidates(const struct lt *lt, cublasLtHandle_t handle, const struct blas_plan *plan,
		    cublasLtMatmulAlgo_t *algos, int most);
/* Whether the library supports an algorithm that was kept. */
bool blas_supports(const struct lt *lt, cublasLtHandle_t handle, const struct blas_plan *plan,
		   const cublasLtMatmulAlgo_t *algo);
void blas_set_algorithm(const struct lt *lt, struct blas_plan *plan,
			const cublasLtMatmulAlgo_t *algo);

/* blas.c. The plan of a product, which is made if there is none. It stays where it is while the
 * product is measured. */
struct blas_plan *blas_plan_of(struct backend *k, const struct blas_product *p);
/* Queues a product by one algorithm: d = left right, + c if the product is added. */
cublasStatus_t blas_queue(struct backend *k, const struct blas_plan *plan,
			  const struct blas_product *p, const void *c,
			  const cublasLtMatmulAlgo_t *algo);

/* blas_measure.c. Measures the plan's algorithms, and the separate ops if it has an epilogue.
 * Puts the best into the backend's choices, and uses it from now on, unless choices are only
 * proposed. Only the outputs of p may have changed afterwards, and only if p overwrites them.
 * Not while a graph is recorded. */
void blas_measure(struct backend *k, struct blas_plan *plan, const struct blas_product *p);
/* Whether the plan's product may be measured, and was not yet. */
bool blas_wants_choice(struct backend *k, const struct blas_plan *plan);
/* Takes the kept choice, if there is one that the library supports. */
bool blas_take_choice(struct backend *k, struct blas_plan *plan);
/* Keeps what the plan has now in place of an algorithm that was refused; not where a proposal was
 * measured, since what is refused is not proposed. */
void blas_keep_choice(struct backend *k, const struct blas_plan *plan);
struct blas_timer;
struct blas_timer *blas_timer_open(void); /* NULL: no memory */
void blas_timer_close(struct blas_timer *t);

struct cuda_blas {
	const struct lt *lt;
	cublasLtHandle_t handle;
	void *workspace;
	struct blas_timer *timer;
	unsigned version; /* choices_version, when the plans were made */
	int plans;
	struct blas_plan *table;
};

#endif
