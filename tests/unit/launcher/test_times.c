/* The supervisor accounts for the time of its ranks in time.jsonl, which is read back whatever it
 * contains. */
#include "base/run_paths.h"
#include "launcher/rundir/time.h"
#include "tests/unit/launcher/harness.h"

#include <math.h>

static json_t *times_json(int64_t step, double compute, double dp)
{
	json_t *us = time_reported_json((int64_t[TIME_REPORTED]){
		[STEP_PART_COMPUTE] = llround(1e6 * compute), [STEP_PART_DP] = llround(1e6 * dp) });
	json_t *body = msg_times_json(&(struct msg_times){ .step = step, .us = us });
	json_decref(us);
	return body;
}

static void send_times(int rank, int64_t step, double compute, double dp)
{
	send_message(&h.peers[rank], MSG_TIMES, times_json(step, compute, dp));
}

static struct rundir_time_line last_line(void)
{
	struct rundir_time_line l;
	struct err e = ERR_INIT;
	if (rundir_time_last(rundir_path(h.run), &l, &e))
		fail_msg("%s", e.text);
	return l;
}

static void expect_about(const char *what, double seconds, double expected)
{
	if (fabs(seconds - expected) > 0.3)
		fail_msg("%s: %g s instead of about %g s", what, seconds, expected);
}

#define EXPECT_ABOUT(l, part, expected) expect_about(#part, (l).part##_s, expected)

/* The ranks make progress, so that none of them counts as hung. */
static void train_for(double seconds)
{
	static int64_t step = 20;
	for (double end = h.now + seconds; h.now < end - 0.01;) {
		pass_time(fmin(1, end - h.now));
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, step);
		step++;
	}
}

/* Ten steps in ten seconds on each rank; a checkpoint follows. */
static void train_ten_steps(void)
{
	train_all();
	train_for(10);
	for (int r = 0; r < WORLD; r++)
		send_times(r, 10, 8, 2);
	send_step(&h.peers[0], MSG_CKPT, 10);
}

static void a_checkpoint_a_minute_and_a_loss_write_a_line(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	pass_time(4);
	train_ten_steps();
	struct rundir_time_line l = last_line();
	assert_int_equal(l.step, 10);
	assert_int_equal(l.ranks, WORLD);
	assert_int_equal(l.devices, WORLD);
	EXPECT_ABOUT(l, start, 2 * 4);
	EXPECT_ABOUT(l, compute, 2 * 8);
	EXPECT_ABOUT(l, dp, 2 * 2);
	EXPECT_ABOUT(l, wall, 14);
	train_for(70);
	l = last_line();
	EXPECT_ABOUT(l, wall, 74);
	EXPECT_ABOUT(l, unreported, 2 * 60);
	end_rank(1);
	pass_time(0.5);
	l = last_line();
	EXPECT_ABOUT(l, wall, 84);
	EXPECT_ABOUT(l, restart, 0);
}

static void what_a_restart_repeats_is_lost(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	train_ten_steps();
	train_for(10);
	send_times(0, 20, 16, 4);
	send_times(1, 20, 16, 4);
	train_for(3);
	h.keep_running = true; /* the processes take their time to end */
	end_rank(1);
	pass_time(5);
	h.keep_running = false;
	deliver_all();
	pass_time(4);
	assert_int_equal(h.starts, 2);
	connect_all();
	for (int r = 0; r < WORLD; r++)
		send_step(&h.peers[r], MSG_READY, 10);
	supervise_stop(h.supervisor, "enough", true);
	pass_time(1);
	struct rundir_time_line l = last_line();
	EXPECT_ABOUT(l, lost, 2 * (10 + 3));
	EXPECT_ABOUT(l, compute, 2 * 8);
	EXPECT_ABOUT(l, restart, 2 * (5 + 4));
	EXPECT_ABOUT(l, wall, 10 + 10 + 3 + 5 + 4);
	expect_about("the sum", l.total_s, 2 * l.wall_s);
	bool last;
	assert_int_equal(count_printed("goodput", &last), 1);
}

