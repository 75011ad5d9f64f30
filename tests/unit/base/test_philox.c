/* Tests random numbers that are a function of their purpose. */
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The published result of Philox4x32-10 for a counter and a key of zeros (Random123's
 * kat_vectors). */
static void the_published_answer_comes_out(void **state)
{
	(void)state;
	static const uint32_t want[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
	uint32_t got[4];
	philox4((struct philox_key){ { 0, 0 } }, 0, got);
	assert_memory_equal(got, want, sizeof want);
}

static void keys_differ_by_seed_use_and_item(void **state)
{
	(void)state;
	const struct philox_key keys[] = {
		philox_key(1, PHILOX_INIT, 0),          philox_key(2, PHILOX_INIT, 0),
		philox_key(1, PHILOX_SHUFFLE, 0),       philox_key(1, PHILOX_INIT, 1),
		philox_key(1ull << 32, PHILOX_INIT, 0), philox_key(1, PHILOX_INIT, 1ull << 32),
	};
	for (size_t a = 0; a < sizeof keys / sizeof *keys; a++)
		for (size_t b = 0; b < a; b++)
			assert_memory_not_equal(&keys[a], &keys[b], sizeof keys[a]);
}

static void counters_use_all_their_bits(void **state)
{
	(void)state;
	struct philox_key key = philox_key(1, PHILOX_TEST, 0);
	uint32_t low[4], high[4];
	philox4(key, 5, low);
	philox4(key, 5 | 1ull << 40, high);
	assert_memory_not_equal(low, high, sizeof low);
}

/* Layout independence requires that an element's number does not depend on where a slice begins. */
static void normals_do_not_depend_on_the_slice(void **state)
{
	(void)state;
	enum { N = 103 };
	struct philox_key key = philox_key(9, PHILOX_INIT, 4);
	float whole[N], part[N];
	philox_normal(key, 1000, N, whole);
	for (size_t lo = 0; lo < N; lo++)
		for (size_t n = 1; lo + n <= N; n += 13) {
			philox_normal(key, 1000 + lo, n, part);
			assert_memory_equal(part, whole + lo, n * sizeof *part);
		}
}

static void normals_are_finite_and_look_normal(void **state)
{
	(void)state;
	enum { N = 200000 };
	float *x = malloc(N * sizeof *x);
	double moment[5] = { 0 };
	philox_normal(philox_key(3, PHILOX_TEST, 0), 0, N, x);
	for (int i = 0; i < N; i++) {
		assert_true(isfinite(x[i]) && fabsf(x[i]) < 6.0f);
		for (int k = 1; k <= 4; k++)
			moment[k] += pow((double)x[i], k) / N;
	}
	/* The bound is 5 standard errors of each moment. */
	assert_true(fabs(moment[1]) < 5 * sqrt(1.0 / N));
	assert_true(fabs(moment[2] - 1) < 5 * sqrt(2.0 / N));
	assert_true(fabs(moment[3]) < 5 * sqrt(15.0 / N));
	assert_true(fabs(moment[4] - 3) < 5 * sqrt(96.0 / N));
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_answer_comes_out),
		cmocka_unit_test(keys_differ_by_seed_use_and_item),
		cmocka_unit_test(counters_use_all_their_bits),
		cmocka_unit_test(normals_do_not_depend_on_the_slice),
		cmocka_unit_test(normals_are_finite_and_look_normal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
