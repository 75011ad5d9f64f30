/* Compares the elementary functions of the cpu backend with libm's in double. */
#include "kernels/cpu/vmath.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Returns the distance in units of the last place of the exact value, for normal floats. */
static double ulps(float got, double exact)
{
	int exponent;
	frexp(exact, &exponent);
	return fabs((double)got - exact) / ldexp(1, exponent - 24);
}

static void exp_is_good_to_two_ulps(void **state)
{
	(void)state;
	double worst = 0;
	for (double x = -86.4; x < 88.7; x += 1.0 / 4099)
		worst = fmax(worst, ulps(v_exp((float)x), exp((double)(float)x)));
	print_message("worst error of v_exp: %.2f ulp\n", worst);
	assert_true(worst < 2);
}

static void exp_ends_in_zero_and_infinity(void **state)
{
	(void)state;
	assert_true(v_exp(0) == 1 && v_exp(-0.0f) == 1);
	assert_true(v_exp(-87) == 0 && v_exp(-1e30f) == 0 && v_exp(-INFINITY) == 0);
	assert_true(isfinite(v_exp(88.7f)) && isinf(v_exp(88.8f)) && isinf(v_exp(1e30f)) &&
		    isinf(v_exp(INFINITY)));
	assert_true(isnan(v_exp(NAN)));
}

static void sigmoid_is_between_zero_and_one(void **state)
{
	(void)state;
	assert_true(v_sigmoid(0) == 0.5f && v_sigmoid(-200) == 0 && v_sigmoid(200) == 1);
	for (double x = -80; x < 80; x += 0.37)
		assert_true(ulps(v_sigmoid((float)x), 1 / (1 + exp(-(double)(float)x))) < 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exp_is_good_to_two_ulps),
		cmocka_unit_test(exp_ends_in_zero_and_infinity),
		cmocka_unit_test(sigmoid_is_between_zero_and_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
