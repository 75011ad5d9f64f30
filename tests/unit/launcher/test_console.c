/* Consoles that a test plays over real connections, and state.json, with the supervisor of the
 * harness. */
#include "base/clock.h"
#include "base/net.h"
#include "base/run_paths.h"
#include "launcher/rundir/control.h"
#include "launcher/rundir/state.h"
#include "launcher/supervise/console.h"
#include "tests/unit/launcher/harness.h"

#include <errno.h>

enum { VIEWERS = CONSOLES + 2 };

/* A console. */
struct viewer {
	int fd;
	struct channel *channel;
	bool closed;
	int answers;
	json_t *body; /* of the last answer */
	struct msg_console_answer last;
};

static struct viewer viewers[VIEWERS];

static void viewer_end(struct viewer *v)
{
	if (v->channel)
		close(v->fd);
	channel_close(v->channel);
	json_decref(v->body);
	*v = (struct viewer){ .fd = -1 };
}

static void viewer_write(struct viewer *v)
{
	struct buf *out = channel_out(v->channel);
	ssize_t n = out->len ? send(v->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (n > 0)
		buf_drop(out, (size_t)n);
}

static void viewer_read(struct viewer *v)
{
	char chunk[65536];
	struct msg m;
	struct err e = ERR_INIT;
	ssize_t n = recv(v->fd, chunk, sizeof chunk, MSG_DONTWAIT);
	v->closed |= n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (n <= 0 || channel_feed(v->channel, chunk, (size_t)n, &e))
		return;
	while (channel_next(v->channel, &m, &e) == 1) {
		assert_int_equal(m.type, MSG_CONSOLE_ANSWER);
		json_decref(v->body);
		v->body = json_incref(m.body);
		assert_int_equal(msg_console_answer_read(v->body, &v->last, NULL), 0);
		v->answers++;
		msg_fini(&m);
	}
}

/* Delivers what is under way between the consoles and the supervisor. */
static void pump(void)
{
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < VIEWERS; i++)
			if (viewers[i].channel)
				viewer_write(&viewers[i]);
		deliver_all();
		for (int i = 0; i < VIEWERS; i++)
			if (viewers[i].channel)
				viewer_read(&viewers[i]);
	}
}

/* Connects without a word. secret: NULL: the one in the file. */
static struct viewer *viewer_open(int i, const unsigned char *secret)
{
	struct viewer *v = &viewers[i];
	struct rundir_control c;
	unsigned char own[AUTH_SECRET_BYTES];
	json_t *object;
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, NULL), 0);
	assert_int_equal(auth_secret_parse(c.secret, own, NULL), 0);
	viewer_end(v);
	assert_int_equal(net_connect(c.address, 5, &v->fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_AGENT, secret ? secret : own, CONSOLE_GENERATION,
				      &v->channel, NULL),
			 0);
	json_decref(object);
	return v;
}

static void tell(struct viewer *v, enum msg_type type, json_t *body)
{
	assert_int_equal(channel_send(v->channel, type, body, NULL), 0);
	json_decref(body);
}

static void greet(struct viewer *v, int version)
{
	tell(v, MSG_CONSOLE_HELLO,
	     msg_console_hello_json(
		     &(struct msg_console_hello){ .version = version, .who = "ada on desk" }));
}

static struct viewer *viewer_join(int i)
{
	struct viewer *v = viewer_open(i, NULL);
	greet(v, CONSOLE_VERSION);
	pump();
	assert_false(v->closed);
	return v;
}

static void ask_for(struct viewer *v, const char *what)
{
	tell(v, MSG_CONSOLE_ASK, msg_console_ask_json(&(struct msg_console_ask){ .what = what }));
}

static void ask(struct viewer *v, const char *what)
{
	int before = v->answers;
	ask_for(v, what);
	pump();
	assert_int_equal(v->answers, before + 1);
}

static int setup_started(void **state)
{
	for (int i = 0; i < VIEWERS; i++)
		viewers[i].fd = -1;
	if (setup(state))
		return -1;
	supervise_start(h.supervisor);
	return 0;
}

static int teardown_all(void **state)
{
	for (int i = 0; i < VIEWERS; i++)
		viewer_end(&viewers[i]);
	return teardown(state);
}

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

