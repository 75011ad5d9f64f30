/* Where an agent's time goes: nothing is counted twice or left out, and the supervisor is told in time. */
#include "agent/times.h"
#include "base/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

enum { SECOND = 1000000, EVALUATION = TIME_EVALUATION - TIME_STEP };

static int64_t sum_of(const struct train_times *t)
{
	int64_t sum = 0;
	for (int i = 0; i < TIME_REPORTED; i++)
		sum += t->us[i];
	return sum;
}

static void what_belongs_to_no_part_is_other(void **state)
{
	(void)state;
	struct train_times t;
	train_times_begin(&t, 5, 100 * SECOND);
	train_times_step(&t, &(struct step_report){ .step = 6, .compute_s = 2, .dp_s = 1 },
			 104 * SECOND);
	assert_int_equal(t.step, 6);
	assert_int_equal(t.us[STEP_PART_COMPUTE], 2 * SECOND);
	assert_int_equal(t.us[STEP_PART_DP], 1 * SECOND);
	assert_int_equal(t.us[STEP_PART_OTHER], 1 * SECOND);
	train_times_between(&t, 3, 0.5, 108 * SECOND);
	assert_int_equal(t.us[EVALUATION], 3 * SECOND);
	assert_int_equal(t.us[STEP_PART_CHECKPOINT], SECOND / 2);
	assert_int_equal(t.us[STEP_PART_OTHER], 1 * SECOND + SECOND / 2);
}

/* The report of a step has the checkpoint and the pause before it, which are accounted for already. */
static void a_checkpoint_is_counted_once(void **state)
{
	(void)state;
	struct train_times t;
	train_times_begin(&t, 0, 0);
	train_times_between(&t, 0, 1, 1 * SECOND);
	train_times_step(&t, &(struct step_report){ .checkpoint_s = 1, .other_s = 1, .tp_s = 2 },
			 4 * SECOND);
	assert_int_equal(t.us[STEP_PART_CHECKPOINT], 1 * SECOND);
	assert_int_equal(t.us[STEP_PART_OTHER], 1 * SECOND);
	assert_int_equal(t.us[STEP_PART_TP], 2 * SECOND);
}

static void parts_that_overlap_are_reduced_alike(void **state)
{
	(void)state;
	struct train_times t;
	train_times_begin(&t, 0, 0);
	train_times_step(&t, &(struct step_report){ .compute_s = 6, .dp_s = 2, .pp_s = -1 },
			 4 * SECOND);
	assert_int_equal(t.us[STEP_PART_COMPUTE], 3 * SECOND);
	assert_int_equal(t.us[STEP_PART_DP], 1 * SECOND);
	assert_int_equal(sum_of(&t), 4 * SECOND);
}

static void the_parts_add_up_to_the_time_that_has_passed(void **state)
{
	(void)state;
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	print_message("SEED=%u\n", seed);
	srand(seed);
	struct train_times t;
	int64_t now = 1 + rand();
	const int64_t begin = now;
	train_times_begin(&t, 0, now);
	for (int i = 0; i < 100000; i++) {
		double x = 1e-6 * (rand() % 1000), y = 1e-6 * (rand() % 1000);
		now += rand() % 1500;
		if (rand() % 2)
			train_times_step(&t, &(struct step_report){ .compute_s = x, .dp_s = y },
					 now);
		else
			train_times_between(&t, x, y, now);
		assert_int_equal(sum_of(&t), now - begin);
	}
}

/* --- the message ------------------------------------------------------------------------ */

static struct times m;

static void open_times(int world)
{
	agent_times_init(&m, world, 0);
}

static void train(int64_t step)
{
	agent_times_set(&m, &(struct train_times){ .step = step, .us = { [STEP_PART_PP] = 7 } });
}

/* Whether a message is due, and is of this step. */
static bool is_due(double now, int64_t step)
{
	struct train_times sums;
	struct msg_times read;
	if (!agent_times_due(&m, now, &sums))
		return false;
	agent_times_settle(&m);
	json_t *due = agent_times_json(&sums);
	int64_t us[TIME_REPORTED];
	assert_int_equal(msg_times_read(due, &read, NULL), 0);
	assert_int_equal(read.step, step);
	assert_int_equal(time_reported_read(read.us, us, NULL), 0);
	assert_int_equal(us[STEP_PART_PP], 7);
	json_decref(due);
	return true;
}

static void no_message_is_sent_of_a_rank_that_is_not_ready(void **state)
{
	(void)state;
	open_times(2);
	train(1);
	assert_false(is_due(100, 1));
	assert_null(agent_times_next(&m, 100, 0));
	agent_times_begin(&m, 100);
	assert_false(is_due(200, 1)); /* these are the times of the last generation */
	train(2);
	assert_true(is_due(200, 2));
	agent_times_end(&m);
	train(3);
	assert_false(is_due(300, 3));
	agent_times_fini(&m);
}

static void messages_come_soon_then_every_few_seconds_and_only_with_news(void **state)
{
	(void)state;
	open_times(2);
	agent_times_begin(&m, 0);
	train(1);
	assert_false(is_due(0.4, 1));
	assert_true(is_due(0.5, 1));
	double last = 0.5;
	for (int i = 0; i < 10; i++) {
		train(2);
		double next = last + (i < 3 ? 1 << i : 5);
		assert_false(is_due(next - 0.1, 2));
		assert_true(is_due(next, 2));
		last = next;
	}
	assert_false(is_due(last + 100, 2));
	train(3);
	assert_null(agent_times_next(&m, last + 0.05, 0.1));
	json_t *before_the_end = agent_times_next(&m, last + 0.05, 0);
	assert_non_null(before_the_end);
	json_decref(before_the_end);
	agent_times_fini(&m);
}

/* Another rank of the node may hand them on, and may not do so. */
static void times_are_owed_until_they_are_settled(void **state)
{
	(void)state;
	struct train_times sums;
	open_times(2);
	agent_times_begin(&m, 0);
	assert_false(agent_times_owed(&m, &sums));
	train(1);
	assert_true(agent_times_due(&m, 1, &sums));
	assert_true(agent_times_owed(&m, &sums));
	assert_int_equal(sums.step, 1);
	assert_null(agent_times_next(&m, 1.5, 0.1));
	json_t *before_the_end = agent_times_next(&m, 1.5, 0);
	assert_non_null(before_the_end);
	assert_false(agent_times_owed(&m, &sums));
	assert_null(agent_times_next(&m, 1.6, 0));
	train(2);
	assert_true(agent_times_due(&m, 10, &sums));
	agent_times_settle(&m);
	assert_false(agent_times_owed(&m, &sums));
	json_decref(before_the_end);
	agent_times_fini(&m);
}

static void messages_of_many_ranks_are_rarer(void **state)
{
	(void)state;
	open_times(10000);
	agent_times_begin(&m, 0);
	double last = 0;
	for (int i = 0; i < 10; i++) {
		train(1);
		last += 100;
		assert_true(is_due(last, 1));
	}
	train(2);
	assert_false(is_due(last + 99, 2));
	agent_times_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_belongs_to_no_part_is_other),
		cmocka_unit_test(a_checkpoint_is_counted_once),
		cmocka_unit_test(parts_that_overlap_are_reduced_alike),
		cmocka_unit_test(the_parts_add_up_to_the_time_that_has_passed),
		cmocka_unit_test(no_message_is_sent_of_a_rank_that_is_not_ready),
		cmocka_unit_test(messages_come_soon_then_every_few_seconds_and_only_with_news),
		cmocka_unit_test(times_are_owed_until_they_are_settled),
		cmocka_unit_test(messages_of_many_ranks_are_rarer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
