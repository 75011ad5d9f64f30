/* What a guard decides, with a clock that the test sets. */
#include "launcher/slurm/guard_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct guard_limits limits = {
	.silent = 15, .retry = 1, .grace = 5, .ask = 5, .dead = 5, .patience = 600, .down = 3600
};
static const struct guard_answer healthy = {
	.answered = true, .running = true, .batch = true, .may_requeue = true, .host_answers = true
};

static struct guard_state g;
static double now;

/* A guard that the supervisor has answered. */
static void watch(bool requeue)
{
	now = 1000;
	slurm_guard_init(&g, &limits, requeue, now);
	assert_int_equal(slurm_guard_next(&g, now), GUARD_CONNECT);
	slurm_guard_accepted(&g);
	slurm_guard_heard(&g, now);
	assert_int_equal(slurm_guard_next(&g, now), GUARD_WAIT);
}

/* The outcome of each attempt to connect. */
enum attempt { REFUSED, ACCEPTED };

/* Lets time pass in steps of 0.5 s, at most `seconds`, until the guard wants to do something else
 * than to wait, to connect, and to ask; it gets `a` as the answer. */
static enum guard_action pass_time(double seconds, enum attempt how, const struct guard_answer *a)
{
	for (double end = now + seconds; now < end; now += 0.5) {
		enum guard_action next = slurm_guard_next(&g, now);
		if (next == GUARD_CONNECT && how == REFUSED)
			slurm_guard_unlinked(&g, now);
		else if (next == GUARD_CONNECT)
			slurm_guard_accepted(&g);
		else if (next == GUARD_ASK)
			slurm_guard_answered(&g, a, now);
		else if (next != GUARD_WAIT)
			return next;
	}
	return GUARD_WAIT;
}

static void waits_while_signs_of_life_come(void **state)
{
	(void)state;
	watch(true);
	for (int i = 0; i < 100; i++, now += 14.9) {
		slurm_guard_heard(&g, now);
		assert_int_equal(slurm_guard_next(&g, now), GUARD_WAIT);
	}
}

static void a_dead_batch_host_is_requeued_within_15_s_of_the_end_of_the_connection(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
	assert_in_range((int)(now - 1000), 8, 15);
	assert_string_equal(g.why, "the batch host does not answer");
	slurm_guard_acted(&g, true, now);
	dead.running = false;
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_LEAVE);
	assert_string_equal(g.why, "the job no longer runs");
}

static void a_host_that_falls_silent_is_requeued_within_40_s(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
	assert_in_range((int)(now - 1000), 20, 40);
}

static void without_requeue_the_job_is_cancelled(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(false);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_CANCEL);
}

static void a_job_that_must_not_be_requeued_is_cancelled(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = dead.may_requeue = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_CANCEL);
}

/* The answer about a job with GPUs whose batch host is dead. */
static struct guard_answer dead_with_gpus(bool down)
{
	struct guard_answer a = healthy;
	a.gpus = true;
	a.host_answers = false;
	a.host_down = down;
	return a;
}

static void a_job_with_gpus_is_requeued_once_its_batch_host_counts_as_down(void **state)
{
	(void)state;
	const struct guard_answer dead = dead_with_gpus(false), down = dead_with_gpus(true);
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(300, REFUSED, &dead), GUARD_WAIT);
	assert_non_null(g.waits);
	double before = now;
	assert_int_equal(pass_time(60, REFUSED, &down), GUARD_REQUEUE);
	assert_true(now - before <= limits.ask);
	assert_null(g.waits);
}

static void where_no_node_ever_counts_as_down_the_wait_has_a_limit(void **state)
{
	(void)state;
	const struct guard_answer dead = dead_with_gpus(false);
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(3590, REFUSED, &dead), GUARD_WAIT);
	assert_int_equal(pass_time(30, REFUSED, &dead), GUARD_REQUEUE);
}

