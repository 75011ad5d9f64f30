/* What a run does, as state.json and consoles tell it. */
#include "base/clock.h"
#include "base/run_paths.h"
#include "launcher/supervise/supervisor.h"
#include "tests/unit/launcher/viewer.h"

#include <math.h>

static struct rundir_state read_state(json_t **object)
{
	struct rundir_state s;
	assert_int_equal(rundir_state_load(rundir_path(h.run), object, &s, NULL), 0);
	return s;
}

static void assert_file_says(const char *state)
{
	json_t *object;
	struct rundir_state s = read_state(&object);
	assert_string_equal(s.state, state);
	json_decref(object);
}

static void test_a_console_gets_the_state_of_this_moment(void **state)
{
	(void)state;
	struct rundir_state s;
	struct viewer *v = viewer_join(0);
	ask(v, "state");
	assert_true(v->last.ok && v->last.has_state);
	assert_int_equal(rundir_state_check(v->last.state, &s, NULL), 0);
	assert_string_equal(s.state, "starting");
	assert_false(s.has_step || s.has_loss || s.has_eta_s || s.has_checkpoint);
	assert_false(s.has_least_s || s.has_most_s);
	snprintf(h.kind.device, sizeof h.kind.device, "A100-SXM4-80GB");
	h.kind.device_flops = 312e12;
	h.first.job.precision.dtype = DTYPE_BF16;
	h.first.plan.time.total = 0.1;
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
	send_step(&h.peers[0], MSG_CKPT, 4);
	ask(v, "state");
	assert_int_equal(rundir_state_check(v->last.state, &s, NULL), 0);
	assert_string_equal(s.state, "training");
	assert_int_equal(s.step, 4);
	assert_int_equal(s.steps, 10);
	assert_true(s.has_loss && s.loss > 2.49 && s.loss < 2.51);
	assert_true(s.has_eta_s && s.eta_s > 0.59 && s.eta_s < 0.61);
	assert_true(s.has_least_s && s.least_s > 0.089 && s.least_s < 0.09);
	assert_true(s.has_most_s && s.most_s > 0.113 && s.most_s < 0.114);
	struct rundir_state_ckpt c;
	assert_int_equal(rundir_state_ckpt_read(s.checkpoint, &c, NULL), 0);
	assert_int_equal(c.step, 4);
	assert_string_equal(c.path, "ckpt/x");
	struct rundir_state_next n;
	assert_int_equal(rundir_state_next_read(s.next_checkpoint, &n, NULL), 0);
	assert_int_equal(n.step, 10);
}

static void test_the_file_follows_each_change_of_state(void **state)
{
	(void)state;
	assert_file_says("starting");
	train_all();
	pass_time(0.1);
	assert_file_says("training");
	end_rank(1);
	pass_time(0.5);
	assert_file_says("restarting");
	supervise_stop(h.supervisor, "enough", true);
	deliver_all();
	pass_time(0.2);
	assert_file_says("stopped");
	json_t *object;
	struct rundir_state s = read_state(&object);
	assert_int_equal(s.status, STATUS_STOPPED);
	assert_string_equal(s.reason, "enough");
	json_decref(object);
}

/* Lets time pass in which the ranks send what they do. */
static void train_for(int seconds)
{
	static int64_t step;
	for (int i = 0; i < seconds; i++) {
		pass_time(1.0);
		step++;
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, step);
	}
}

static ino_t file_now(void)
{
	char path[RUN_PATH];
	struct stat st;
	run_path(path, rundir_path(h.run), RUN_STATE);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	return st.st_ino;
}

/* A file that is replaced gets another inode, because the old one is still there until then. */
static void test_the_file_is_replaced_every_five_seconds_and_not_more_often(void **state)
{
	(void)state;
	train_all();
	pass_time(0.1);
	int changes = 0;
	ino_t last = file_now();
	for (int i = 0; i < 4 * 20; i++) {
		train_for(1);
		changes += file_now() != last;
		last = file_now();
	}
	assert_in_range(changes, 15, 17);
}

static void test_a_file_that_cannot_be_written_is_told_once(void **state)
{
	(void)state;
	char path[RUN_PATH];
	bool last;
	snprintf(path, sizeof path, "%.4000s/" RUN_STATE ".new", rundir_path(h.run));
	assert_int_equal(mkdir(path, 0700), 0);
	train_all();
	train_for(12);
	assert_int_equal(count_printed(RUN_STATE, &last), 1);
	assert_int_equal(rmdir(path), 0);
	train_for(6);
	assert_file_says("training");
}

