/* Tests what the supervisor does at bad numbers: it rolls back and skips, ends the run, or
 * restarts. */
#include "launcher/rundir/rollbacks.h"
#include "tests/unit/launcher/harness.h"

#include <math.h>

static void fail_numeric(int rank, const char *code)
{
	send_message(&h.peers[rank], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = code, .text = "step 3" }));
}

static void report_bad_step(int rank, int64_t step, double value, int64_t first)
{
	send_message(&h.peers[rank], MSG_BAD_STEP,
		     msg_bad_step_json(&(struct msg_bad_step){ .step = step,
							       .what = "loss",
							       .value = value,
							       .usual = 2,
							       .first = first,
							       .count = 8 }));
}

/* Each rank reports the step and fails. */
static void meet_bad_step(int64_t step, double value, int64_t first)
{
	for (int r = 0; r < WORLD; r++)
		report_bad_step(r, step, value, first);
	for (int r = 0; r < WORLD; r++)
		if (h.peers[r].channel)
			fail_numeric(r, "numeric");
	deliver_all();
}

static void use(enum job_bad_numbers policy, int64_t max_skips, int64_t max_restarts)
{
	supervise_close(h.supervisor);
	h.first.job.health.bad_numbers = policy;
	h.first.job.health.max_skips = max_skips;
	h.first.job.restart.max_restarts = max_restarts;
	assert_int_equal(open_supervisor(&fake_ops), 0);
}

static void train_to(int64_t step)
{
	train_all();
	send_step(&h.peers[1], MSG_METRICS, step);
}

static void begin(void)
{
	supervise_start(h.supervisor);
	deliver_all();
	train_to(2);
}

static void a_rollback_is_recorded_and_is_no_restart(void **state)
{
	(void)state;
	use(BAD_NUMBERS_SKIP, 3, 0); /* no restart is left from the beginning */
	begin();
	assert_int_equal(h.peers[0].skips, 0);
	meet_bad_step(3, NAN, 16);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"event\":\"rollback\"", "\"first\":16,\"count\":8"), 1);
	assert_int_equal(count_events("\"event\":\"generation-start\"", "\"restarts\":0"), 2);
	train_to(2);
	assert_int_equal(h.peers[0].skips, 1);
	assert_int_equal(h.peers[1].skips, 1);
	meet_bad_step(4, 9.5, 40);
	assert_int_equal(h.starts, 3);
	train_to(2);
	assert_int_equal(h.peers[0].skips, 2);
	bool last;
	assert_int_equal(
		count_printed("step 4: the loss is 9.5, and 2 is usual; the run continues from "
			      "its last checkpoint and skips the samples 40 to 47 (rollback 2 "
			      "of 3)",
			      &last),
		1);
	/* A kill is a loss like any other. */
	end_rank(1);
	assert_int_equal(exit_status(), STATUS_FAILED);
}

static void another_supervisor_of_the_run_skips_the_same(void **state)
{
	(void)state;
	use(BAD_NUMBERS_SKIP, 1, 5);
	begin();
	meet_bad_step(3, NAN, 16);
	assert_int_equal(h.starts, 2);
	h.running = false;
	use(BAD_NUMBERS_SKIP, 1, 5);
	begin();
	assert_int_equal(h.peers[0].skips, 1);
	meet_bad_step(5, NAN, 48); /* the one before it counts, too */
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
	assert_int_equal(count_events("gave-up", "its samples are 48 to 55 of the order; after 1 "
						 "rollback health.max_skips = 1 permits no other"),
			 1);
}

static void stop_ends_the_run_with_the_samples(void **state)
{
	(void)state;
	use(BAD_NUMBERS_STOP, 1, 5);
	begin();
	meet_bad_step(3, NAN, 16);
	assert_int_equal(exit_status(), STATUS_FAILED);
	assert_int_equal(h.starts, 1);
	assert_int_equal(
		count_events("\"event\":\"failed\"",
			     "step 3: the loss is NaN or infinite; its samples are 16 to 23"),
		1);
}

