/* The account of a run's time: whatever happens, its parts add up to the time of all ranks and idle
 * devices. SEED repeats the random events of a failure. */
#include "launcher/supervise/account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { SECOND = 1000000, MOST = 6, COMPUTE = STEP_PART_COMPUTE, DP = STEP_PART_DP };

static struct account a;

static void open_account(int world, int devices)
{
	struct err e = ERR_INIT;
	assert_int_equal(supervise_account_open(&a, MOST, world, devices, 0, &e), 0);
}

static void start(int64_t at, int world)
{
	supervise_account_generation(&a, at * SECOND, world);
}

static void all_ready(int64_t at, int64_t step)
{
	for (int r = 0; r < a.world; r++)
		supervise_account_ready(&a, at * SECOND, r, step);
}

/* The rank reports seconds of compute and of data parallelism since it was ready. */
static void report(int64_t at, int rank, int64_t step, double compute, double dp)
{
	struct account_report r = { .step = step };
	r.us[COMPUTE] = (int64_t)(compute * SECOND);
	r.us[DP] = (int64_t)(dp * SECOND);
	supervise_account_report(&a, at * SECOND, rank, &r);
}

static void expect(enum time_part part, double seconds)
{
	if (a.parts[part] != (int64_t)(seconds * SECOND))
		fail_msg("%s: %.6f s instead of %g s", time_part_name(part),
			 1e-6 * (double)a.parts[part], seconds);
}

static void expect_sum(double seconds)
{
	assert_int_equal(time_parts_sum(a.parts), (int64_t)(seconds * SECOND));
}

/* --- what is lost --------------------------------------------------------------------- */

/* Two ranks train ten steps in ten seconds, twice, and are lost at 25 s. */
static void train_and_lose(void)
{
	open_account(2, 2);
	start(0, 2);
	all_ready(0, 0);
	for (int r = 0; r < 2; r++)
		report(10, r, 10, 8, 2);
	for (int r = 0; r < 2; r++)
		report(20, r, 20, 16, 4);
	supervise_account_lose(&a, 25 * SECOND);
	start(27, 2);
}

static void a_restart_loses_the_steps_after_its_checkpoint_and_the_step_in_flight(void **state)
{
	(void)state;
	train_and_lose();
	all_ready(30, 15);
	expect(TIME_COMPUTE, 2 * 12);
	expect(TIME_DP, 2 * 3);
	expect(TIME_LOST, 2 * (5 + 5));
	expect(TIME_RESTART, 2 * 5);
	expect(TIME_UNREPORTED, 0);
	expect_sum(2 * 30);
	supervise_account_close(&a);
}

/* Under load the messages of a rank come late, and it has trained for longer than it was known to be
 * ready. No part comes off worse because it is the last in the list. */
static void a_rank_that_was_ready_before_its_message_is_booked_by_shares(void **state)
{
	(void)state;
	open_account(1, 1);
	start(0, 1);
	all_ready(5, 0);
	report(10, 0, 10, 8, 2);
	expect(TIME_START, 5);
	expect(TIME_COMPUTE, 4);
	expect(TIME_DP, 1);
	report(20, 0, 20, 16, 4);
	expect(TIME_COMPUTE, 12);
	expect(TIME_DP, 3);
	expect(TIME_UNREPORTED, 0);
	expect_sum(20);
	supervise_account_close(&a);
}

static void nothing_that_was_reported_is_lost_if_the_run_continues_after_it(void **state)
{
	(void)state;
	train_and_lose();
	all_ready(30, 20);
	expect(TIME_COMPUTE, 2 * 16);
	expect(TIME_LOST, 2 * 5);
	supervise_account_close(&a);
}

static void a_rank_that_died_is_unreported_up_to_the_last_step_of_the_others(void **state)
{
	(void)state;
	open_account(2, 2);
	start(0, 2);
	all_ready(0, 0);
	report(10, 0, 10, 8, 2);
	report(10, 1, 10, 8, 2);
	supervise_account_lose(&a, 25 * SECOND);
	report(26, 0, 20, 16, 4); /* the other one is dead */
	start(27, 2);
	expect(TIME_UNREPORTED, 10);
	expect(TIME_LOST, 5 + 5);
	all_ready(30, 15);
	expect(TIME_UNREPORTED, 5);
	expect(TIME_LOST, 5 + 5 + 5 + 5);
	expect(TIME_COMPUTE, 12 + 8);
	expect_sum(2 * 30);
	supervise_account_close(&a);
}