static void a_job_with_gpus_is_cancelled_without_that_wait(void **state)
{
	(void)state;
	const struct guard_answer dead = dead_with_gpus(false);
	watch(false);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(20, REFUSED, &dead), GUARD_CANCEL);
}

static void a_batch_host_that_counts_as_down_has_lost_the_job_although_it_answers(void **state)
{
	(void)state;
	struct guard_answer down = healthy;
	down.host_down = true;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(20, REFUSED, &down), GUARD_REQUEUE);
}

static void after_three_refusals_to_requeue_the_job_is_cancelled(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
		slurm_guard_acted(&g, false, now);
	}
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_CANCEL);
}

static void an_action_without_effect_is_repeated(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
		slurm_guard_acted(&g, true, now);
	}
}

static void while_the_controller_is_away_it_asks_on(void **state)
{
	(void)state;
	const struct guard_answer none = { .answered = false };
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(36000, REFUSED, &none), GUARD_WAIT);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
}

static void a_job_that_ends_is_left_alone(void **state)
{
	(void)state;
	struct guard_answer ended = healthy;
	ended.running = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &ended), GUARD_LEAVE);
	assert_string_equal(g.why, "the job ends or has ended");
}

static void an_interactive_allocation_is_left_alone(void **state)
{
	(void)state;
	struct guard_answer salloc = healthy;
	salloc.batch = salloc.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &salloc), GUARD_LEAVE);
}

static void a_batch_script_that_outlives_muster_is_left_alone(void **state)
{
	(void)state;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(36000, REFUSED, &healthy), GUARD_WAIT);
}

static void a_stopped_supervisor_is_given_patience(void **state)
{
	(void)state;
	watch(true);
	assert_int_equal(pass_time(590, ACCEPTED, &healthy), GUARD_WAIT);
	assert_int_equal(pass_time(30, ACCEPTED, &healthy), GUARD_REQUEUE);
	assert_in_range((int)(now - 1000), 600, 610);
}

static void a_stopped_supervisor_whose_slurmd_is_away_too_is_given_patience(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	assert_int_equal(pass_time(590, ACCEPTED, &dead), GUARD_WAIT);
}

static void a_supervisor_that_continues_is_watched_again(void **state)
{
	(void)state;
	watch(true);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(pass_time(500, ACCEPTED, &healthy), GUARD_WAIT);
		slurm_guard_heard(&g, now);
		assert_int_equal(slurm_guard_next(&g, now), GUARD_WAIT);
	}
}

static void a_sign_of_life_revokes_the_decision_to_act(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
	slurm_guard_heard(&g, now);
	assert_int_equal(slurm_guard_next(&g, now), GUARD_WAIT);
}

static void one_missed_answer_of_the_host_is_not_enough(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	watch(true);
	slurm_guard_unlinked(&g, now);
	for (int i = 0; i < 20; i++, now += 5)
		slurm_guard_answered(&g, i % 2 ? &healthy : &dead, now);
	assert_int_equal(pass_time(3, REFUSED, &healthy), GUARD_WAIT);
}

static void a_guard_that_was_stopped_blames_nobody(void **state)
{
	(void)state;
	watch(true);
	now += 3600;
	slurm_guard_slept(&g, 3600);
	assert_int_equal(slurm_guard_next(&g, now), GUARD_WAIT);
}

static void a_released_guard_leaves(void **state)
{
	(void)state;
	watch(true);
	slurm_guard_released(&g);
	assert_int_equal(slurm_guard_next(&g, now), GUARD_LEAVE);
}

static void a_guard_that_never_meets_its_supervisor_acts_as_well(void **state)
{
	(void)state;
	struct guard_answer dead = healthy;
	dead.host_answers = false;
	now = 1000;
	slurm_guard_init(&g, &limits, true, now);
	assert_int_equal(pass_time(60, REFUSED, &dead), GUARD_REQUEUE);
}

