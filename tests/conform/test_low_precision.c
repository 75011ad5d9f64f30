/*
 * Storage of 2 bytes: its conversions, element by element, on every instruction set, and products
 * larger than the blocks that are converted at once. test_ops.c tests the ops.
 */
#include "base/philox.h"
#include "kernels/ops.h"
#include "tests/conform/storage.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const backends[] = {
	"reference:bf16", "reference:fp16", "cpu:bf16",    "cpu:fp16",    "cpu-v2:bf16",
	"cpu-v2:fp16",    "cpu-v3:bf16",    "cpu-v3:fp16", "cpu-v4:bf16", "cpu-v4:fp16",
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

/* Returns NULL if this processor lacks the instructions. */
static struct backend *try_open(const char *backend_name, int threads)
{
	struct backend *k = NULL;
	struct err e = ERR_INIT;
	if (backend_open(backend_name, threads, &k, &e) < 0)
		assert_int_equal(e.code, ERR_UNSUPPORTED);
	return k;
}

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static void check_widened(const char *backend_name)
{
	enum { ALL = 1 << 16 };
	static uint16_t x[ALL], again[ALL];
	static float y[ALL];
	struct backend *k = try_open(backend_name, 2);
	for (int i = 0; i < ALL; i++)
		x[i] = (uint16_t)i;
	if (!k)
		return;
	backend_ops(k)->storage_to_fp32(k, y, x, ALL);
	backend_ops(k)->fp32_to_storage(k, again, y, ALL, NULL, 0);
	for (int i = 0; i < ALL; i++) {
		double want = storage_get(storage_of(backend_name), x, i);
		if (isnan(want) ? !isnan(y[i])
				: !((double)y[i] == want && !signbit(y[i]) == !signbit(want)))
			fail_msg("%s: 0x%04x converts to %g instead of %g", backend_name,
				 (unsigned)i, (double)y[i], want);
		if (!isnan(want) && again[i] != x[i])
			fail_msg("%s: 0x%04x converts back to 0x%04x", backend_name, (unsigned)i,
				 again[i]);
	}
	backend_close(k);
}

static void every_number_converts_to_fp32_and_back(void **state)
{
	(void)state;
	for (int i = 0; i < BACKENDS; i++)
		check_widened(backends[i]);
}

/* About every thousandth float, and the neighbours of every 2-byte number and of every midpoint
 * between two. */
static int64_t trials(const struct storage *s, float *x)
{
	int64_t n = 0;
	for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 9973)
		x[n++] = float_of((uint32_t)bits);
	for (int i = 0; i < 1 << 16; i++) {
		uint16_t two[2] = { (uint16_t)i, (uint16_t)(i ^ 1) };
		double a = storage_get(s, two, 0), b = storage_get(s, two, 1);
		if (!isfinite(a) || !isfinite(b))
			continue;
		for (int d = -1; d <= 1; d++) {
			x[n++] = float_of(bits_of((float)a) + (uint32_t)d);
			x[n++] = float_of(bits_of((float)((a + b) / 2)) + (uint32_t)d);
			x[n++] = float_of(bits_of((float)(a + fabs(a - b) / 2)) + (uint32_t)d);
		}
	}
	return n;
}

static void check_nearest(const char *backend_name)
{
	enum { MOST = 1100000 };
	struct backend *k = try_open(backend_name, 2);
	if (!k)
		return;
	const struct storage *s = storage_of(backend_name);
	float *x = malloc(MOST * sizeof *x);
	uint16_t *y = malloc(MOST * sizeof *y);
	assert_true(x && y);
	int64_t n = trials(s, x);
	assert_true(n <= MOST);
	backend_ops(k)->fp32_to_storage(k, y, x, n, NULL, 0);
	for (int64_t i = 0; i < n; i++) {
		double want = storage_round(s, (double)x[i]), got = storage_get(s, y, i);
		if (isnan(want) ? !isnan(got) : !(got == want && !signbit(got) == !signbit(want)))
			fail_msg("%s: %.9g rounds to %.9g instead of %.9g", backend_name,
				 (double)x[i], got, want);
	}
	free(x);
	free(y);
	backend_close(k);
}