/* With skip_before the record names the last good step. */
static void checkpoints_after_the_first_skipped_batch_are_not_used(void **state)
{
	json_t *list;
	(void)state;
	h.first.job.health.skip_before = 4;
	use(BAD_NUMBERS_SKIP, 3, 5);
	begin();
	send_step(&h.peers[0], MSG_CKPT, 8);
	meet_bad_step(10, NAN, 40);
	assert_int_equal(rundir_rollbacks_read(rundir_path(h.run), &list, NULL), 0);
	const json_t *line = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(line, "resume")), 5);
	assert_int_equal(json_integer_value(json_object_get(line, "generation")), 1);
	json_decref(list);
	train_to(6);
	bool last; /* the checkpoint of step 8 is not missed */
	assert_int_equal(count_printed("is gone or damaged", &last), 0);
}

static void retry_restarts_with_the_same_samples(void **state)
{
	(void)state;
	use(BAD_NUMBERS_RETRY, 1, 5);
	begin();
	meet_bad_step(3, NAN, 16);
	assert_int_equal(h.starts, 2);
	train_to(2);
	assert_int_equal(h.peers[0].skips, 0);
	assert_int_equal(count_events("\"event\":\"rollback\"", ""), 0);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"numeric\""), 1);
}

/* The rank that sent the report dies of something else: the next generation meets the step
 * again. */
static void another_cause_of_the_loss_is_no_rollback(void **state)
{
	(void)state;
	use(BAD_NUMBERS_SKIP, 3, 5);
	begin();
	report_bad_step(0, 3, NAN, 16);
	end_rank(0);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"event\":\"rollback\"", ""), 0);
	train_to(2);
	assert_int_equal(h.peers[0].skips, 0);
	fail_numeric(1, "numeric"); /* without a bad step, such as in an evaluation */
	deliver_all();
	assert_int_equal(count_events("\"event\":\"rollback\"", ""), 0);
}

static void an_impossible_range_is_a_wrong_message(void **state)
{
	(void)state;
	use(BAD_NUMBERS_SKIP, 3, 5);
	begin();
	report_bad_step(0, 3, NAN, INT64_MAX / 2);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"how\":\"protocol\""), 1);
}

static void write_rollbacks(const char *text)
{
	char path[400];
	snprintf(path, sizeof path, "%s/rollbacks.jsonl", rundir_path(h.run));
	FILE *out = fopen(path, "w");
	assert_true(out && fputs(text, out) >= 0 && !fclose(out));
}

static void a_damaged_file_starts_nothing(void **state)
{
	struct err e = ERR_INIT;
	json_t *list;
	(void)state;
	write_rollbacks("{\"first\":1,\"cou");
	assert_int_equal(rundir_rollbacks_read(rundir_path(h.run), &list, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "rollbacks.jsonl: line 1 is damaged"));
	supervise_close(h.supervisor);
	h.supervisor = NULL;
	assert_int_equal(open_supervisor(&fake_ops), -1);
}

/* The rollback does not take place, and the loss is a restart. */
static void what_cannot_be_recorded_is_not_skipped(void **state)
{
	char path[400];
	(void)state;
	use(BAD_NUMBERS_SKIP, 3, 5);
	begin();
	snprintf(path, sizeof path, "%s/rollbacks.jsonl", rundir_path(h.run));
	assert_int_equal(mkdir(path, 0700), 0);
	meet_bad_step(3, NAN, 16);
	assert_int_equal(h.starts, 2);
	train_to(2);
	assert_int_equal(h.peers[0].skips, 0);
	assert_int_equal(count_events("\"event\":\"generation-start\"", "\"restarts\":1"), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_rollback_is_recorded_and_is_no_restart),
		TEST(another_supervisor_of_the_run_skips_the_same),
		TEST(stop_ends_the_run_with_the_samples),
		TEST(checkpoints_after_the_first_skipped_batch_are_not_used),
		TEST(retry_restarts_with_the_same_samples),
		TEST(another_cause_of_the_loss_is_no_rollback),
		TEST(an_impossible_range_is_a_wrong_message),
		TEST(a_damaged_file_starts_nothing),
		TEST(what_cannot_be_recorded_is_not_skipped),
	};
	return cmocka_run_group_tests_name("rollback", tests, NULL, NULL);
}
