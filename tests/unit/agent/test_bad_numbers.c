/* Tests the judgement of a step's numbers: what is not finite, spikes, and series without one. */
#include "agent/engine/train/bad_numbers.h"

#include "base/messages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WINDOW = 64 };

static struct bad_numbers numbers;

static void add_good(int n, double loss, double norm)
{
	for (int i = 0; i < n; i++) {
		struct bad_number bad;
		assert_false(train_bad_judge(&numbers, loss, norm, &bad));
		train_bad_note(&numbers, loss, norm);
	}
}

static void what_is_not_finite_is_bad_at_once(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 0, WINDOW);
	assert_true(train_bad_judge(&numbers, NAN, 1, &bad));
	assert_string_equal(bad.what, "loss");
	assert_true(isnan(bad.value) && isnan(bad.usual));
	assert_true(train_bad_judge(&numbers, 2, INFINITY, &bad));
	assert_string_equal(bad.what, "gradient norm");
	assert_true(isinf(bad.value));
	assert_false(train_bad_judge(&numbers, 1e300, 0, &bad));
}

static void spikes_are_named_with_what_is_usual(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 10, WINDOW);
	for (int i = 0; i < WINDOW; i++)
		add_good(1, 2.5 + 0.02 * (i % 5), 0.5 * (1 + 0.2 * (i % 3)));
	assert_true(train_bad_judge(&numbers, 4, 0.6, &bad));
	assert_string_equal(bad.what, "loss");
	assert_true(bad.value == 4 && fabs(bad.usual - 2.54) < 1e-9 && bad.z > 10);
	assert_true(train_bad_judge(&numbers, 2.5, 60, &bad));
	assert_string_equal(bad.what, "gradient norm");
	assert_true(fabs(bad.usual - 0.6) < 1e-9);
	assert_false(train_bad_judge(&numbers, 0.1, 1e-9, &bad)); /* downward */
	assert_false(train_bad_judge(&numbers, 2.7, 1.2, &bad));
}

static void a_window_must_be_half_full(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 10, WINDOW);
	add_good(WINDOW / 2 - 1, 2, 1);
	assert_false(train_bad_judge(&numbers, 200, 1, &bad));
	add_good(1, 2, 1);
	assert_true(train_bad_judge(&numbers, 200, 1, &bad));
}

static void a_flat_series_gives_no_alarm(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 10, WINDOW);
	add_good(WINDOW, 2, 1);
	assert_false(train_bad_judge(&numbers, 2.39, 12, &bad));
	assert_true(train_bad_judge(&numbers, 2.41, 1, &bad));
	assert_true(train_bad_judge(&numbers, 2, 12.3, &bad));
	train_bad_init(&numbers, 10, WINDOW);
	add_good(WINDOW, 0, 0); /* nothing is usual here */
	assert_false(train_bad_judge(&numbers, 1, 1e-30, &bad));
}

static void a_level_that_was_reached_is_no_spike(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 10, WINDOW);
	add_good(WINDOW / 2 - 1, 2, 1);
	add_good(1, 9, 1); /* before the window is half full */
	add_good(1, 9, 1);
	assert_false(train_bad_judge(&numbers, 9, 1, &bad));
	assert_true(train_bad_judge(&numbers, 9.1, 1, &bad));
	add_good(WINDOW, 2, 1); /* it has left the window */
	assert_true(train_bad_judge(&numbers, 9, 1, &bad));
}

/* A device that judges steps compares with the limits alone. */
static void a_step_is_judged_by_its_limits(void **state)
{
	struct bad_number bad;
	(void)state;
	train_bad_init(&numbers, 10, WINDOW);
	assert_true(isinf(numbers.loss_limit) && isinf(numbers.norm_limit));
	add_good(WINDOW / 2 - 1, 2, 1);
	assert_true(isinf(numbers.loss_limit) && isinf(numbers.norm_limit));
	add_good(1, 2, 1);
	const double loss = numbers.loss_limit, norm = numbers.norm_limit;
	assert_true(fabs(loss - 2.4) < 1e-12 && fabs(norm - exp(2.5)) < 1e-9);
	assert_false(train_bad_judge(&numbers, loss, norm, &bad));
	assert_true(train_bad_judge(&numbers, nextafter(loss, 3), 1, &bad));
	assert_true(bad.z > 9.999 && bad.z < 10.001);
	assert_true(train_bad_judge(&numbers, 2, nextafter(norm, 13), &bad));
	assert_true(bad.z > 9.999 && bad.z < 10.001);
	/* without spikes there are none */
	train_bad_init(&numbers, 0, WINDOW);
	add_good(WINDOW, 2, 1);
	assert_true(isinf(numbers.loss_limit) && isinf(numbers.norm_limit));
}

