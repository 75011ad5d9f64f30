/* An overflow halves the loss scale and skips the step. A window of good steps doubles the scale.
 * The scale survives a checkpoint. */
#include "agent/engine/optim/scaler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct scaler scaler_of(enum job_dtype dtype, double scale, int64_t window)
{
	struct job job = {
		.precision = { .dtype = dtype, .loss_scale = scale, .loss_scale_window = window }
	};
	struct scaler s;
	optim_scaler_init(&s, &job);
	return s;
}

static void other_precisions_do_not_scale_and_fail_if_not_finite(void **state)
{
	(void)state;
	for (int d = DTYPE_FP32; d <= DTYPE_BF16; d++) {
		struct scaler s = scaler_of((enum job_dtype)d, 0, 2);
		struct err e = ERR_INIT;
		for (int i = 0; i < 5; i++)
			assert_int_equal(optim_scaler_update(&s, true, &e), 1);
		assert_true(s.scale == 1);
		assert_int_equal(optim_scaler_update(&s, false, &e), -1);
		assert_int_equal(e.code, ERR_NUMERIC);
	}
}

static void a_dynamic_scale_halves_and_doubles(void **state)
{
	struct scaler s = scaler_of(DTYPE_FP16, 0, 3);
	struct err e = ERR_INIT;
	(void)state;
	assert_true(s.scale == SCALER_FIRST);
	assert_int_equal(optim_scaler_update(&s, false, &e), 0);
	assert_true(s.scale == SCALER_FIRST / 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(optim_scaler_update(&s, true, &e), 1);
	assert_true(s.scale == SCALER_FIRST / 2);
	/* An overflow restarts the window. */
	assert_int_equal(optim_scaler_update(&s, false, &e), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(optim_scaler_update(&s, true, &e), 1);
	assert_true(s.scale == SCALER_FIRST / 2);
}

static void a_dynamic_scale_stays_within_its_limits(void **state)
{
	struct scaler s = scaler_of(DTYPE_FP16, 0, 1);
	struct err e = ERR_INIT;
	(void)state;
	for (int i = 0; i < 40; i++)
		assert_int_equal(optim_scaler_update(&s, true, &e), 1);
	assert_true(s.scale == SCALER_MAX);
	for (int i = 0; i < 24; i++)
		assert_int_equal(optim_scaler_update(&s, false, &e), 0);
	assert_true(s.scale == 1);
	assert_int_equal(optim_scaler_update(&s, false, &e), -1);
	assert_non_null(strstr(e.text, "bf16"));
}

static void a_fixed_scale_never_changes(void **state)
{
	struct scaler s = scaler_of(DTYPE_FP16, 128, 1);
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(optim_scaler_update(&s, true, &e), 1);
	optim_scaler_resume(&s, 4, 0);
	assert_true(s.scale == 128);
	assert_int_equal(optim_scaler_update(&s, false, &e), -1);
	assert_non_null(strstr(e.text, "loss_scale = 128"));
}

static void a_resumed_scale_continues_from_the_checkpoint(void **state)
{
	struct scaler s = scaler_of(DTYPE_FP16, 0, 3);
	struct err e = ERR_INIT;
	(void)state;
	optim_scaler_resume(&s, 1024, 2);
	assert_int_equal(optim_scaler_update(&s, true, &e), 1);
	assert_true(s.scale == 2048);
	optim_scaler_resume(&s, NAN, 0); /* an invalid number is ignored */
	assert_true(s.scale == 2048);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_precisions_do_not_scale_and_fail_if_not_finite),
		cmocka_unit_test(a_dynamic_scale_halves_and_doubles),
		cmocka_unit_test(a_dynamic_scale_stays_within_its_limits),
		cmocka_unit_test(a_fixed_scale_never_changes),
		cmocka_unit_test(a_resumed_scale_continues_from_the_checkpoint),
	};
	return cmocka_run_group_tests_name("loss scale", tests, NULL, NULL);
}