/* --- state ---------------------------------------------------------------------------- */

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

/* --- stop and checkpoint -------------------------------------------------------------- */

static void test_stop_asks_the_ranks_for_a_checkpoint_and_stop_now_kills_them(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "stop");
	assert_true(v->last.ok);
	assert_non_null(strstr(v->last.text, "with a checkpoint"));
	assert_true(h.peers[0].stopped && h.peers[1].stopped && h.peers[0].checkpoint);
	assert_int_equal(count_events("\"event\":\"stop\"", "ada on desk"), 1);
	ask(v, "stop");
	assert_non_null(strstr(v->last.text, "already"));
	assert_int_equal(exit_status(), -1);
	ask(v, "stop-now");
	pump();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void test_all_who_ask_get_the_same_checkpoint(void **state)
{
	(void)state;
	struct viewer *a = viewer_join(0), *b = viewer_join(1);
	ask(a, "checkpoint");
	assert_false(a->last.ok); /* it does not train yet */
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
	ask(a, "checkpoint");
	assert_true(a->last.ok && a->last.more);
	ask(b, "checkpoint");
	assert_true(b->last.ok && b->last.more);
	assert_int_equal(h.peers[0].saves, 1);
	assert_int_equal(h.peers[1].saves, 1);
	/* One that was begun before does not answer it. */
	send_step(&h.peers[0], MSG_CKPT, 3);
	pump();
	assert_int_equal(b->answers, 1);
	send_step(&h.peers[0], MSG_CKPT, 5);
	pump();
	assert_true(a->last.ok && !a->last.more && a->last.step == 5);
	assert_true(b->last.ok && !b->last.more && b->last.step == 5);
	assert_string_equal(b->last.path, "ckpt/x");
	/* The next one is another request. */
	ask(a, "checkpoint");
	assert_int_equal(h.peers[0].saves, 2);
	assert_int_equal(count_events("ckpt-asked", "ada on desk"), 2);
}

static void test_a_checkpoint_that_fails_is_told(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "checkpoint");
	send_message(&h.peers[0], MSG_SAVE_FAILED,
		     msg_save_failed_json(
			     &(struct msg_save_failed){ .step = 1, .text = "the disk is full" }));
	pump();
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "the disk is full"));
	assert_int_equal(exit_status(), -1);
}

static void test_a_loss_ends_the_wait_for_a_checkpoint(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "checkpoint");
	end_rank(1);
	pass_time(0.3);
	pump();
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_false(v->closed);
}

static void test_the_last_checkpoint_answers_too(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	supervise_stop(h.supervisor, "enough", false);
	ask(v, "checkpoint");
	assert_true(v->last.more);
	assert_int_equal(h.peers[0].saves, 0);
	send_step(&h.peers[0], MSG_CKPT, 7);
	pump();
	assert_true(v->last.ok && v->last.step == 7);
}

/* --- connections ------------------------------------------------------------------------ */

static void test_who_does_not_know_the_secret_is_closed(void **state)
{
	(void)state;
	unsigned char wrong[AUTH_SECRET_BYTES] = { 1 };
	struct viewer *v = viewer_open(0, wrong);
	greet(v, CONSOLE_VERSION);
	ask_for(v, "stop-now");
	pump();
	assert_true(v->closed);
	assert_int_equal(v->answers, 0);
	assert_int_equal(exit_status(), -1);
	/* The agents' secret is another one. */
	v = viewer_open(0, h.secret);
	greet(v, CONSOLE_VERSION);
	pump();
	assert_true(v->closed);
}

static void test_what_is_no_hello_or_no_question_closes_the_connection(void **state)
{
	(void)state;
	struct viewer *v = viewer_open(0, NULL);
	ask_for(v, "state");
	pump();
	assert_true(v->closed);
	v = viewer_open(0, NULL);
	greet(v, CONSOLE_VERSION + 1);
	pump();
	assert_int_equal(v->answers, 1);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "another version"));
	assert_true(v->closed);
	v = viewer_join(0);
	tell(v, MSG_ALIVE, NULL);
	pump();
	assert_true(v->closed);
	v = viewer_join(0);
	ask(v, "dance");
	assert_false(v->last.ok);
	assert_false(v->closed);
	/* An agent's connection is no console's. */
	train_all();
	send_message(&h.peers[0], MSG_CONSOLE_ASK,
		     msg_console_ask_json(&(struct msg_console_ask){ .what = "stop-now" }));
	assert_int_equal(count_events("rank-lost", ""), 1);
}

