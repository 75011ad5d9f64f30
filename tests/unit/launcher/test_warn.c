/* What the warnings are judged by, and how they are reported. The agents and their clocks are doubles;
 * test_warnings.c tests the rules alone. */
#include "launcher/supervise/warn.h"
#include "base/run_paths.h"
#include "base/time_parts.h"
#include "tests/unit/launcher/harness.h"

#include <math.h>

#define STEP_S 0.1

static double own[WORLD], delay[WORLD]; /* sums that the ranks report */
static int64_t done;

static int setup_warn(void **state)
{
	memset(own, 0, sizeof own);
	memset(delay, 0, sizeof delay);
	done = 0;
	if (setup(state))
		return -1;
	h.first.job.health.slow_factor = 1.5;
	h.first.job.health.slow_window = 10;
	h.first.job.warn.z = 6;
	h.first.job.warn.data = 0.2;
	h.first.job.warn.slow = 1.1;
	h.first.job.warn.memory = 0.95;
	h.first.job.warn.predicted = 2;
	h.first.plan.time.total = STEP_S;
	h.first.job.job.steps = 100000;
	h.kind.memory = 2000;
	h.ranks[0].node_ranks = h.ranks[1].node_ranks = 2;
	h.ranks[1].at.pp = h.ranks[0].at.pp; /* peers */
	return 0;
}

static int setup_training(void **state)
{
	if (setup_warn(state))
		return -1;
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	return 0;
}

static void send_metrics(struct msg_metrics m)
{
	m.step = ++done;
	m.tokens = 512;
	send_message(&h.peers[0], MSG_METRICS, msg_metrics_json(&m));
}

static struct msg_metrics usual_step(void)
{
	return (struct msg_metrics){ .loss = 2.5, .grad_norm = 1, .step_s = STEP_S };
}

static void report_progress(int rank)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){ .step = done,
							       .phase = "forward",
							       .count = done,
							       .done = done,
							       .own_s = own[rank],
							       .delay_s = delay[rank] }));
}

/* Trains; rank 1 spends `factor` times as long as rank 0 on each step, and has no core for `wait`
 * seconds of each second. A step takes `step_s`. */
static void train(int seconds, double factor, double wait, double step_s)
{
	for (int i = 0; i < 2 * seconds; i++) {
		for (int k = 0; k < 2; k++) {
			struct msg_metrics m = usual_step();
			m.step_s = step_s;
			send_metrics(m);
		}
		own[0] += 2 * STEP_S;
		own[1] += 2 * STEP_S * factor;
		delay[1] += wait / 2;
		for (int r = 0; r < WORLD; r++)
			report_progress(r);
		pass_time(0.5);
	}
}

static int printed(const char *text)
{
	bool last;
	return count_printed(text, &last);
}

static void a_rank_that_lags_is_reported_once_and_when_it_does_not(void **state)
{
	(void)state;
	train(25, 1.2, 0, STEP_S);
	assert_int_equal(count_events("\"lagging-rank\"", ""), 0); /* two windows */
	train(100, 1.2, 0, STEP_S);
	assert_int_equal(count_events("\"lagging-rank\"", "\"holds\":true"), 1);
	assert_int_equal(count_events("\"lagging-rank\"", "rank 1 on here takes 1.20 times"), 1);
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
	assert_int_equal(printed("rank 1 on here takes 1.20 times as long"), 1);
	train(60, 1, 0, STEP_S);
	assert_int_equal(count_events("\"lagging-rank\"", "\"holds\":false"), 1);
	assert_int_equal(printed("all ranks are about as fast as their peers again"), 1);
	assert_int_equal(count_events("\"warning\"", ""), 2);
}

static void ranks_that_differ_little_are_not_reported(void **state)
{
	(void)state;
	train(200, 1.08, 0, STEP_S);
	assert_int_equal(count_events("\"warning\"", ""), 0);
}

/* 4 steps in a second: what it takes longer is what it waits for a core. */
static void time_without_a_core_is_not_a_rank_that_lags(void **state)
{
	(void)state;
	train(200, 1.3, 4 * STEP_S * 0.3, STEP_S);
	assert_int_equal(count_events("\"warning\"", ""), 0);
}

static void ranks_that_share_cores_are_not_judged(void **state)
{
	(void)state;
	h.kind.cores = 1;
	h.ranks[0].threads = h.ranks[1].threads = 1;
	supervise_start(h.supervisor);
	train_all();
	train(100, 1.3, 0, 5 * STEP_S);
	assert_int_equal(count_events("\"warning\"", ""), 0);
}

