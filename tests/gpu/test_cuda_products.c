/* The CUDA backend's matrix products over a double of cuBLASLt that refuses products, or supports an
 * epilogue only with another algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/blaslt.h"
#include "tests/gpu/doubles/runtime.h"

#include <math.h>

static int things_before;

static int setup(void **state)
{
	(void)state;
	double_blas_refuses = double_blas_apart = false;
	things_before = double_open_things();
	return 0;
}

/* After any test, nothing of the device may be open. */
static int teardown(void **state)
{
	(void)state;
	return double_open_things() == things_before ? 0 : -1;
}

static double product_error(struct backend *k, int n, int in, int out, bool grouped)
{
	const int64_t sizes[] = { (int64_t)n * in, (int64_t)out * in, out, (int64_t)n * out,
				  (int64_t)n * out },
		      rows[] = { n / 3, 0, n - n / 3 };
	float *host[5], worst = 0;
	void *p[5];
	struct backend *reference;
	assert_int_equal(backend_open("reference", 1, &reference, NULL), 0);
	for (int i = 0; i < 5; i++) {
		host[i] = backend_alloc(reference, (size_t)(3 * sizes[i]) * sizeof *host[i]);
		p[i] = backend_alloc(k, (size_t)(3 * sizes[i]) * sizeof *host[i]);
		for (int64_t j = 0; i < 3 && j < 3 * sizes[i]; j++)
			host[i][j] = (float)((j * 7 + i) % 11 - 5);
		backend_put(k, p[i], host[i], (size_t)(3 * sizes[i]) * sizeof *host[i]);
	}
	if (grouped) {
		backend_ops(k)->grouped_fwd(k, p[3], p[0], p[1], sizes[1], rows, 0, 3, in, out);
		backend_ops(reference)->grouped_fwd(reference, host[3], host[0], host[1], sizes[1],
						    rows, 0, 3, in, out);
	} else {
		backend_ops(k)->linear_fwd(k, p[3], p[0], p[1], p[2], n, in, out);
		backend_ops(reference)->linear_fwd(reference, host[3], host[0], host[1], host[2], n,
						   in, out);
	}
	assert_int_equal(backend_get(k, host[4], p[3], (size_t)sizes[3] * sizeof *host[4], NULL),
			 0);
	for (int64_t i = 0; i < sizes[3]; i++)
		worst = fmaxf(worst, fabsf(host[4][i] - host[3][i]));
	for (int i = 0; i < 5; i++)
		backend_free(k, p[i]);
	backend_close(reference);
	return (double)worst;
}

/* With integers, every order of sums gives the same result. */
static void products_that_the_library_refuses_use_the_fallback(void **state)
{
	(void)state;
	static const int sizes[][3] = {
		{ 1, 1, 1 }, { 3, 70, 5 }, { 130, 33, 65 }, { 64, 64, 128 }
	};
	struct backend *k = open_backend("cuda");
	for (int refuses = 0; refuses < 2; refuses++)
		for (int i = 0; i < 4; i++) {
			double_blas_refuses = refuses;
			assert_true(product_error(k, sizes[i][0] + refuses, sizes[i][1],
						  sizes[i][2], false) == 0);
			assert_true(product_error(k, sizes[i][0] + refuses, sizes[i][1],
						  sizes[i][2], true) == 0);
			const char *notice = backend_notice(k);
			if (refuses && i == 0)
				assert_true(strstr(notice, "cuBLASLt does not support linear") &&
					    strstr(notice, "multiples of 8 avoid it"));
			else
				assert_null(notice);
		}
	backend_close(k);
}

/* Fused or not, sums of integers are the same to the bit. */
static void an_epilogue_with_another_algorithm_is_replaced_by_an_op(void **state)
{
	(void)state;
	enum { EDGE = 64 };
	float dbias[2][EDGE];
	for (int apart = 0; apart < 2; apart++) {
		double_blas_apart = apart;
		struct backend *k = open_backend("cuda");
		float *x = backend_alloc(k, EDGE * EDGE * sizeof *x),
		      *dw = backend_alloc(k, EDGE * EDGE * sizeof *dw),
		      *sums = backend_alloc(k, sizeof dbias[0]);
		put_all(k, x, 3, EDGE * EDGE);
		backend_ops(k)->linear_bwd_weight(k, dw, sums, x, x, EDGE, EDGE, EDGE, true);
		check_all(k, dw, 9 * EDGE, EDGE * EDGE);
		assert_int_equal(backend_get(k, dbias[apart], sums, sizeof dbias[0], NULL), 0);
		backend_close(k);
	}
	assert_true(dbias[0][0] == 3 * EDGE);
	assert_memory_equal(dbias[0], dbias[1], sizeof dbias[0]);
}

enum { ROWS = 4, IN = 2, OUT = 17, FARTHEST = 40 };