static void restarts_without_progress_lose_no_step_twice(void **state)
{
	(void)state;
	train_and_lose();
	for (int i = 0; i < 3; i++) {
		all_ready(30 + 10 * i, 15);
		supervise_account_lose(&a, (35 + 10 * i) * SECOND);
		start(36 + 10 * i, 2);
	}
	all_ready(60, 15);
	expect(TIME_COMPUTE, 2 * 12);
	expect(TIME_LOST, 2 * (5 + 5 + 3 * 5));
	expect(TIME_RESTART, 2 * (5 + 3 * 5));
	expect_sum(2 * 60);
	supervise_account_close(&a);
}

static void a_rollback_may_go_back_beyond_the_start_of_a_generation(void **state)
{
	(void)state;
	train_and_lose();
	all_ready(30, 15);
	for (int r = 0; r < 2; r++)
		report(40, r, 25, 8, 2);
	supervise_account_lose(&a, 40 * SECOND);
	start(40, 2);
	all_ready(40, 5);
	expect(TIME_COMPUTE, 2 * 4);
	expect(TIME_DP, 2 * 1);
	expect(TIME_LOST, 2 * (20 + 10));
	expect_sum(2 * 40);
	supervise_account_close(&a);
}

static void a_rank_that_finished_is_stopping_from_its_last_report_on(void **state)
{
	(void)state;
	open_account(2, 2);
	start(0, 2);
	all_ready(1, 0);
	report(11, 0, 10, 8, 2);
	report(11, 1, 10, 8, 2);
	supervise_account_finished(&a, 12 * SECOND, 0, false);
	supervise_account_stop(&a, 13 * SECOND);
	supervise_account_settle(&a, 14 * SECOND);
	expect(TIME_START, 2);
	expect(TIME_STOP, 3 + 1);
	expect(TIME_LOST, 2); /* the other one was ended at 13 s within a step */
	expect(TIME_UNREPORTED, 0);
	expect_sum(2 * 14);
	supervise_account_close(&a);
}

static void a_generation_that_leaves_is_restarting_from_its_last_report_on(void **state)
{
	(void)state;
	open_account(2, 2);
	start(0, 2);
	all_ready(1, 0);
	for (int r = 0; r < 2; r++) {
		report(11, r, 10, 8, 2);
		supervise_account_finished(&a, 12 * SECOND, r, true);
	}
	supervise_account_lose(&a, 13 * SECOND);
	start(16, 1);
	all_ready(18, 10);
	expect(TIME_START, 2);
	expect(TIME_STOP, 0);
	expect(TIME_LOST, 0);
	expect(TIME_RESTART, 2 * (16 - 11) + 18 - 16);
	expect_sum(2 * 18);
	supervise_account_close(&a);
}

static void a_report_that_falls_or_exceeds_the_time_is_not_believed(void **state)
{
	(void)state;
	open_account(1, 1);
	start(0, 1);
	all_ready(0, 0);
	report(10, 0, 10, 6, 2);
	report(12, 0, 11, 5, 1);
	expect(TIME_COMPUTE, 6);
	expect(TIME_DP, 2);
	report(14, 0, 12, 6, 100);
	expect(TIME_DP, 14 - 6);
	expect(TIME_UNREPORTED, 0);
	supervise_account_close(&a);
}

/* --- over several runs ---------------------------------------------------------------- */

static void a_later_run_continues_the_sums_and_loses_what_it_repeats(void **state)
{
	(void)state;
	int64_t parts[TIME_PART_COUNT] = { [TIME_COMPUTE] = 10 * SECOND, [TIME_START] = SECOND };
	open_account(2, 2);
	parts[TIME_UNREPORTED] = 4 * SECOND; /* the next line has it among the steps */
	supervise_account_continue(&a, 6 * SECOND, 10, parts);
	parts[TIME_UNREPORTED] = 0;
	parts[TIME_COMPUTE] = 30 * SECOND;
	supervise_account_continue(&a, 16 * SECOND, 20, parts);
	start(2, 2);
	all_ready(3, 15);
	expect(TIME_COMPUTE, 20);
	expect(TIME_LOST, 10);
	expect(TIME_START, 1 + 2 * 3);
	expect_sum(31 + 2 * 3);
	assert_int_equal(a.wall, 19 * SECOND);
	supervise_account_close(&a);
}

/* --- waits and devices ------------------------------------------------------------------ */