static void test_ranks_that_are_silent_stand_out(void **state)
{
	(void)state;
	train_all();
	json_t *object;
	for (int i = 0; i < 10; i++) {
		pass_time(1);
		send_step(&h.peers[0], MSG_PROGRESS, i);
	}
	struct rundir_state s = read_state(&object);
	assert_int_equal(json_array_size(s.stand_out), 1);
	struct rundir_state_spot spot;
	assert_int_equal(rundir_state_spot_read(json_array_get(s.stand_out, 0), &spot, NULL), 0);
	assert_int_equal(spot.rank, 1);
	assert_string_equal(spot.node, "here");
	assert_non_null(strstr(spot.what, "sent nothing for"));
	json_decref(object);
}

static void test_ranks_come_in_pages(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	struct rundir_state_rank r;
	train_all();
	ask(v, "ranks");
	assert_int_equal(v->last.world, WORLD);
	assert_int_equal(json_array_size(v->last.ranks), WORLD);
	tell(v, MSG_CONSOLE_ASK,
	     msg_console_ask_json(&(struct msg_console_ask){ .what = "ranks",
							     .has_first = true,
							     .first = 1,
							     .has_count = true,
							     .count = 5 }));
	pump();
	assert_int_equal(v->last.first, 1);
	assert_int_equal(json_array_size(v->last.ranks), WORLD - 1);
	assert_int_equal(rundir_state_rank_read(json_array_get(v->last.ranks, 0), &r, NULL), 0);
	assert_int_equal(r.rank, 1);
	assert_string_equal(r.node, "here");
	assert_string_equal(r.phase, "ready");
	for (int first = -1; first <= WORLD + 1; first += WORLD + 2) {
		tell(v, MSG_CONSOLE_ASK,
		     msg_console_ask_json(&(struct msg_console_ask){
			     .what = "ranks", .has_first = true, .first = first }));
		pump();
		assert_false(v->last.ok);
	}
}

/* --- speed -------------------------------------------------------------------------------- */

enum { MANY = 1024 };

static struct plan_rank many[MANY];

/* The same with a world of 1,024 ranks on one node. */
static int setup_many(void **state)
{
	if (setup(state))
		return -1;
	supervise_close(h.supervisor);
	uv_run(&h.loop, UV_RUN_DEFAULT);
	for (int r = 0; r < MANY; r++)
		many[r] = (struct plan_rank){ .threads = 1 };
	h.first.plan.world = MANY;
	h.first.plan.ranks = many;
	for (int i = 0; i < VIEWERS; i++)
		viewers[i].fd = -1;
	if (open_supervisor(&fake_ops))
		return -1;
	supervise_start(h.supervisor);
	return 0;
}

/* The shortest time of several, because other processes disturb most of them. */
static double shortest(void (*work)(void))
{
	double best = 1e9;
	for (int i = 0; i < 200; i++) {
		double since = clock_s();
		work();
		best = fmin(best, clock_s() - since);
	}
	return best;
}

static void write_snapshot(void)
{
	supervise_state_write(h.supervisor);
}

static void list_ranks(void)
{
	json_decref(supervise_state_ranks_json(h.supervisor, 0, CONSOLE_RANKS));
}

/* What the loop spends on a snapshot and on a page of ranks; the limit holds many times over. */
static void test_a_snapshot_of_1024_ranks_costs_the_loop_little(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	ask(v, "ranks");
	assert_int_equal(json_array_size(v->last.ranks), CONSOLE_RANKS);
	assert_int_equal(v->last.world, MANY);
	double snapshot = shortest(write_snapshot), page = shortest(list_ranks);
	print_message("# figure: %d ranks: a snapshot %.3f ms, a page of %d ranks %.3f ms\n", MANY,
		      1e3 * snapshot, CONSOLE_RANKS, 1e3 * page);
	assert_true(snapshot < 0.05 && page < 0.05);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_started, teardown_all)

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		CASE(test_a_console_gets_the_state_of_this_moment),
		CASE(test_the_file_follows_each_change_of_state),
		CASE(test_the_file_is_replaced_every_five_seconds_and_not_more_often),
		CASE(test_a_file_that_cannot_be_written_is_told_once),
		CASE(test_ranks_that_are_silent_stand_out),
		CASE(test_ranks_come_in_pages),
		cmocka_unit_test_setup_teardown(test_a_snapshot_of_1024_ranks_costs_the_loop_little,
						setup_many, teardown_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
