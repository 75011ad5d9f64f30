/* Predicted against measured values: times that add up, the rank whose memory differs most, and
 * transfers that exceed their prediction. */
#include "launcher/rundir/likely.h"
#include "launcher/supervise/contract.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void assert_near(double x, double expected)
{
	assert_true(fabs(x - expected) < 1e-9);
}

static double get_number(const json_t *o, const char *side, const char *field)
{
	return json_number_value(json_object_get(json_object_get(o, side), field));
}

static void add_step(struct contract *c, double compute, double tp, double other)
{
	const struct msg_metrics m = {
		.compute_s = compute, .tp_s = tp, .other_s = other, .dp_s = -1, .ep_s = NAN
	};
	supervise_contract_step(c, &m);
}

static void parts_are_means_and_the_step_is_their_sum(void **state)
{
	(void)state;
	struct contract c = { 0 };
	const double predicted[STEP_PART_COUNT] = {
		[STEP_PART_COMPUTE] = 2, [STEP_PART_TP] = 0.5, [STEP_PART_DATA] = 0.25
	};
	add_step(&c, 1, 0.5, 0.1);
	add_step(&c, 3, 0.7, 0.1);
	json_t *o = supervise_contract_json(&c, predicted);
	assert_int_equal(json_integer_value(json_object_get(o, "steps")), 2);
	assert_near(get_number(o, "measured", "compute_s"), 2);
	assert_near(get_number(o, "measured", "tp_s"), 0.6);
	assert_near(get_number(o, "measured", "dp_s"), 0);
	assert_near(get_number(o, "measured", "step_s"), 2.7);
	assert_near(get_number(o, "predicted", "step_s"), 2.75);
	assert_null(json_object_get(o, "memory"));
	json_decref(o);
}

static void a_plans_parts_add_up_and_checkpoints_count(void **state)
{
	(void)state;
	struct node_kind kind = { .device = "cpu",
				  .devices = 1,
				  .cores = 1,
				  .device_flops = 1e10,
				  .device_bandwidth = 1e10 };
	struct cluster_node node = { "n", 0, 0, 0 };
	const struct cluster cluster = {
		.kinds = &kind, .n_kinds = 1, .nodes = &node, .n_nodes = 1
	};
	struct plan_rank rank = { .threads = 1 };
	struct job job = { .checkpoint = { .every = 4 } };
	struct plan plan = {
		.shape = { .layers = 1,
			   .hidden = 8,
			   .heads = 1,
			   .kv_heads = 1,
			   .head_dim = 8,
			   .ffn = 8,
			   .vocab = 8,
			   .seq = 8 },
		.world = 1,
		.threads = 1,
		.ranks = &rank,
		.layout = { .tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 },
		.time = { .compute = 1,
			  .recompute = 0.5,
			  .pp = -1e-18,
			  .optimizer = 0.25,
			  .total = 1.875 },
	};
	double parts[STEP_PART_COUNT], sum = 0;
	supervise_contract_predicted(&job, &cluster, &plan, parts);
	assert_near(parts[STEP_PART_OTHER], 0.125);
	assert_near(parts[STEP_PART_PP], 0);
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum += parts[i];
	assert_near(sum, 1.875 + parts[STEP_PART_CHECKPOINT]);
	assert_true(parts[STEP_PART_CHECKPOINT] > 0);
}

static void times_lie_within_below_or_above_what_is_likely(void **state)
{
	static const struct {
		double measured, least, most;
		const char *expected;
	} rows[] = {
		{ 1.1, 1, 1.2, "within the likely 1.00 s to 1.20 s" },
		{ 1, 1, 1.2, "within the likely 1.00 s to 1.20 s" },
		{ 1.2, 1, 1.2, "within the likely 1.00 s to 1.20 s" },
		{ 0.99, 1, 1.2, "below the likely 1.00 s to 1.20 s" },
		{ 1.21, 1, 1.2, "above the likely 1.00 s to 1.20 s" },
		{ 0, 1, 1.2, "" },
		{ 1, 0, 1.2, "" },
		{ 1, 1, NAN, "" },
	};
	char out[RUNDIR_LIKELY];
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(rundir_likely_print(rows[i].measured, rows[i].least,
							rows[i].most, out),
				    rows[i].expected);
}

static void the_rank_with_the_largest_memory_difference_is_reported(void **state)
{
	(void)state;
	struct plan_rank ranks[] = { { .total = 100 },
				     { .total = 110, .snapshot = 10 },
				     { .total = 100 } };
	const struct plan plan = { .world = 3, .ranks = ranks };
	struct contract c = { 0 };
	const double none[STEP_PART_COUNT] = { 0 };
	supervise_contract_memory(&c, &plan, 0, 101);
	supervise_contract_memory(&c, &plan, 1, 80);
	supervise_contract_memory(&c, &plan, 2, 120);
	supervise_contract_memory(&c, &plan, 2, 0);
	json_t *o = supervise_contract_json(&c, none);
	assert_near(get_number(o, "memory", "rank"), 1);
	assert_near(get_number(o, "memory", "predicted_bytes"), 100);
	assert_near(get_number(o, "memory", "measured_bytes"), 80);
	json_decref(o);
}

static void transfers_that_take_twice_or_half_the_time_are_reported(void **state)
{
	static const struct {
		double predicted, measured;
		const char *expected;
	} rows[] = {
		{ 0.1, 0.19, NULL },  { 0.1, 0.25, "tensor parallel took 2.5 times" },
		{ 0.01, 0.04, NULL }, { 0, 0.2, "none was predicted" },
		{ 0.4, 0.25, NULL },  { 0.4, 0.1, "took 0.25 of the predicted time" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct contract c = { 0 };
		const double predicted[STEP_PART_COUNT] = {
			[STEP_PART_COMPUTE] = 9, [STEP_PART_TP] = rows[i].predicted
		};
		char text[300] = "";
		add_step(&c, 0.8, rows[i].measured, 0);
		assert_int_equal(supervise_contract_mismatch(&c, predicted, false, text,
							     sizeof text),
				 rows[i].expected != NULL);
		assert_true(!rows[i].expected || strstr(text, rows[i].expected));
		assert_false(supervise_contract_mismatch(&c, predicted, true, text, sizeof text));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_means_and_the_step_is_their_sum),
		cmocka_unit_test(a_plans_parts_add_up_and_checkpoints_count),
		cmocka_unit_test(times_lie_within_below_or_above_what_is_likely),
		cmocka_unit_test(the_rank_with_the_largest_memory_difference_is_reported),
		cmocka_unit_test(transfers_that_take_twice_or_half_the_time_are_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