static void a_rank_waits_for_the_slowest_rank_of_its_group(void **state)
{
	(void)state;
	open_account(4, 4);
	start(0, 4);
	supervise_account_group(&a, 3, 1);
	all_ready(0, 0);
	report(10, 0, 10, 8, 1);
	report(10, 1, 10, 5, 4);
	report(10, 2, 10, 6, 0.5);
	report(10, 3, 10, 1, 2); /* nobody else is in its group */
	expect(TIME_SLOWEST, 3 + 0.5);
	expect(TIME_DP, 1 + 1 + 0 + 2);
	expect(TIME_COMPUTE, 8 + 5 + 6 + 1);
	expect_sum(4 * 10);
	supervise_account_close(&a);
}

static void devices_that_no_rank_uses_are_idle(void **state)
{
	(void)state;
	open_account(3, 4);
	start(0, 3);
	all_ready(10, 0);
	supervise_account_lose(&a, 10 * SECOND);
	start(10, 2);
	expect(TIME_IDLE, 10);
	supervise_account_advance(&a, 20 * SECOND);
	expect(TIME_IDLE, 10 + 20);
	start(20, 5); /* on shared devices */
	supervise_account_advance(&a, 30 * SECOND);
	expect(TIME_IDLE, 10 + 20);
	expect_sum(40 + 40 + 50);
	supervise_account_close(&a);
}

static void old_marks_are_thinned_and_new_ones_stay_exact(void **state)
{
	(void)state;
	static struct marks m;
	int64_t parts[TIME_TRAINED] = { 0 };
	for (int64_t step = 1; step <= 10000; step++) {
		parts[COMPUTE] = step * step; /* so that a line between distant marks is wrong */
		supervise_marks_add(&m, step, parts);
		assert_true(m.n <= MARKS);
	}
	assert_true(supervise_marks_return(&m, 9990, parts));
	assert_int_equal(parts[COMPUTE], 9990 * 9990);
	assert_true(supervise_marks_return(&m, 2000, parts));
	assert_true(parts[COMPUTE] >= 2000 * 2000 && parts[COMPUTE] < 2000 * 2000 * 1.02);
	assert_false(supervise_marks_return(&m, 2000, parts));
}

/* --- whatever happens ------------------------------------------------------------------- */

/* What must have been accrued, by a simpler account: where each rank is, from the outside. */
struct model {
	int64_t now, wall, total, before[2], idle; /* before: start, restart */
	int world, devices, training;              /* ranks that have become ready */
	bool lost, stopped, ended[MOST], ready[MOST];
	bool leaves;  /* ranks that finish are followed by another generation */
	bool program; /* its ranks begin after they were ready, or never */
	int64_t step;
};

static struct model m;

static int64_t draw(int64_t below)
{
	return (int64_t)(rand() % (below > RAND_MAX ? RAND_MAX : below));
}

static void let_time_pass(void)
{
	int64_t passed = draw(4) ? draw(3 * SECOND) : 0;
	int idle = m.devices > m.world ? m.devices - m.world : 0;
	m.now += passed;
	m.wall += passed;
	m.total += passed * (m.world + idle);
	m.idle += passed * idle;
	for (int r = 0; r < m.world; r++)
		if (!m.ready[r] && !m.stopped)
			m.before[m.lost] += passed;
}

static void draw_report(int rank)
{
	struct account_report r = { .step = m.step + draw(9) - 2 };
	if (r.step < 0)
		r.step = 0;
	const struct account_report *last = &a.ranks[rank].last;
	for (int i = 0; i < TIME_REPORTED; i++)
		r.us[i] = last->us[i] + draw(SECOND / 4);
	if (!draw(20))
		r.us[draw(TIME_REPORTED)] = draw(2) ? 0 : INT64_C(1) << 62;
	supervise_account_report(&a, m.now, rank, &r);
	if (r.step > m.step)
		m.step = r.step;
}

/* Every rank reports all of its time so far and the same step. */
static void report_fully(void)
{
	m.step += draw(5);
	for (int r = 0; r < m.world; r++) {
		struct account_report full = a.ranks[r].last;
		full.step = m.step;
		full.us[draw(TIME_REPORTED)] += INT64_C(1) << 50;
		supervise_account_report(&a, m.now, r, &full);
		if (a.ranks[r].ready && !a.ranks[r].ended)
			assert_int_equal(a.ranks[r].booked, a.now - a.ranks[r].ready_at);
	}
}