/* stragglers.h names it for people; the warning does not repeat that. */
static void a_straggler_is_a_warning_but_one_line(void **state)
{
	(void)state;
	train(100, 2, 0, STEP_S);
	assert_int_equal(count_events("\"slow-rank\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"lagging-rank\"", "takes 2.00 times"), 1);
	assert_int_equal(printed("rank 1 on here"), 1);
}

static void steps_that_take_longer_than_predicted_are_reported(void **state)
{
	(void)state;
	train(60, 1, 0, 1.9 * STEP_S);
	assert_int_equal(count_events("\"prediction\"", ""), 0);
	train(60, 1, 0, 2.5 * STEP_S);
	assert_int_equal(count_events("\"prediction\"", "2.5 times the predicted"), 1);
}

static void a_busy_host_is_not_a_wrong_prediction(void **state)
{
	(void)state;
	train(120, 1, 0.6, 4 * STEP_S);
	assert_int_equal(count_events("\"prediction\"", ""), 0);
	train(60, 1, 0.2, 4 * STEP_S);
	assert_int_equal(count_events("\"prediction\"", "3.2 times the predicted"), 1);
}

/* Trains for a time in which rank 1 waits for samples for this share of each step. */
static void starve(int seconds, double share)
{
	static int64_t us[TIME_REPORTED];
	for (int i = 0; i < seconds / 5; i++) {
		train(5, 1, 0, STEP_S);
		us[TIME_DATA - TIME_STEP] += (int64_t)(share * 4e6);
		us[TIME_COMPUTE - TIME_STEP] += (int64_t)((1 - share) * 4e6);
		json_t *list = time_reported_json(us);
		send_message(&h.peers[1], MSG_TIMES,
			     msg_times_json(&(struct msg_times){ .step = done, .us = list }));
		json_decref(list);
	}
}

static void a_rank_that_waits_for_samples_is_seen_although_another_sends_the_metrics(void **state)
{
	(void)state;
	starve(60, 0.1);
	starve(10, 0.5); /* two reports: a moment */
	starve(60, 0.1);
	assert_int_equal(count_events("\"warning\"", ""), 0);
	starve(60, 0.5);
	assert_int_equal(count_events("\"data\"", "rank 1 waits for samples for 50 % of a step"),
			 1);
	starve(60, 0.1);
	assert_int_equal(count_events("\"data\"", "\"holds\":false"), 1);
	assert_int_equal(count_events("\"warning\"", ""), 2);
}

static void memory_near_the_limit_is_reported_in_each_generation(void **state)
{
	struct msg_metrics m = usual_step();
	(void)state;
	m.peak_bytes = 950; /* of 2000 for two ranks */
	send_metrics(m);
	assert_int_equal(count_events("\"memory\"", "\"holds\""), 0);
	m.peak_bytes = 951;
	send_metrics(m);
	send_metrics(m);
	assert_int_equal(count_events("\"memory\"", "\"holds\":true"), 1);
	assert_int_equal(printed("rank 0 on here has used"), 1);
	end_rank(1);
	pass_time(5);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"memory\"", "\"holds\":false"), 1);
	train_all();
	send_metrics(m);
	assert_int_equal(count_events("\"memory\"", "\"holds\":true"), 2);
}

/* With a dynamic loss scale the norm of a step that overflows is infinite. */
static void losses_and_norms_are_judged_and_skipped_steps_are_not(void **state)
{
	struct msg_metrics m = usual_step();
	(void)state;
	for (int i = 0; i < 100; i++)
		send_metrics(m);
	m.has_skipped = m.skipped = true;
	m.grad_norm = 1e6;
	for (int i = 0; i < 10; i++)
		send_metrics(m);
	assert_int_equal(count_events("\"warning\"", ""), 0);
	m.skipped = false;
	for (int i = 0; i < 3; i++)
		send_metrics(m);
	assert_int_equal(count_events("\"gradient-norm\"", "and 1 was usual"), 1);
	m = usual_step();
	m.loss = 3;
	send_metrics(m);
	send_metrics(m);
	assert_int_equal(count_events("\"loss-spike\"", "the loss is 3, and 2.5 was usual"), 1);
	assert_int_equal(count_events("\"warning\"", "\"remedy\":\"\""), 0);
}

/* --- a run that continues another one ------------------------------------------------------ */

