/* The jobs that continue a run: when the next one is queued, and when those that wait are cancelled. The
 * comment of the job. Slurm is a double. */
#include "launcher/rundir/submissions.h"
#include "tests/unit/launcher/slurm_double.h"

/* A line of the run's submissions. by: NULL: `muster submit` queued the job. */
static void add_job(const char *job, const char *by, int64_t resumed)
{
	const struct rundir_submission s = { .submission = 3,
					     .job = job,
					     .has_by = by != NULL,
					     .by = by,
					     .has_resumed = by != NULL,
					     .resumed = resumed };
	assert_int_equal(rundir_submissions_append(rundir_path(h.run), &s, NULL), 0);
}

static int count_jobs(void)
{
	struct rundir_submissions all;
	assert_int_equal(rundir_submissions_read(rundir_path(h.run), &all, NULL), 0);
	int n = all.n;
	rundir_submissions_free(&all);
	return n;
}

static int setup_chain(void **state)
{
	if (setup_slurm(state))
		return -1;
	h.first.job.slurm.chain = true;
	h.first.job.slurm.progress_comment = true;
	h.first.job.checkpoint.every = 10;
	return 0;
}

static void queued_as(const char *id)
{
	void (*done)(void *arg, const char *id, const char *why) = slurm.on_queued;
	assert_non_null(done);
	slurm.on_queued = NULL;
	done(slurm.queue_arg, id, "sbatch failed (1): QOSMaxSubmitJobPerUserLimit");
}

/* Trains with a job that `muster submit` queued, and whose successor is queued. */
static void train_with_successor(void)
{
	add_job("41", NULL, 0);
	start_training(-1);
	pass_time(0.1);
	queued_as("42");
}

static void stop_for(enum stop_cause cause)
{
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	answer(cause, 60);
}

static void the_next_job_is_queued_after_the_first_step(void **state)
{
	(void)state;
	add_job("41", NULL, 0);
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	answer(STOP_BY_PERSON, -1);
	assert_int_equal(slurm.queued, 0);
	send_step(&h.peers[0], MSG_METRICS, 4);
	pass_time(0.1);
	queued_as("42");
	assert_int_equal(count_jobs(), 2);
	assert_int_equal(count_events("\"chain\"", "\"42\""), 1);
	pass_time(100);
	assert_int_equal(slurm.queued, 1);
}

static void without_the_key_no_job_is_queued(void **state)
{
	(void)state;
	h.first.job.slurm.chain = false;
	add_job("41", NULL, 0);
	start_training(-1);
	pass_time(100);
	assert_int_equal(slurm.queued, 0);
}

static void a_job_that_is_recorded_late_queues_the_next_one(void **state)
{
	(void)state;
	start_training(-1);
	pass_time(2);
	assert_int_equal(slurm.queued, 0);
	add_job("41", NULL, 0);
	pass_time(2);
	assert_int_equal(slurm.queued, 1);
}

static void a_job_that_nobody_records_is_reported_once(void **state)
{
	bool last;
	(void)state;
	start_training(-1);
	for (int i = 0; i < 100; i++) {
		pass_time(1);
		send_step(&h.peers[0], MSG_PROGRESS, 5 + i);
		send_step(&h.peers[1], MSG_PROGRESS, 5 + i);
		if (i == 10)
			assert_int_equal(count_printed("cannot be queued yet", &last), 0);
	}
	assert_int_equal(count_printed("cannot be queued yet", &last), 1);
	assert_int_equal(slurm.queued, 0);
}

static void a_job_that_was_requeued_queues_no_second_one(void **state)
{
	(void)state;
	add_job("41", NULL, 0);
	add_job("42", "41", 0);
	start_training(-1);
	pass_time(0.1);
	assert_int_equal(slurm.queued, 0);
}

static void a_refused_job_is_queued_again_later(void **state)
{
	bool last;
	(void)state;
	add_job("41", NULL, 0);
	start_training(-1);
	pass_time(0.1);
	queued_as(NULL);
	pass_time(1);
	assert_int_equal(slurm.queued, 1);
	assert_int_equal(count_printed("cannot be queued yet: sbatch failed", &last), 1);
	h.now += 60;
	supervise_tick(h.supervisor);
	assert_int_equal(slurm.queued, 2);
	queued_as("42");
	assert_int_equal(count_jobs(), 2);
}

static void a_chain_without_progress_ends(void **state)
{
	(void)state;
	add_job("38", NULL, 0);
	add_job("39", "38", 0);
	add_job("40", "39", 0);
	add_job("41", "40", 0);
	start_training(-1);
	pass_time(0.1);
	assert_int_equal(slurm.queued, 0);
	assert_int_equal(count_events("\"chain\"", "committed no checkpoint"), 1);
}

static void earlier_progress_keeps_the_chain(void **state)
{
	(void)state;
	add_job("38", NULL, 0);
	add_job("39", "38", 7);
	add_job("40", "39", 0);
	add_job("41", "40", 0);
	start_training(-1);
	pass_time(0.1);
	assert_int_equal(slurm.queued, 1);
}

static void the_time_limit_hands_over_to_the_next_job(void **state)
{
	(void)state;
	train_with_successor();
	stop_for(STOP_TIME_LIMIT);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 0);
	assert_int_equal(slurm.cancelled, 0);
}