/* Whatever happens in whatever order, it acts only if nothing was heard for `grace` seconds, and
 * never while the last answer was that the job does not run. */
static void random_events_never_end_a_job_that_is_supervised(void **state)
{
	(void)state;
	const char *word = getenv("SEED");
	unsigned seed = word ? (unsigned)strtoul(word, NULL, 10) : (unsigned)time(NULL);
	printf("SEED=%u\n", seed);
	srand(seed);
	for (int run = 0; run < 2000; run++) {
		double heard = 1000;
		watch(rand() % 2);
		for (int i = 0; i < 200; i++, now += rand() % 40 / 10.0) {
			struct guard_answer a = { .answered = rand() % 4 != 0,
						  .running = rand() % 8 != 0,
						  .batch = true,
						  .may_requeue = rand() % 2,
						  .gpus = rand() % 2,
						  .host_answers = rand() % 3 == 0,
						  .host_down = rand() % 3 == 0 };
			enum guard_action next = slurm_guard_next(&g, now);
			if (next == GUARD_LEAVE)
				break;
			if (next == GUARD_REQUEUE || next == GUARD_CANCEL) {
				assert_true(now - heard >= limits.grace + limits.dead);
				slurm_guard_acted(&g, rand() % 2, now);
			} else if (next == GUARD_ASK) {
				slurm_guard_answered(&g, &a, now);
			} else if (next == GUARD_CONNECT && rand() % 2) {
				slurm_guard_accepted(&g);
			} else if (next == GUARD_CONNECT || rand() % 20 == 0) {
				slurm_guard_unlinked(&g, now);
			} else if ((g.line == GUARD_ALIVE && rand() % 2) ||
				   (g.line == GUARD_MUTE && rand() % 9 == 0)) {
				slurm_guard_heard(&g, now);
				heard = now;
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_while_signs_of_life_come),
		cmocka_unit_test(
			a_dead_batch_host_is_requeued_within_15_s_of_the_end_of_the_connection),
		cmocka_unit_test(a_host_that_falls_silent_is_requeued_within_40_s),
		cmocka_unit_test(without_requeue_the_job_is_cancelled),
		cmocka_unit_test(a_job_that_must_not_be_requeued_is_cancelled),
		cmocka_unit_test(a_job_with_gpus_is_requeued_once_its_batch_host_counts_as_down),
		cmocka_unit_test(where_no_node_ever_counts_as_down_the_wait_has_a_limit),
		cmocka_unit_test(a_job_with_gpus_is_cancelled_without_that_wait),
		cmocka_unit_test(
			a_batch_host_that_counts_as_down_has_lost_the_job_although_it_answers),
		cmocka_unit_test(after_three_refusals_to_requeue_the_job_is_cancelled),
		cmocka_unit_test(an_action_without_effect_is_repeated),
		cmocka_unit_test(while_the_controller_is_away_it_asks_on),
		cmocka_unit_test(a_job_that_ends_is_left_alone),
		cmocka_unit_test(an_interactive_allocation_is_left_alone),
		cmocka_unit_test(a_batch_script_that_outlives_muster_is_left_alone),
		cmocka_unit_test(a_stopped_supervisor_is_given_patience),
		cmocka_unit_test(a_stopped_supervisor_whose_slurmd_is_away_too_is_given_patience),
		cmocka_unit_test(a_supervisor_that_continues_is_watched_again),
		cmocka_unit_test(a_sign_of_life_revokes_the_decision_to_act),
		cmocka_unit_test(one_missed_answer_of_the_host_is_not_enough),
		cmocka_unit_test(a_guard_that_was_stopped_blames_nobody),
		cmocka_unit_test(a_released_guard_leaves),
		cmocka_unit_test(a_guard_that_never_meets_its_supervisor_acts_as_well),
		cmocka_unit_test(random_events_never_end_a_job_that_is_supervised),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