static void test_a_console_that_does_not_read_is_dropped_and_delays_nobody(void **state)
{
	(void)state;
	struct viewer *deaf = viewer_join(0), *v = viewer_join(1);
	train_all();
	for (int i = 0; i < 200000 && !deaf->closed; i++) {
		ask_for(deaf, "state");
		viewer_write(deaf);
		if (i % 64 == 0)
			deliver_all();
		char byte;
		ssize_t n = recv(deaf->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
		deaf->closed = channel_out(deaf->channel)->len > 1 << 20 || n == 0;
	}
	/* What the supervisor queues for it is one answer at most, so it was dropped: writes fail. */
	for (int i = 0; i < 2000 && send(deaf->fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0; i++)
		deliver_all();
	assert_true(send(deaf->fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN);
	ask(v, "state");
	assert_true(v->last.ok);
}

static void test_the_console_that_was_quiet_for_longest_makes_room(void **state)
{
	(void)state;
	for (int i = 0; i < CONSOLES; i++) {
		viewer_join(i);
		pass_time(0.1);
	}
	ask(&viewers[0], "state");
	viewer_join(CONSOLES);
	assert_true(viewers[1].closed);
	for (int i = 0; i < CONSOLES; i++)
		assert_int_equal(viewers[i].closed, i == 1);
	ask(&viewers[CONSOLES], "state");
}

static void test_the_file_control_is_private_and_goes_with_the_run(void **state)
{
	(void)state;
	struct rundir_control c;
	struct err e = ERR_INIT;
	json_t *object;
	char path[RUN_PATH];
	struct stat st;
	run_path(path, rundir_path(h.run), RUN_CONTROL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, NULL), 0);
	assert_int_equal(strncmp(c.address, "127.0.0.1:", 10), 0);
	assert_int_equal(c.pid, getpid());
	json_decref(object);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	supervise_stop(h.supervisor, "enough", true);
	pump();
	supervise_close(h.supervisor);
	h.supervisor = NULL;
	assert_int_equal(stat(path, &st), -1);
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

/* What the loop spends on a snapshot and on a page of ranks, printed for the figures; the limits
 * hold many times over. */
static void test_a_snapshot_of_1024_ranks_costs_the_loop_little(void **state)
{
	(void)state;
	enum { TIMES = 200 };
	struct viewer *v = viewer_join(0);
	double since = clock_s();
	for (int i = 0; i < TIMES; i++) {
		h.now += 6;
		supervise_tick(h.supervisor);
	}
	double snapshot = (clock_s() - since) / TIMES;
	ask(v, "ranks");
	assert_int_equal(json_array_size(v->last.ranks), CONSOLE_RANKS);
	assert_int_equal(v->last.world, MANY);
	print_message("# figure: a snapshot of %d ranks: %.3f ms\n", MANY, 1e3 * snapshot);
	assert_true(snapshot < 0.05);
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
		CASE(test_stop_asks_the_ranks_for_a_checkpoint_and_stop_now_kills_them),
		CASE(test_all_who_ask_get_the_same_checkpoint),
		CASE(test_a_checkpoint_that_fails_is_told),
		CASE(test_a_loss_ends_the_wait_for_a_checkpoint),
		CASE(test_the_last_checkpoint_answers_too),
		CASE(test_who_does_not_know_the_secret_is_closed),
		CASE(test_what_is_no_hello_or_no_question_closes_the_connection),
		CASE(test_a_console_that_does_not_read_is_dropped_and_delays_nobody),
		CASE(test_the_console_that_was_quiet_for_longest_makes_room),
		CASE(test_the_file_control_is_private_and_goes_with_the_run),
		cmocka_unit_test_setup_teardown(test_a_snapshot_of_1024_ranks_costs_the_loop_little,
						setup_many, teardown_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