static void begin_generation(void)
{
	bool ready = false;
	for (int r = 0; r < m.world; r++)
		ready |= m.ready[r] && !m.ended[r];
	supervise_account_generation(&a, m.now, m.world = 1 + (int)draw(MOST));
	m.lost |= m.training > 0;
	m.training = 0;
	m.stopped = false;
	memset(m.ready, 0, sizeof m.ready);
	memset(m.ended, 0, sizeof m.ended);
	for (int r = 0; r < m.world; r++)
		supervise_account_group(&a, r, (int)draw(3));
}

static void lose(void)
{
	supervise_account_lose(&a, m.now);
	m.lost = true;
	m.stopped = false;
	for (int r = 0; r < m.world; r++)
		m.ready[r] = false, m.ended[r] = true;
}

static void stop(void)
{
	supervise_account_stop(&a, m.now);
	m.stopped = true;
	for (int r = 0; r < m.world; r++)
		m.ended[r] = true;
}

static void become_ready(int rank)
{
	supervise_account_ready(&a, m.now, rank, m.step - draw(m.step + 1));
	if (m.ended[rank] || m.ready[rank])
		return;
	m.ready[rank] = true;
	m.training++;
}

/* The rank of a program tells that it began later, and where. */
static void begin_late(int rank)
{
	supervise_account_advance(&a, m.now);
	int64_t start = a.parts[TIME_START], restart = a.parts[TIME_RESTART];
	int64_t since = a.ranks[rank].ready_at + draw(3 * SECOND) - SECOND;
	supervise_account_begin(&a, m.now, rank, m.step - draw(m.step + 1), since);
	m.before[0] += a.parts[TIME_START] - start;
	m.before[1] += a.parts[TIME_RESTART] - restart;
	assert_true(a.parts[TIME_START] >= start && a.parts[TIME_RESTART] >= restart);
}

static void draw_event(void)
{
	int rank = (int)draw(m.world);
	if (m.program && !draw(6))
		begin_late(rank);
	switch (draw(24)) {
	case 0:
		begin_generation();
		break;
	case 1:
		draw(3) ? lose() : stop();
		break;
	case 2:
		supervise_account_finished(&a, m.now, rank, m.leaves);
		break;
	case 3:
		draw(4) ? report_fully() : supervise_account_settle(&a, m.now);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
		become_ready(rank);
		break;
	default:
		draw_report(rank);
	}
}

static void check_account(void)
{
	supervise_account_advance(&a, m.now);
	for (int i = 0; i < TIME_PART_COUNT; i++)
		if (a.parts[i] < 0)
			fail_msg("%s is negative", time_part_name((enum time_part)i));
	assert_int_equal(a.wall, m.wall);
	assert_int_equal(time_parts_sum(a.parts), m.total);
	assert_int_equal(a.parts[TIME_IDLE], m.idle);
	assert_int_equal(a.parts[TIME_START], m.before[0]);
	if (m.leaves) /* with the time of ranks that have finished */
		assert_true(a.parts[TIME_RESTART] >= m.before[1]);
	else
		assert_int_equal(a.parts[TIME_RESTART], m.before[1]);
}

/* What is marked, and what the ranks have reported beyond it, are the parts. */
static void check_marks(void)
{
	for (int i = 0; i < TIME_TRAINED - 1; i++) {
		int64_t beyond = 0;
		for (int r = 0; i < TIME_REPORTED && r < a.world; r++)
			if (a.ranks[r].ready)
				beyond += a.ranks[r].last.us[i] - a.ranks[r].mark.us[i];
		assert_int_equal(a.parts[TIME_STEP + i], a.marked[i] + beyond);
	}
}

/* --- a program ---------------------------------------------------------------------------- */

/* Two ranks are ready at 5 s, begin at 8 s after step 40, and have reported a step at 10 s. */
static void the_time_before_the_first_step_of_a_program_is_its_start(void **state)
{
	(void)state;
	open_account(2, 2);
	a.opaque = true;
	start(0, 2);
	all_ready(5, 0);
	for (int r = 0; r < 2; r++)
		supervise_account_begin(&a, 10 * SECOND, r, 40, 8 * SECOND);
	assert_int_equal(a.step, 40);
	for (int r = 0; r < 2; r++)
		report(10, r, 41, 2, 0);
	expect(TIME_START, 2 * 8);
	expect(TIME_COMPUTE, 2 * 2);
	expect(TIME_UNREPORTED, 0);
	expect_sum(2 * 10);
	assert_int_equal(a.step, 41);
	supervise_account_close(&a);
}

