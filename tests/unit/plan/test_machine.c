/* Curves of rates, and the times that follow from them. */
#include "plan/cost/machine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct rate_curve slope = { 3, { 1e3, 1e5, 1e7 }, { 1e9, 3e9, 2e9 } };

static void near(double x, double expected)
{
	assert_true(fabs(x - expected) <= 1e-9 * fabs(expected));
}

static void a_curve_is_interpolated(void **state)
{
	(void)state;
	near(cost_curve_at(&slope, 1), 1e9);
	near(cost_curve_at(&slope, 1e3), 1e9);
	near(cost_curve_at(&slope, 1e4), 2e9);
	near(cost_curve_at(&slope, 1e5), 3e9);
	near(cost_curve_at(&slope, 1e6), 2.5e9);
	near(cost_curve_at(&slope, 1e12), 2e9);
}

static void a_curve_of_one_point_is_constant(void **state)
{
	const struct rate_curve flat = { 1, { 1e6 }, { 5e9 } };
	(void)state;
	near(cost_curve_at(&flat, 1), 5e9);
	near(cost_curve_at(&flat, 1e9), 5e9);
	near(cost_curve_at(&(struct rate_curve){ 0 }, 1e9) + 1, 1);
}

static void an_operation_takes_its_work_and_its_start(void **state)
{
	const struct cost_machine m = {
		.rates = { [RATE_PRODUCT_FWD] = slope, [RATE_MOVED] = { 1, { 1 }, { 1e9 } } },
		.packing = { [RATE_PRODUCT_FWD] = 4e9 },
		.op = 1e-6
	};
	(void)state;
	near(cost_machine_seconds(&m, RATE_PRODUCT_FWD, 1e7), 5e-3 + 1e-6);
	near(cost_machine_seconds(&m, RATE_MOVED, 1e6), 1e-3 + 1e-6);
	near(cost_machine_seconds(&m, RATE_PRODUCT_FWD, 0) + 1, 1);
	/* the rate of 1e4 */
	near(cost_machine_attention(&m, ATTENTION_MUSTER, RATE_ATTENTION_FWD, 1e8, 1e3, 10),
	     0.05 + 1e-6);
	/* 2 · 10 · 20 · 25 = 1e4 FLOPs at 2e9, and 4 · 500 bytes. */
	near(cost_machine_product(&m, RATE_PRODUCT_WEIGHT, 10, 20, 25, 4), 5e-6 + 1e-6);
	near(cost_machine_product(&m, RATE_PRODUCT_FWD, 10, 20, 25, 4), 5e-6 + 1e-6 + 2000 / 4e9);
}

static void a_class_without_a_curve_uses_that_of_its_kind(void **state)
{
	struct cost_machine m = {
		.rates = { [RATE_PRODUCT_FWD] = slope, [RATE_MOVED] = { 1, { 1 }, { 1e9 } } }
	};
	(void)state;
	near(cost_machine_seconds(&m, RATE_PRODUCT_WEIGHT, 1e7), 5e-3);
	near(cost_machine_seconds(&m, RATE_ATTENTION_BWD, 1e7), 5e-3);
	near(cost_machine_seconds(&m, RATE_OPTIMIZER, 1e6), 1e-3);
	m.rates[RATE_ATTENTION_FWD] = (struct rate_curve){ 1, { 1 }, { 4e9 } };
	near(cost_machine_seconds(&m, RATE_ATTENTION_BWD, 1e7), 2.5e-3);
	m.rates[RATE_OPTIMIZER] = (struct rate_curve){ 1, { 1 }, { 2e9 } };
	near(cost_machine_seconds(&m, RATE_OPTIMIZER, 1e6), 5e-4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_curve_is_interpolated),
		cmocka_unit_test(a_curve_of_one_point_is_constant),
		cmocka_unit_test(an_operation_takes_its_work_and_its_start),
		cmocka_unit_test(a_class_without_a_curve_uses_that_of_its_kind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