/* The earlier run wrote this step. */
static void write_step(int64_t step, struct msg_metrics m)
{
	m.step = step;
	m.tokens = 512;
	rundir_metrics(h.run, 1, &m, STEP_S);
}

static void write_steps(int64_t first, int64_t last, double loss)
{
	for (int64_t step = first; step <= last; step++) {
		struct msg_metrics m = usual_step();
		m.loss = loss + 0.01 * (double)(step % 7);
		m.grad_norm = 1 + 0.05 * (double)(step % 5);
		write_step(step, m);
	}
}

static void continue_after(int64_t step)
{
	supervise_start(h.supervisor);
	connect_all();
	for (int r = 0; r < WORLD; r++)
		send_step(&h.peers[r], MSG_READY, step);
	done = step;
}

static void train_with(int steps, double loss, double norm)
{
	for (int i = 0; i < steps; i++) {
		struct msg_metrics m = usual_step();
		m.loss = loss;
		m.grad_norm = norm;
		send_metrics(m);
	}
}

/* Losses of 9 after the checkpoint were repeated once, and are so again. */
static void a_run_that_goes_on_is_judged_from_its_first_step_on(void **state)
{
	(void)state;
	write_steps(1, 100, 2.5);
	write_steps(101, 190, 9);
	write_steps(101, 150, 2.5);
	write_steps(151, 400, 9);
	continue_after(150);
	train_with(1, 2.5, 1);
	train_with(1, 9, 1);
	assert_int_equal(count_events("\"warning\"", ""), 0);
	train_with(1, 9, 1);
	assert_int_equal(count_events("\"loss-spike\"", "\"holds\":true"), 1);
	train_with(2, 2.5, 40);
	assert_int_equal(count_events("\"gradient-norm\"", ""), 0);
	train_with(1, 2.5, 40);
	assert_int_equal(count_events("\"gradient-norm\"", "\"holds\":true"), 1);
}

static void skipped_steps_and_damaged_lines_are_not_what_is_usual(void **state)
{
	(void)state;
	char path[400];
	write_steps(1, 40, 2.5);
	for (int64_t step = 41; step <= 170; step++) {
		struct msg_metrics m = usual_step();
		m.grad_norm = 40;
		m.has_skipped = m.skipped = true;
		write_step(step, m);
	}
	write_steps(171, 200, 2.5);
	snprintf(path, sizeof path, "%s/" RUN_METRICS, rundir_path(h.run));
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	fputs("nothing\n{\"step\":-1,\"loss\":9}\n{\"step\":200,\"lo", f);
	assert_int_equal(fclose(f), 0);
	continue_after(200);
	train_with(3, 2.5, 40);
	assert_int_equal(count_events("\"gradient-norm\"", "\"holds\":true"), 1);
}

/* Fewer steps than make a range known, and a run from its beginning in a folder with others' steps. */
static void what_is_not_known_is_not_judged(void **state)
{
	(void)state;
	write_steps(1, 500, 2.5);
	continue_after(30);
	train_with(20, 9, 40);
	assert_int_equal(count_events("\"warning\"", ""), 0);
}

int main(void)
{
#define TRAINING(f) cmocka_unit_test_setup_teardown(f, setup_training, teardown)
#define EARLIER(f)  cmocka_unit_test_setup_teardown(f, setup_warn, teardown)
	const struct CMUnitTest tests[] = {
		TRAINING(a_rank_that_lags_is_reported_once_and_when_it_does_not),
		TRAINING(ranks_that_differ_little_are_not_reported),
		TRAINING(time_without_a_core_is_not_a_rank_that_lags),
		cmocka_unit_test_setup_teardown(ranks_that_share_cores_are_not_judged, setup_warn,
						teardown),
		TRAINING(a_straggler_is_a_warning_but_one_line),
		TRAINING(steps_that_take_longer_than_predicted_are_reported),
		TRAINING(a_busy_host_is_not_a_wrong_prediction),
		TRAINING(a_rank_that_waits_for_samples_is_seen_although_another_sends_the_metrics),
		TRAINING(memory_near_the_limit_is_reported_in_each_generation),
		TRAINING(losses_and_norms_are_judged_and_skipped_steps_are_not),
		EARLIER(a_run_that_goes_on_is_judged_from_its_first_step_on),
		EARLIER(skipped_steps_and_damaged_lines_are_not_what_is_usual),
		EARLIER(what_is_not_known_is_not_judged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