static void conversion_rounds_to_the_nearest_even(void **state)
{
	(void)state;
	for (int i = 0; i < BACKENDS; i++)
		check_nearest(backends[i]);
}

static double narrowed(struct backend *k, const struct storage *s, float x)
{
	uint16_t y;
	backend_ops(k)->fp32_to_storage(k, &y, &x, 1, NULL, 0);
	return storage_get(s, &y, 0);
}

static void ties_overflow_and_subnormal_numbers_follow_ieee_754(void **state)
{
	(void)state;
	struct backend *b = try_open("cpu:bf16", 1), *h = try_open("cpu:fp16", 1);
	assert_true(narrowed(b, &storage_bf16, 1 + 0x1p-8f) == 1);
	assert_true(narrowed(b, &storage_bf16, 1 + 0x3p-8f) == 1 + 0x1p-6);
	assert_true(isinf(narrowed(b, &storage_bf16, FLT_MAX)));
	assert_true(narrowed(b, &storage_bf16, 0x1p-133f) == 0x1p-133);
	assert_true(narrowed(h, &storage_fp16, 1 + 0x1p-11f) == 1);
	assert_true(narrowed(h, &storage_fp16, 1 + 0x3p-11f) == 1 + 0x1p-9);
	assert_true(narrowed(h, &storage_fp16, 65519) == 65504);
	assert_true(narrowed(h, &storage_fp16, -65520) == -(double)INFINITY);
	assert_true(narrowed(h, &storage_fp16, 0x1p-24f) == 0x1p-24);
	assert_true(narrowed(h, &storage_fp16, 0x1p-25f) == 0);
	assert_true(narrowed(h, &storage_fp16, 0x1.8p-25f) == 0x1p-24);
	assert_true(isnan(narrowed(h, &storage_fp16, float_of(0x7f800001))));
	assert_true(isnan(narrowed(b, &storage_bf16, float_of(0xff800001))));
	backend_close(b);
	backend_close(h);
}

/* --- random rounding --- */

/* The mean of many roundings of x is x, within five standard deviations of such a mean. Each
 * rounding gives one of x's neighbours. */
static void check_unbiased(const char *backend_name, float x)
{
	enum { N = 200000 };
	const struct philox_key key = philox_key(1, PHILOX_TEST, 77);
	const struct storage *s = storage_of(backend_name);
	struct backend *k = try_open(backend_name, 1);
	float *xs = malloc(N * sizeof *xs);
	uint16_t *ys = malloc(N * sizeof *ys);
	assert_true(k && xs && ys);
	for (int i = 0; i < N; i++)
		xs[i] = x;
	backend_ops(k)->fp32_to_storage(k, ys, xs, N, &key, 0);
	double sum = 0, lo = (double)INFINITY, hi = -(double)INFINITY;
	for (int i = 0; i < N; i++) {
		double y = storage_get(s, ys, i);
		sum += y - (double)x;
		lo = fmin(lo, y);
		hi = fmax(hi, y);
	}
	double bound = 5 * sqrt(((double)x - lo) * (hi - (double)x) / N);
	if (!(lo <= (double)x && (double)x <= hi && fabs(sum / N) <= bound))
		fail_msg("%s: %.9g rounds to %.9g on average, which must be between %.9g and %.9g",
			 backend_name, (double)x, (double)x + sum / N, lo, hi);
	double near = storage_round(s, (double)x);
	assert_true(near == lo || near == hi);
	free(xs);
	free(ys);
	backend_close(k);
}

static void random_rounding_keeps_the_mean(void **state)
{
	(void)state;
	const float xs[] = { 1.001f, -1.003f, 0.1f,  3.14159f, 1,
			     1e-3f,  3e-5f,   1e-6f, -2.3e-7f, 60001.5f };
	for (size_t i = 0; i < sizeof xs / sizeof *xs; i++) {
		check_unbiased("cpu:bf16", xs[i]);
		check_unbiased("cpu:fp16", xs[i]);
	}
}

/* The element's index first + i decides the rounding. It does not depend on the range that an op
 * gets, on threads or on instructions. */
