/* Tests what the agent reports about a step. */
#include "agent/engine/train/phases.h"
#include "agent/metrics/report.h"
#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void a_report_keeps_every_bit_of_its_numbers(void **state)
{
	(void)state;
	struct step_report r = {
		.step = 7,
		.samples = 1ll << 40,
		.tokens = 2048,
		.loss = 1.0 / 3,
		.grad_norm = nextafter(2.0, 3.0),
		.lr = 3e-4,
		.step_s = 0.25,
		.peak_bytes = 5,
	};
	json_t *o = agent_report_step(&r);
	char *text = json_dumps(o, JSON_COMPACT);
	json_t *back = json_loads(text, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(back, "step")), 7);
	assert_int_equal(json_integer_value(json_object_get(back, "samples")), 1ll << 40);
	assert_true(json_real_value(json_object_get(back, "loss")) == r.loss);
	assert_true(json_real_value(json_object_get(back, "grad_norm")) == r.grad_norm);
	assert_int_equal(json_object_size(back), 19);
	json_decref(back);
	free(text);
	json_decref(o);
}

static void what_routers_add_to_the_loss_is_told_apart(void **state)
{
	(void)state;
	struct step_report r = { .loss = 5.5,
				 .routed = true,
				 .cross_entropy = 4,
				 .balance_loss = 1.25,
				 .z_loss = 0.25 };
	json_t *o = agent_report_step(&r);
	assert_true(json_real_value(json_object_get(o, "loss")) == 5.5);
	assert_true(json_real_value(json_object_get(o, "cross_entropy")) == 4);
	assert_true(json_real_value(json_object_get(o, "balance_loss")) == 1.25);
	assert_true(json_real_value(json_object_get(o, "z_loss")) == 0.25);
	assert_int_equal(json_object_size(o), 22);
	json_decref(o);
}

static void what_no_part_claims_is_other_and_all_are_the_step(void **state)
{
	(void)state;
	struct step_report r = { .step_s = 10,
				 .data_s = 1,
				 .compute_s = 2,
				 .recompute_s = 0.5,
				 .tp_s = 0.25,
				 .dp_s = 1,
				 .optimizer_s = 2,
				 .checkpoint_s = 1 };
	train_step_report_close(&r);
	assert_true(r.other_s == 2.25 && r.step_s == 10);
	r = (struct step_report){ .step_s = 1, .cp_s = 0.5, .ep_s = 0.25, .pp_s = 0.5 };
	train_step_report_close(&r);
	assert_true(r.other_s == 0 && r.step_s == 1.25);
}

static void what_json_cannot_hold_is_null(void **state)
{
	(void)state;
	struct step_report r = { .loss = NAN, .grad_norm = INFINITY };
	json_t *o = agent_report_step(&r), *eval = agent_report_eval(3, NAN);
	assert_true(json_is_null(json_object_get(o, "loss")));
	assert_true(json_is_null(json_object_get(o, "grad_norm")));
	assert_true(json_is_null(json_object_get(eval, "loss")));
	json_decref(o);
	json_decref(eval);
}

static void laps_add_up_under_their_names(void **state)
{
	(void)state;
	struct phases p = { 0 };
	double start = clock_s(), since = start, sum = 0;
	for (int i = 0; i < 3; i++) {
		sum += train_phases_lap(&p, "a", &since);
		sum += train_phases_lap(&p, "b", &since);
	}
	assert_int_equal(p.n, 2);
	assert_true(fabs(sum - (since - start)) < 1e-9);
	assert_true(fabs(p.rows[0].seconds + p.rows[1].seconds - sum) < 1e-9);
	json_t *o = train_phases_json(&p);
	assert_int_equal(json_object_size(o), 2);
	json_decref(o);
}

static void too_many_names_lose_no_time(void **state)
{
	(void)state;
	static const char *const names[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
					     "a", "b", "c", "d", "e", "f", "g", "h", "i" };
	struct phases p = { 0 };
	double start = clock_s(), since = start, sum = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		train_phases_lap(&p, names[i], &since);
	for (int i = 0; i < p.n; i++)
		sum += p.rows[i].seconds;
	assert_int_equal(p.n, PHASES_MAX);
	assert_true(fabs(sum - (since - start)) < 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_keeps_every_bit_of_its_numbers),
		cmocka_unit_test(what_routers_add_to_the_loss_is_told_apart),
		cmocka_unit_test(what_no_part_claims_is_other_and_all_are_the_step),
		cmocka_unit_test(what_json_cannot_hold_is_null),
		cmocka_unit_test(laps_add_up_under_their_names),
		cmocka_unit_test(too_many_names_lose_no_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
