/* Tests the minimum, the maximum, the clamping and the rounding of each integer type at the limits
 * of the type. */
#include "base/numbers.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void minimum_and_maximum_keep_the_sign_and_the_range_of_their_type(void **state)
{
	(void)state;
	assert_int_equal(min_int(INT_MIN, 2), INT_MIN);
	assert_int_equal(min_int(2, -3), -3);
	assert_int_equal(max_int(-3, 2), 2);
	assert_int_equal(max_int(INT_MAX, 2), INT_MAX);
	assert_true(min_int64(INT64_MIN, 2) == INT64_MIN);
	assert_true(min_int64(2, -3) == -3);
	assert_true(max_int64(-3, 2) == 2);
	assert_true(max_int64(INT64_MAX, 2) == INT64_MAX);
	assert_true(min_uint64(UINT64_MAX, 2) == 2);
	assert_true(max_uint64(2, UINT64_MAX) == UINT64_MAX);
	assert_true(min_size(SIZE_MAX, 2) == 2);
	assert_true(max_size(2, SIZE_MAX) == SIZE_MAX);
	assert_true(min_double(-INFINITY, 0.5) == -INFINITY);
	assert_true(max_double(0.25, 0.5) == 0.5);
}

static void a_nan_yields_the_second_argument(void **state)
{
	(void)state;
	assert_true(min_double(NAN, 1) == 1);
	assert_true(max_double(NAN, 1) == 1);
	assert_true(isnan(min_double(1, NAN)));
	assert_true(isnan(max_double(1, NAN)));
}

static void a_value_is_clamped_to_both_ends_of_the_range(void **state)
{
	(void)state;
	assert_true(clamp_int64(-5, -3, 2) == -3);
	assert_true(clamp_int64(-1, -3, 2) == -1);
	assert_true(clamp_int64(5, -3, 2) == 2);
	assert_true(clamp_int64(5, 4, 4) == 4);
}

static void numbers_are_rounded_up_to_a_multiple(void **state)
{
	(void)state;
	assert_true(round_up_int64(0, 8) == 0);
	assert_true(round_up_int64(1, 8) == 8);
	assert_true(round_up_int64(16, 8) == 16);
	assert_true(round_up_int64((int64_t)1 << 40, 3) == ((int64_t)1 << 40) + 2);
	assert_true(round_up_size(0, 8) == 0);
	assert_true(round_up_size(9, 8) == 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(minimum_and_maximum_keep_the_sign_and_the_range_of_their_type),
		cmocka_unit_test(a_nan_yields_the_second_argument),
		cmocka_unit_test(a_value_is_clamped_to_both_ends_of_the_range),
		cmocka_unit_test(numbers_are_rounded_up_to_a_multiple),
	};
	return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
