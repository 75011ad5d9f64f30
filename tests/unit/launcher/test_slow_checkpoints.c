/* A folder of checkpoints that becomes slow, or is too slow for the run, is named. */
#include "tests/unit/launcher/harness.h"

static int setup_training(void **state)
{
	if (setup(state))
		return -1;
	supervise_start(h.supervisor);
	train_all();
	return 0;
}

static json_t *finding_json(const char *kind, double share, const char *text)
{
	return msg_finding_json(
		&(struct msg_finding){ .kind = kind, .share = share, .object = "", .text = text });
}

/* The disk is not what explains most. */
static void report_health(int rank)
{
	static int64_t number;
	json_t *list = json_array();
	json_array_append_new(list, finding_json("delay", 0.4, "it waited for a core"));
	json_array_append_new(list,
			      finding_json("disk", 0.2, "a request to disk sda takes 140 ms"));
	send_message(&h.peers[rank], MSG_HEALTH,
		     msg_health_json(&(struct msg_health){ .number = ++number, .findings = list }));
	json_decref(list);
}

/* The ranks go on for 20 s. */
static void pass_interval(void)
{
	static int64_t count;
	for (int i = 0; i < 20; i++) {
		count++;
		for (int r = 0; r < WORLD; r++)
			send_message(&h.peers[r], MSG_PROGRESS,
				     msg_progress_json(&(struct msg_progress){
					     .step = count, .phase = "forward", .count = count }));
		pass_time(1);
	}
}

static void commit(double seconds, double stall)
{
	static int64_t step;
	pass_interval();
	send_message(
		&h.peers[0], MSG_CKPT,
		msg_ckpt_json(&(struct msg_ckpt){
			.step = ++step, .path = "ckpt/x", .seconds = seconds, .stall_s = stall }));
}

static void a_slow_checkpoint_is_named_with_the_disk(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		commit(1 + 0.4 * i, 0.1);
	assert_int_equal(count_events("\"slow-ckpt\"", ""), 0);
	report_health(1);
	commit(12, 0.1);
	commit(13, 0.1);
	assert_int_equal(count_events("\"slow-ckpt\"", ""), 1);
	assert_int_equal(count_events("\"slow-ckpt\"", "took 12.0 s, and 1.80 s is usual"), 1);
	assert_int_equal(count_events("\"slow-ckpt\"", ", a request to disk sda takes 140 ms"), 1);
	commit(2, 0.1);
	assert_int_equal(count_events("\"slow-ckpt\"", "\"slow\":false"), 1);
}

static void short_checkpoints_are_never_slow(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		commit(0.02, 0);
	commit(1.9, 0);
	commit(0, 0);
	assert_int_equal(count_events("\"slow-ckpt\"", ""), 0);
}

static void checkpoints_that_hold_up_training_are_named(void **state)
{
	(void)state;
	commit(18, 0.1);
	commit(18, 5); /* one alone is none: the last one of a run waits, too */
	commit(18, 0.1);
	commit(18, 5);
	assert_int_equal(count_events("\"slow-ckpt\"", ""), 0);
	commit(18, 5);
	assert_int_equal(count_events("\"slow-ckpt\"", "% of the time: each takes 18.0 s"), 1);
	assert_int_equal(count_events("\"slow-ckpt\"", "look at the file system of ckpt/x"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CKPT_TEST(f) cmocka_unit_test_setup_teardown(f, setup_training, teardown)
		CKPT_TEST(a_slow_checkpoint_is_named_with_the_disk),
		CKPT_TEST(short_checkpoints_are_never_slow),
		CKPT_TEST(checkpoints_that_hold_up_training_are_named),
	};
	return cmocka_run_group_tests_name("a slow folder of checkpoints", tests, NULL, NULL);
}