static void the_sums_of_an_earlier_run_go_on(void **state)
{
	(void)state;
	struct rundir_time t = { .step = 4, .wall_s = 100 };
	rundir_time_set_parts(&t, (int64_t[TIME_PART_COUNT]){ [TIME_PP] = 150000000,
							      [TIME_RESTART] = 30000000,
							      [TIME_CHECKPOINT] = 20000000 });
	assert_int_equal(llround(t.total_s), 200);
	assert_int_equal(llround(100 * t.goodput), 75);
	rundir_time(h.run, 3, &t);
	supervise_close(h.supervisor);
	assert_int_equal(open_supervisor(&fake_ops), 0);
	supervise_start(h.supervisor);
	train_ten_steps();
	struct rundir_time_line l = last_line();
	EXPECT_ABOUT(l, wall, 110);
	EXPECT_ABOUT(l, pp, 150);
	EXPECT_ABOUT(l, restart, 30);
	EXPECT_ABOUT(l, compute, 2 * 8);
}

static void times_before_a_rank_is_ready_are_against_the_rules(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_all();
	send_times(0, 1, 1, 0);
	pass_time(0.2);
	assert_int_equal(count_events("rank-lost", "message times"), 1);
}

static void lists_of_other_times_are_against_the_rules(void **state)
{
	(void)state;
	static const char *const lists[] = {
		"[]",
		"[1,2,3,4,5,6,7,8,9,10,11,12,13]",
		"[1,2,3,4,5,6,7,8,9,10,11,-1]",
		"[1,2,3,4,5,6,7,8,9,10,11,1.5]",
		"[1,2,3,4,5,6,7,8,9,10,11,9000000000000000000]",
	};
	int64_t us[TIME_REPORTED];
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		json_t *list = json_loads(lists[i], 0, NULL);
		assert_non_null(list);
		assert_int_equal(time_reported_read(list, us, NULL), -1);
		json_decref(list);
	}
	supervise_start(h.supervisor);
	train_all();
	json_t *empty = json_array();
	send_message(&h.peers[0], MSG_TIMES, msg_times_json(&(struct msg_times){ .us = empty }));
	json_decref(empty);
	pass_time(0.2);
	assert_int_equal(count_events("rank-lost", "message times"), 1);
}

/* --- the file --------------------------------------------------------------------------- */

static void write_text(const char *text)
{
	char path[400];
	snprintf(path, sizeof path, "%s/" RUN_TIME, rundir_path(h.run));
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void count_line(void *arg, const struct rundir_time_line *l)
{
	int64_t *sum = arg;
	*sum += l->step;
}

static int64_t sum_steps(size_t most)
{
	int64_t sum = 0;
	assert_int_equal(rundir_time_each(rundir_path(h.run), most, count_line, &sum, NULL), 0);
	return sum;
}

static void damaged_lines_are_skipped(void **state)
{
	(void)state;
	struct rundir_time_line l;
	struct err e = ERR_INIT;
	assert_int_equal(rundir_time_last(rundir_path(h.run), &l, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(sum_steps(0), 0);
	for (int i = 1; i <= 300; i++)
		rundir_time(h.run, 1, &(struct rundir_time){ .step = i });
	write_text("{\"format\":\"muster/time\",\"version\":1}\nnothing\n\n");
	char text[20000];
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	write_text(text);
	write_text("\n");
	rundir_time(h.run, 1, &(struct rundir_time){ .step = 301 });
	rundir_time(h.run, 1, &(struct rundir_time){ .step = 7777, .wall_s = -1 });
	rundir_time(h.run, 1, &(struct rundir_time){ .step = 7777, .lost_s = 1e18 });
	rundir_time(h.run, 1, &(struct rundir_time){ .step = 7777, .dp_s = NAN });
	write_text("{\"step\":99");
	assert_int_equal(sum_steps(0), 301 * 302 / 2);
	l = last_line();
	assert_int_equal(l.step, 301);
	/* Only the end: the line in which it begins does not count. */
	assert_in_range(sum_steps(30000), 301, 301 * 300 / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_checkpoint_a_minute_and_a_loss_write_a_line,
						setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_restart_repeats_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(the_sums_of_an_earlier_run_go_on, setup, teardown),
		cmocka_unit_test_setup_teardown(times_before_a_rank_is_ready_are_against_the_rules,
						setup, teardown),
		cmocka_unit_test_setup_teardown(lists_of_other_times_are_against_the_rules, setup,
						teardown),
		cmocka_unit_test_setup_teardown(damaged_lines_are_skipped, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