/* No rank is before it was ready, or in the future. */
static void a_program_begins_between_ready_and_now(void **state)
{
	(void)state;
	open_account(2, 2);
	start(0, 2);
	all_ready(5, 0);
	supervise_account_begin(&a, 10 * SECOND, 0, 0, 1 * SECOND);
	supervise_account_begin(&a, 10 * SECOND, 1, 0, 99 * SECOND);
	expect(TIME_START, 5 + 10);
	expect(TIME_UNREPORTED, 5);
	expect_sum(2 * 10);
	supervise_account_close(&a);
}

static void what_a_program_never_reports_is_not_lost(void **state)
{
	(void)state;
	for (int opaque = 0; opaque < 2; opaque++) {
		open_account(1, 1);
		a.opaque = opaque;
		start(0, 1);
		all_ready(5, 0);
		supervise_account_lose(&a, 25 * SECOND);
		start(30, 1);
		expect(TIME_UNREPORTED, opaque ? 20 : 0);
		expect(TIME_LOST, opaque ? 0 : 20);
		expect(TIME_RESTART, 5);
		expect_sum(30);
		supervise_account_close(&a);
	}
}

/* It began after step 10 and reported up to 20; after the loss it continues from 15. */
static void steps_that_a_program_repeats_are_lost(void **state)
{
	(void)state;
	open_account(1, 1);
	a.opaque = true;
	start(0, 1);
	all_ready(0, 0);
	supervise_account_begin(&a, 0, 0, 10, 0);
	report(10, 0, 20, 10, 0);
	supervise_account_lose(&a, 10 * SECOND);
	start(10, 1);
	all_ready(12, 20);
	supervise_account_begin(&a, 14 * SECOND, 0, 15, 13 * SECOND);
	expect(TIME_COMPUTE, 5);
	expect(TIME_LOST, 5);
	expect(TIME_RESTART, 3);
	expect_sum(14);
	supervise_account_close(&a);
}

static void the_parts_add_up_whatever_happens(void **state)
{
	(void)state;
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	print_message("SEED=%u\n", seed);
	srand(seed);
	for (int run = 0; run < 300; run++) {
		m = (struct model){ .world = 1 + (int)draw(MOST),
				    .devices = (int)draw(MOST + 2),
				    .leaves = draw(2),
				    .program = draw(2) };
		open_account(m.world, m.devices);
		a.opaque = m.program;
		begin_generation();
		for (int i = 0; i < 400; i++) {
			let_time_pass();
			int64_t lost = a.parts[TIME_LOST];
			draw_event();
			check_account();
			check_marks();
			assert_true(a.parts[TIME_LOST] >= lost);
		}
		stop();
		supervise_account_settle(&a, m.now);
		check_account();
		check_marks();
		supervise_account_close(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_restart_loses_the_steps_after_its_checkpoint_and_the_step_in_flight),
		cmocka_unit_test(a_rank_that_was_ready_before_its_message_is_booked_by_shares),
		cmocka_unit_test(nothing_that_was_reported_is_lost_if_the_run_continues_after_it),
		cmocka_unit_test(a_rank_that_died_is_unreported_up_to_the_last_step_of_the_others),
		cmocka_unit_test(restarts_without_progress_lose_no_step_twice),
		cmocka_unit_test(a_rollback_may_go_back_beyond_the_start_of_a_generation),
		cmocka_unit_test(a_rank_that_finished_is_stopping_from_its_last_report_on),
		cmocka_unit_test(a_generation_that_leaves_is_restarting_from_its_last_report_on),
		cmocka_unit_test(a_report_that_falls_or_exceeds_the_time_is_not_believed),
		cmocka_unit_test(a_later_run_continues_the_sums_and_loses_what_it_repeats),
		cmocka_unit_test(a_rank_waits_for_the_slowest_rank_of_its_group),
		cmocka_unit_test(devices_that_no_rank_uses_are_idle),
		cmocka_unit_test(old_marks_are_thinned_and_new_ones_stay_exact),
		cmocka_unit_test(the_time_before_the_first_step_of_a_program_is_its_start),
		cmocka_unit_test(a_program_begins_between_ready_and_now),
		cmocka_unit_test(what_a_program_never_reports_is_not_lost),
		cmocka_unit_test(steps_that_a_program_repeats_are_lost),
		cmocka_unit_test(the_parts_add_up_whatever_happens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