static void check_random(const char *backend_name, const float *x, const uint16_t *want, int64_t n)
{
	const struct philox_key key = philox_key(1, PHILOX_TEST, 78);
	struct backend *k = try_open(backend_name, 3);
	uint16_t *y = malloc((size_t)n * sizeof *y);
	assert_non_null(y);
	for (int64_t at = 0, part = 1; k && at < n; at += part, part = part * 3 + 1)
		backend_ops(k)->fp32_to_storage(k, y + at, x + at, part < n - at ? part : n - at,
						&key, 1000003 + (uint64_t)at);
	if (k && memcmp(y, want, (size_t)n * sizeof *y))
		fail_msg("%s: random rounding differs from the reference's", backend_name);
	free(y);
	backend_close(k);
}

static void random_rounding_depends_only_on_the_element(void **state)
{
	(void)state;
	enum { N = 60000 };
	static float x[N];
	static uint16_t want[2][N], other[N];
	const struct philox_key key = philox_key(1, PHILOX_TEST, 78);
	philox_normal(philox_key(2, PHILOX_TEST, 1), 0, N, x);
	for (int i = 0; i < N; i += 7)
		x[i] *= 0x1p-18f;
	for (int i = 0; i < 2; i++) {
		struct backend *k = try_open(backends[i], 1);
		backend_ops(k)->fp32_to_storage(k, want[i], x, N, &key, 1000003);
		backend_ops(k)->fp32_to_storage(k, other, x, N, &key, 1000004);
		assert_memory_not_equal(want[i], other, sizeof other);
		backend_close(k);
	}
	for (int i = 0; i < BACKENDS; i++)
		check_random(backends[i], x, want[i % 2], N);
}

static void random_rounding_keeps_infinity_and_nan(void **state)
{
	(void)state;
	const float x[] = { INFINITY, -INFINITY, NAN, 1e6f };
	const struct philox_key key = philox_key(1, PHILOX_TEST, 79);
	for (int i = 0; i < 2; i++) {
		const struct storage *s = storage_of(backends[i]);
		struct backend *k = try_open(backends[i], 1);
		uint16_t y[4];
		backend_ops(k)->fp32_to_storage(k, y, x, 4, &key, 0);
		assert_true(storage_get(s, y, 0) == (double)INFINITY &&
			    storage_get(s, y, 1) == -(double)INFINITY);
		assert_true(isnan(storage_get(s, y, 2)));
		assert_true(s == &storage_bf16 || storage_get(s, y, 3) == (double)INFINITY);
		backend_close(k);
	}
}

/* --- products larger than a block, against fp32 on the same numbers --- */

struct sizes {
	int64_t n, in, out;
};

/* Arrays in the storage type and in fp32. */
struct pair {
	uint16_t *stored;
	float *wide;
	int64_t count;
};

static struct pair pair_random(struct backend *k, int64_t count, uint64_t stream)
{
	struct pair p = { malloc((size_t)count * sizeof(uint16_t)),
			  malloc((size_t)count * sizeof(float)), count };
	assert_true(p.stored && p.wide);
	philox_normal(philox_key(3, PHILOX_TEST, stream), 0, (size_t)count, p.wide);
	backend_ops(k)->fp32_to_storage(k, p.stored, p.wide, count, NULL, 0);
	backend_ops(k)->storage_to_fp32(k, p.wide, p.stored, count);
	return p;
}

static void pair_free(struct pair p)
{
	free(p.stored);
	free(p.wide);
}

static void doctor_check_near(const float *a, const float *b, int64_t n, double tolerance,
			      const char *what, const struct sizes *z)
{
	double diff = 0, norm = 0;
	for (int64_t i = 0; i < n; i++) {
		diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		norm += (double)b[i] * (double)b[i];
	}
	if (!(sqrt(diff / norm) <= tolerance))
		fail_msg("%s (n %ld, in %ld, out %ld): error %.3g", what, (long)z->n, (long)z->in,
			 (long)z->out, sqrt(diff / norm));
}