/* The limit of the norm is computed from logarithms. */
static void a_norm_that_was_reached_is_below_the_limit(void **state)
{
	struct bad_number bad;
	(void)state;
	for (int i = 0; i < 1000; i++) {
		const double norm = exp(0.01 * (i - 500)) * 1e3;
		train_bad_init(&numbers, 1e-9, WINDOW);
		for (int j = 0; j < WINDOW; j++)
			train_bad_note(&numbers, 2, j < WINDOW / 2 ? norm / 2 : norm);
		assert_false(train_bad_judge(&numbers, 2, norm, &bad));
		assert_true(train_bad_judge(&numbers, 2, norm * 1.001, &bad));
	}
}

static void the_window_is_read_back_from_the_metrics(void **state)
{
	char line[400], text[40000] = "\"cut\":1}\n";
	struct bad_number bad;
	struct err e = ERR_INIT;
	(void)state;
	for (int i = 1; i <= 60; i++) {
		/* A restart after step 40 repeats the steps from 31 on with other numbers. */
		int step = i <= 40 ? i : i - 10;
		struct msg_metrics m = { .step = step,
					 .loss = i <= 30 || i > 40 ? step : 1000,
					 .grad_norm = 1,
					 .has_skipped = step == 45,
					 .skipped = true };
		json_t *o = msg_metrics_json(&m);
		char *dump = json_dumps(o, JSON_COMPACT);
		snprintf(line, sizeof line, "%.390s", dump);
		assert_true(strlen(line) < 390);
		strcat(strcat(text, dump), "\n");
		free(dump);
		json_decref(o);
	}
	train_bad_init(&numbers, 10, 16);
	assert_int_equal(train_bad_read(&numbers, text, strlen(text), 48, &e), 0);
	assert_int_equal(numbers.loss.n, 16);
	/* 32 to 48 without 45 */
	assert_true(train_bad_judge(&numbers, 1000, 1, &bad));
	assert_true(bad.usual == 39.5);
	assert_int_equal(train_bad_read(&numbers, "", 0, 48, &e), 0);
}

static double uniform(void)
{
	return (rand() + 0.5) / ((double)RAND_MAX + 1);
}

static double normal(void)
{
	return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform());
}

/* A warmup, a fall, and noise of a small batch. */
static void healthy_series_give_no_alarm(void **state)
{
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	(void)state;
	print_message("SEED=%u\n", seed);
	srand(seed);
	train_bad_init(&numbers, 10, 128);
	for (int step = 0; step < 20000; step++) {
		struct bad_number bad;
		double loss = 2 + 8 * exp(-step / 300.0) + 0.15 * normal();
		double norm = exp(fmin(step / 200.0, 1) - step / 5000.0 + 0.4 * normal());
		if (train_bad_judge(&numbers, loss, norm, &bad))
			fail_msg("step %d: %s %g, usual %g, z %g", step, bad.what, bad.value,
				 bad.usual, bad.z);
		train_bad_note(&numbers, loss, norm);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_finite_is_bad_at_once),
		cmocka_unit_test(spikes_are_named_with_what_is_usual),
		cmocka_unit_test(a_window_must_be_half_full),
		cmocka_unit_test(a_flat_series_gives_no_alarm),
		cmocka_unit_test(a_level_that_was_reached_is_no_spike),
		cmocka_unit_test(a_step_is_judged_by_its_limits),
		cmocka_unit_test(a_norm_that_was_reached_is_below_the_limit),
		cmocka_unit_test(the_window_is_read_back_from_the_metrics),
		cmocka_unit_test(healthy_series_give_no_alarm),
	};
	return cmocka_run_group_tests_name("bad numbers", tests, NULL, NULL);
}
