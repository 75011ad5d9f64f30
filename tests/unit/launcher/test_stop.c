/* What follows when the run is asked to stop: the cause, the requeue of the job, and the time limit. Slurm
 * is a double. */
#include "tests/unit/launcher/slurm_double.h"

static void stop_for(enum stop_cause cause)
{
	start_training(-1);
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	assert_true(h.peers[0].stopped); /* it waits for no answer */
	answer(cause, 60);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_preempted_job_is_requeued_after_its_checkpoint(void **state)
{
	(void)state;
	stop_for(STOP_PREEMPTED);
	assert_int_equal(slurm.requeues, 1);
	assert_int_equal(count_events("stop-cause", "\"preempted\""), 1);
	assert_int_equal(count_events("\"requeued\"", ""), 1);
}

static void a_job_at_its_time_limit_is_requeued(void **state)
{
	(void)state;
	stop_for(STOP_TIME_LIMIT);
	assert_int_equal(slurm.requeues, 1);
}

static void what_a_person_ends_stays_ended(void **state)
{
	(void)state;
	stop_for(STOP_BY_PERSON);
	assert_int_equal(slurm.requeues, 0);
}

static void a_cancelled_or_requeued_job_is_left_as_it_is(void **state)
{
	(void)state;
	stop_for(STOP_CANCELLED);
	assert_int_equal(slurm.requeues, 0);
}

static void requeue_no_is_obeyed(void **state)
{
	bool last;
	(void)state;
	h.first.job.slurm.requeue = false;
	stop_for(STOP_PREEMPTED);
	assert_int_equal(slurm.requeues, 0);
	assert_int_equal(count_printed("requeue = no", &last), 1);
}

static void a_refused_requeue_is_said(void **state)
{
	bool last;
	(void)state;
	slurm.refuse = true;
	stop_for(STOP_PREEMPTED);
	assert_int_equal(slurm.requeues, 1);
	assert_int_equal(count_printed("cannot be requeued: scontrol failed", &last), 1);
	assert_int_equal(count_events("\"requeued\"", ""), 0);
}

/* Otherwise it would repeat the same for ever. */
static void a_job_without_a_step_is_not_requeued_at_its_time_limit(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_all();
	supervise_stop(h.supervisor, "Terminated", false);
	answer(STOP_TIME_LIMIT, 60);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 0);
}

/* Slurm's signal may come a minute early, right after the start of a short job. */
static void a_job_that_had_no_time_is_requeued(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_all();
	supervise_stop(h.supervisor, "Terminated", false);
	answer(STOP_TIME_LIMIT, 110);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 1);
}

static void an_answer_that_is_late_is_waited_for(void **state)
{
	(void)state;
	start_training(-1);
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	finish_all();
	assert_int_equal(exit_status(), -1);
	answer(STOP_PREEMPTED, 60);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 1);
}

static void an_answer_that_never_comes_ends_the_run_all_the_same(void **state)
{
	(void)state;
	start_training(-1);
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	finish_all();
	pass_time(10);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 0);
}

static void a_query_that_cannot_start_delays_nothing(void **state)
{
	(void)state;
	start_training(-1);
	slurm.broken = true;
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(count_events("stop-cause", "cannot start another process"), 1);
}

static void a_second_signal_asks_no_second_question(void **state)
{
	(void)state;
	start_training(-1);
	supervise_stop(h.supervisor, "Terminated", false);
	supervise_stop(h.supervisor, "Terminated", false);
	assert_int_equal(slurm.queries, 2); /* the first one was about the time limit */
	answer(STOP_BY_PERSON, -1);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static json_t *checkpoint_of(double seconds)
{
	return msg_ckpt_json(&(struct msg_ckpt){ .step = 4, .path = "ckpt/x", .seconds = seconds });
}

/* Trains on, with a message of each rank in each second. */
static void train_until(double end)
{
	while (h.now < end && !h.peers[0].stopped) {
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, (int64_t)h.now);
		pass_time(1);
		if (slurm.done)
			answer(STOP_BY_PERSON, 1000 - (h.now - 1000));
	}
}

static void a_long_checkpoint_begins_early_enough(void **state)
{
	(void)state;
	start_training(1000);
	send_message(&h.peers[0], MSG_CKPT, checkpoint_of(200));
	train_until(1560);
	assert_false(h.peers[0].stopped);
	train_until(2000);
	assert_true(h.peers[0].stopped);
	assert_true(h.now <= 2000 - 2 * 200);
	/* Slurm knows of no limit that is near, and still this was the reason. */
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 1);
	assert_int_equal(count_events("stop-cause", "\"time-limit\""), 1);
}

/* slurmctld does not answer any more. */
static void the_stop_begins_in_time_without_an_answer(void **state)
{
	(void)state;
	start_training(1000);
	send_message(&h.peers[0], MSG_CKPT, checkpoint_of(200));
	for (int i = 0; i < 700 && !h.peers[0].stopped; i++) {
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, 5 + i);
		pass_time(1);
		if (slurm.done)
			answer_nothing();
	}
	assert_true(h.peers[0].stopped);
}

static void a_time_limit_that_was_raised_stops_nothing(void **state)
{
	(void)state;
	start_training(100);
	for (int i = 0; i < 120; i++) {
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, 5 + i);
		pass_time(1);
		if (slurm.done)
			answer(STOP_BY_PERSON, 100000);
	}
	assert_false(h.peers[0].stopped);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define STOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup_slurm, teardown)
		STOP_TEST(a_preempted_job_is_requeued_after_its_checkpoint),
		STOP_TEST(a_job_at_its_time_limit_is_requeued),
		STOP_TEST(what_a_person_ends_stays_ended),
		STOP_TEST(a_cancelled_or_requeued_job_is_left_as_it_is),
		STOP_TEST(requeue_no_is_obeyed),
		STOP_TEST(a_refused_requeue_is_said),
		STOP_TEST(a_job_without_a_step_is_not_requeued_at_its_time_limit),
		STOP_TEST(a_job_that_had_no_time_is_requeued),
		STOP_TEST(an_answer_that_is_late_is_waited_for),
		STOP_TEST(an_answer_that_never_comes_ends_the_run_all_the_same),
		STOP_TEST(a_query_that_cannot_start_delays_nothing),
		STOP_TEST(a_second_signal_asks_no_second_question),
		STOP_TEST(a_long_checkpoint_begins_early_enough),
		STOP_TEST(the_stop_begins_in_time_without_an_answer),
		STOP_TEST(a_time_limit_that_was_raised_stops_nothing),
	};
	return cmocka_run_group_tests_name("why a run stops, and what follows", tests, NULL, NULL);
}