static void a_successor_that_a_person_has_cancelled_does_not_count(void **state)
{
	(void)state;
	train_with_successor();
	slurm.successor_cancelled = true;
	stop_for(STOP_TIME_LIMIT);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 1);
}

static void without_a_checkpoint_the_time_limit_ends_the_chain(void **state)
{
	(void)state;
	train_with_successor();
	stop_for(STOP_TIME_LIMIT);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.requeues, 0);
	assert_int_equal(slurm.cancelled, 1);
}

static void a_person_who_stops_the_run_ends_the_chain(void **state)
{
	(void)state;
	train_with_successor();
	add_job("43", "42", 0);
	stop_for(STOP_CANCELLED);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.cancelled, 2);
	assert_int_equal(count_events("\"chain\"", "the run was stopped: 2 waiting jobs"), 1);
}

static void jobs_of_another_submission_are_left_alone(void **state)
{
	(void)state;
	const struct rundir_submission other = { .submission = 4, .job = "50" };
	train_with_successor();
	assert_int_equal(rundir_submissions_append(rundir_path(h.run), &other, NULL), 0);
	stop_for(STOP_CANCELLED);
	finish_all();
	assert_int_equal(slurm.cancelled, 1);
}

static void jobs_that_cannot_be_cancelled_are_named(void **state)
{
	bool last;
	(void)state;
	train_with_successor();
	slurm.refuse = true;
	stop_for(STOP_CANCELLED);
	finish_all();
	assert_int_equal(count_printed("scancel 42", &last), 1);
}

static void a_job_that_was_ended_by_a_preemption_is_submitted_again(void **state)
{
	(void)state;
	h.first.job.slurm.chain = false;
	add_job("41", NULL, 0);
	start_training(-1);
	slurm.ended = true;
	stop_for(STOP_PREEMPTED);
	finish_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(slurm.again, 1);
	assert_int_equal(count_jobs(), 2);
	assert_int_equal(count_events("\"chain\"", "\"44\""), 1);
	assert_int_equal(slurm.cancelled, 0);
}

static void a_new_job_that_is_refused_is_said(void **state)
{
	bool last;
	(void)state;
	h.first.job.slurm.chain = false;
	add_job("41", NULL, 0);
	start_training(-1);
	slurm.ended = slurm.refuse_job = true;
	stop_for(STOP_PREEMPTED);
	finish_all();
	assert_int_equal(count_printed("no other job was queued: sbatch failed", &last), 1);
}

static void the_comment_follows_checkpoints_once_a_minute(void **state)
{
	(void)state;
	start_training(-1);
	pass_time(0.1);
	assert_int_equal(slurm.comments, 0);
	send_step(&h.peers[0], MSG_CKPT, 4);
	pass_time(0.1);
	assert_int_equal(slurm.comments, 1);
	assert_non_null(strstr(slurm.comment, "muster step=4/"));
	assert_non_null(strstr(slurm.comment, " saved=20"));
	assert_non_null(strstr(slurm.comment, " nodes=1"));
	send_step(&h.peers[0], MSG_CKPT, 5);
	pass_time(0.1);
	assert_int_equal(slurm.comments, 1);
	h.now += 60;
	supervise_tick(h.supervisor);
	assert_int_equal(slurm.comments, 2);
	assert_non_null(strstr(slurm.comment, "step=5/"));
}

static void a_comment_of_the_user_stays(void **state)
{
	(void)state;
	strcpy(h.first.job.slurm.comment, "project 7");
	start_training(-1);
	send_step(&h.peers[0], MSG_CKPT, 4);
	pass_time(0.1);
	assert_int_equal(slurm.comments, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CHAIN_TEST(f) cmocka_unit_test_setup_teardown(f, setup_chain, teardown)
		CHAIN_TEST(the_next_job_is_queued_after_the_first_step),
		CHAIN_TEST(without_the_key_no_job_is_queued),
		CHAIN_TEST(a_job_that_is_recorded_late_queues_the_next_one),
		CHAIN_TEST(a_job_that_nobody_records_is_reported_once),
		CHAIN_TEST(a_job_that_was_requeued_queues_no_second_one),
		CHAIN_TEST(a_refused_job_is_queued_again_later),
		CHAIN_TEST(a_chain_without_progress_ends),
		CHAIN_TEST(earlier_progress_keeps_the_chain),
		CHAIN_TEST(the_time_limit_hands_over_to_the_next_job),
		CHAIN_TEST(a_successor_that_a_person_has_cancelled_does_not_count),
		CHAIN_TEST(without_a_checkpoint_the_time_limit_ends_the_chain),
		CHAIN_TEST(a_person_who_stops_the_run_ends_the_chain),
		CHAIN_TEST(jobs_of_another_submission_are_left_alone),
		CHAIN_TEST(jobs_that_cannot_be_cancelled_are_named),
		CHAIN_TEST(a_job_that_was_ended_by_a_preemption_is_submitted_again),
		CHAIN_TEST(a_new_job_that_is_refused_is_said),
		CHAIN_TEST(the_comment_follows_checkpoints_once_a_minute),
		CHAIN_TEST(a_comment_of_the_user_stays),
	};
	return cmocka_run_group_tests_name("the chain of a run's jobs", tests, NULL, NULL);
}
