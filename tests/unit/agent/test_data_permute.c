/* Tests the order of samples: it is a bijection for every size, it is different in each epoch, and
 * it never changes between releases. */
#include "agent/engine/data/permute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_bijection(uint64_t seed, uint64_t n)
{
	unsigned char *seen = calloc(n, 1);
	assert_non_null(seen);
	struct philox_key key = philox_key(seed, PHILOX_SHUFFLE, n);
	for (uint64_t k = 0; k < n; k++) {
		uint64_t to = data_permute(key, n, k);
		assert_true(to < n);
		assert_int_equal(seen[to], 0);
		seen[to] = 1;
	}
	free(seen);
}

static void every_small_size_is_a_bijection(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 600; n++)
		check_bijection(1, n);
}

static void primes_powers_and_their_neighbours_are_bijections(void **state)
{
	static const uint64_t sizes[] = { 1021,  1024,  1025,  4095,  4096,   4097,  7919,
					  19683, 65535, 65536, 65537, 104729, 250000 };
	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		check_bijection(0xfeedfacecafebeefull, sizes[i]);
}

static void huge_sizes_stay_inside_and_do_not_collide(void **state)
{
	uint64_t n = (1ull << 61) + 12345, to[64];
	struct philox_key key = philox_key(3, PHILOX_SHUFFLE, 0);
	(void)state;
	for (uint64_t k = 0; k < 64; k++) {
		to[k] = data_permute(key, n, n - 1 - k);
		assert_true(to[k] < n);
		for (uint64_t j = 0; j < k; j++)
			assert_true(to[j] != to[k]);
	}
}

/* Returns how many of the first 1000 of n = 10007 samples two keys send to the same place. About
 * 0.1 is expected by chance. */
static int agreements(struct philox_key a, struct philox_key b)
{
	int same = 0;
	for (uint64_t k = 0; k < 1000; k++)
		same += data_permute(a, 10007, k) == data_permute(b, 10007, k);
	return same;
}

static void epochs_and_seeds_differ(void **state)
{
	struct philox_key first = philox_key(7, PHILOX_SHUFFLE, 0);
	(void)state;
	assert_int_equal(agreements(first, first), 1000);
	assert_true(agreements(first, philox_key(7, PHILOX_SHUFFLE, 1)) < 10);
	assert_true(agreements(first, philox_key(8, PHILOX_SHUFFLE, 0)) < 10);
}

static void neighbours_are_scattered(void **state)
{
	struct philox_key key = philox_key(7, PHILOX_SHUFFLE, 0);
	int close_by = 0, low = 0;
	(void)state;
	for (uint64_t k = 0; k + 1 < 10000; k++) {
		uint64_t a = data_permute(key, 10000, k), b = data_permute(key, 10000, k + 1);
		close_by += (a > b ? a - b : b - a) <= 10;
		low += k < 5000 && a < 5000;
	}
	assert_in_range(close_by, 10, 50); /* 20 expected */
	assert_in_range(low, 2350, 2650);  /* 2500 expected, standard deviation 25 */
}

/* The meaning of a seed must never change. Otherwise, a resumed run would read other data. */
static void the_order_is_the_one_of_every_release(void **state)
{
	static const uint64_t ten[10] = { 4, 2, 3, 9, 6, 5, 8, 0, 7, 1 };
	static const uint64_t large[6] = { 19633, 193029, 627373, 649265, 471025, 305627 };
	(void)state;
	for (uint64_t k = 0; k < 10; k++)
		assert_int_equal(data_permute(philox_key(1234, PHILOX_SHUFFLE, 0), 10, k), ten[k]);
	for (uint64_t k = 0; k < 6; k++)
		assert_int_equal(data_permute(philox_key(1234, PHILOX_SHUFFLE, 5), 1000003, k),
				 large[k]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_small_size_is_a_bijection),
		cmocka_unit_test(primes_powers_and_their_neighbours_are_bijections),
		cmocka_unit_test(huge_sizes_stay_inside_and_do_not_collide),
		cmocka_unit_test(epochs_and_seeds_differ),
		cmocka_unit_test(neighbours_are_scattered),
		cmocka_unit_test(the_order_is_the_one_of_every_release),
	};
	return cmocka_run_group_tests_name("data order", tests, NULL, NULL);
}