static void check_products(struct backend *lk, struct backend *wk, const struct sizes *z)
{
	const struct ops *no = backend_ops(lk), *wo = backend_ops(wk);
	struct pair x = pair_random(lk, z->n * z->in, 1), w = pair_random(lk, z->out * z->in, 2);
	struct pair y = pair_random(lk, z->n * z->out, 3), bias = pair_random(lk, z->out, 4);
	struct pair got = pair_random(
		lk, (z->n > z->out ? z->n : z->out) * (z->in > z->out ? z->in : z->out), 5);
	float *want = malloc((size_t)got.count * sizeof *want);
	assert_non_null(want);
	no->linear_fwd(lk, got.stored, x.stored, w.stored, bias.stored, z->n, z->in, z->out);
	wo->linear_fwd(wk, want, x.wide, w.wide, bias.wide, z->n, z->in, z->out);
	no->storage_to_fp32(lk, got.wide, got.stored, z->n * z->out);
	doctor_check_near(got.wide, want, z->n * z->out, storage_bf16.tolerance, "linear_fwd", z);
	no->linear_bwd_input(lk, got.stored, y.stored, w.stored, z->n, z->in, z->out);
	wo->linear_bwd_input(wk, want, y.wide, w.wide, z->n, z->in, z->out);
	no->storage_to_fp32(lk, got.wide, got.stored, z->n * z->in);
	doctor_check_near(got.wide, want, z->n * z->in, storage_bf16.tolerance, "linear_bwd_input",
			  z);
	memcpy(got.wide, w.wide, (size_t)w.count * sizeof *want);
	memcpy(want, w.wide, (size_t)w.count * sizeof *want);
	float *dbias = calloc((size_t)z->out * 2, sizeof *dbias);
	assert_non_null(dbias);
	no->linear_bwd_weight(lk, got.wide, dbias, y.stored, x.stored, z->n, z->in, z->out, true);
	wo->linear_bwd_weight(wk, want, dbias + z->out, y.wide, x.wide, z->n, z->in, z->out, true);
	doctor_check_near(got.wide, want, w.count, 1e-5, "linear_bwd_weight", z);
	doctor_check_near(dbias, dbias + z->out, z->out, 1e-5, "its bias", z);
	free(dbias);
	free(want);
	const struct pair all[] = { x, w, y, bias, got };
	for (int i = 0; i < 5; i++)
		pair_free(all[i]);
}

/* In each case, one size exceeds a block: depth, rows or columns. */
static void products_larger_than_a_block_are_correct(void **state)
{
	(void)state;
	const struct sizes all[] = { { 520, 4100, 70 },
				     { 520, 70, 4100 },
				     { 3, 4096, 1100 },
				     { 3, 1100, 4096 },
				     { 75, 60000, 8 } };
	struct backend *lk = try_open("cpu:bf16", 1), *wk = try_open("cpu", 1);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		check_products(lk, wk, &all[i]);
	backend_close(lk);
	backend_close(wk);
}

/* --- the norm of what is stored --- */

static void a_norm_recomputed_from_the_stored_sum_has_the_same_bits(void **state)
{
	(void)state;
	enum { N = 37, C = 129 };
	static uint16_t y[2][N * C], sum[N * C];
	float rstd[2][N], mean[2][N];
	struct backend *k = try_open("cpu:bf16", 1);
	struct pair x = pair_random(k, N * C, 1), r = pair_random(k, N * C, 2),
		    w = pair_random(k, C, 3);
	backend_ops(k)->layernorm_fwd(k, y[0], sum, mean[0], rstd[0], x.stored, r.stored, w.stored,
				      w.stored, N, C, 1e-5f);
	backend_ops(k)->layernorm_fwd(k, y[1], NULL, mean[1], rstd[1], sum, NULL, w.stored,
				      w.stored, N, C, 1e-5f);
	assert_memory_equal(y[0], y[1], sizeof y[0]);
	assert_memory_equal(rstd[0], rstd[1], sizeof rstd[0]);
	pair_free(x);
	pair_free(r);
	pair_free(w);
	backend_close(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_converts_to_fp32_and_back),
		cmocka_unit_test(conversion_rounds_to_the_nearest_even),
		cmocka_unit_test(ties_overflow_and_subnormal_numbers_follow_ieee_754),
		cmocka_unit_test(random_rounding_keeps_the_mean),
		cmocka_unit_test(random_rounding_depends_only_on_the_element),
		cmocka_unit_test(random_rounding_keeps_infinity_and_nan),
		cmocka_unit_test(products_larger_than_a_block_are_correct),
		cmocka_unit_test(a_norm_recomputed_from_the_stored_sum_has_the_same_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