/* One backend for all distances. dy's row i has i + j in column j, and 1000 in its gap. */
static void check_distances(bool refuses)
{
	float dy[ROWS * FARTHEST], got[OUT * IN];
	double_blas_refuses = refuses;
	struct backend *k = open_backend("cuda");
	float *x = backend_alloc(k, ROWS * IN * sizeof *x), *at = backend_alloc(k, sizeof dy),
	      *dw = backend_alloc(k, sizeof got);
	put_all(k, x, 1, ROWS * IN);
	for (int row = OUT; row <= FARTHEST; row++) {
		for (int i = 0; i < ROWS * FARTHEST; i++)
			dy[i] = i % row < OUT ? (float)(i / row + i % row) : 1000;
		backend_put(k, at, dy, sizeof dy);
		backend_zero(k, dw, sizeof got);
		backend_ops(k)->linear_bwd_weight_strided(k, dw, at, row, x, ROWS, IN, OUT, true);
		assert_int_equal(backend_get(k, got, dw, sizeof got, NULL), 0);
		for (int i = 0; i < OUT * IN; i++)
			assert_true(got[i] == (float)(ROWS * (i / IN) + 6));
	}
	backend_free(k, x);
	backend_free(k, at);
	backend_free(k, dw);
	backend_close(k);
}

/* The same sizes with other distances between rows are other products. The last column has a
 * product of its own. */
static void rows_with_gaps_give_the_same_gradient(void **state)
{
	(void)state;
	check_distances(false);
	check_distances(true);
}

/* More shapes than the table of plans holds. */
static void more_shapes_than_the_table_holds_are_computed(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	float *p = backend_alloc(k, 3 * 4500 * sizeof *p);
	for (int n = 1; n <= 4500; n++)
		backend_ops(k)->linear_fwd(k, p, p + 4500, p + 9000, NULL, n, 1, 1);
	assert_int_equal(backend_sync(k, NULL), 0);
	backend_close(k);
}

/* Products of 8 bits accumulate fast if the left operand says so. A plan for one of the two is not
 * used for the other. */
static void products_of_8_bits_accumulate_fast_where_they_may(void **state)
{
	(void)state;
	enum { N = 64 };
	struct backend *k = open_backend("cuda:bf16");
	const struct fp8_scale scale = { .scale = 1, .inverse = 1 };
	struct fp8_scale *s = backend_alloc(k, sizeof *s);
	uint8_t *x = backend_alloc(k, (size_t)N * N);
	void *y = backend_alloc(k, (size_t)N * N * 2);
	backend_put(k, s, &scale, sizeof scale);
	for (int i = 0; i < 4; i++) {
		const struct fp8_tensor left = { x, s, FP8_E4M3, i % 2, 0 },
					right = { x, s, FP8_E4M3, false, 0 };
		int before = double_blas_fast;
		backend_ops(k)->fp8_product(k, y, &left, &right, NULL, false, false, N, N, N);
		assert_int_equal(double_blas_fast - before, i % 2);
	}
	assert_int_equal(backend_sync(k, NULL), 0);
	backend_free(k, s);
	backend_free(k, x);
	backend_free(k, y);
	backend_close(k);
}

/* Nobody else would see why they are slow. */
static void padded_products_of_8_bits_are_reported(void **state)
{
	(void)state;
	enum { N = 32, DEPTH = 24 };
	const struct fp8_scale scale = { .scale = 1, .inverse = 1 };
	for (int padded = 0; padded < 2; padded++) {
		struct backend *k = open_backend("cuda:bf16");
		struct fp8_scale *s = backend_alloc(k, sizeof *s);
		uint8_t *x = backend_alloc(k, (size_t)N * N);
		void *y = backend_alloc(k, (size_t)N * N * 2);
		const struct fp8_tensor t = { x, s, FP8_E4M3, false, N };
		backend_put(k, s, &scale, sizeof scale);
		backend_ops(k)->fp8_product(k, y, &t, &t, NULL, false, false, N, N,
					    padded ? DEPTH : N);
		assert_int_equal(backend_sync(k, NULL), 0);
		const char *notice = backend_notice(k);
		if (padded)
			assert_true(notice && strstr(notice, "does not support fp8_product") &&
				    strstr(notice, "multiples of 16 avoid it"));
		else
			assert_null(notice);
		backend_free(k, s);
		backend_free(k, x);
		backend_free(k, y);
		backend_close(k);
	}
}

static void products_have_a_rate(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda:bf16");
	assert_true(backend_gemm_flops(k, 64, 0) > 0);
	assert_true(backend_gemm_flops(k, (int64_t)1 << 30, 0) == 0);
	backend_close(k);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(products_that_the_library_refuses_use_the_fallback),
		TEST(an_epilogue_with_another_algorithm_is_replaced_by_an_op),
		TEST(rows_with_gaps_give_the_same_gradient),
		TEST(more_shapes_than_the_table_holds_are_computed),
		TEST(products_of_8_bits_accumulate_fast_where_they_may),
		TEST(products_have_a_rate),
	};
	return cmocka_run_group_tests_name("products of the CUDA backend", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("products of the CUDA backend")

#endif
