/* Tests what the supervisor makes of a loss: the fault, and whether another generation starts. */
#include "tests/unit/launcher/harness.h"

/* Writes a file below the test's folder, with its folders. */
static void write_below(const char *path, const char *text)
{
	char file[600], command[700];
	snprintf(file, sizeof file, "%s/%s", h.dir, path);
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", file);
	assert_int_equal(system(command), 0);
	FILE *out = fopen(file, "w");
	assert_true(out && fputs(text, out) >= 0 && !fclose(out));
}

/* A supervisor that reads the decoy of /proc and /sys in the test's folder. */
static void open_with_decoy(void)
{
	supervise_close(h.supervisor);
	const struct supervise_options o = {
		.loop = &h.loop,
		.job = &h.first.job,
		.machines = &h.first.cluster,
		.first = &h.first,
		.ops = &fake_ops,
		.run = h.run,
		.term = h.term,
		.listener = -1,
		.address = "",
		.limits = SUPERVISE_LIMITS,
		.now = fake_now,
		.root = h.dir,
	};
	assert_int_equal(supervise_open(&o, &h.supervisor, NULL), 0);
}

static void start_training(void)
{
	supervise_start(h.supervisor);
	deliver_all();
	train_all();
	send_step(&h.peers[1], MSG_METRICS, 1);
}

/* The rank's connection closes, and its process ends by this signal. */
static void kill_rank(int rank, int signal)
{
	h.status[rank] = signal;
	shutdown(h.peers[rank].fd, SHUT_RDWR);
	deliver_all();
}

static void the_signal_tells_killed_from_crashed(void **state)
{
	(void)state;
	start_training();
	kill_rank(1, SIGSEGV);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"agent-crashed\""), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"signal\":11"), 1);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"owner\":\"unknown\""), 1);
	assert_int_equal(h.starts, 2);
}

static void the_oom_killer_is_known_by_its_counter(void **state)
{
	(void)state;
	write_below("proc/self/cgroup", "0::/job\n");
	write_below("sys/fs/cgroup/job/memory.events", "oom 4\noom_kill 3\n");
	open_with_decoy();
	start_training();
	write_below("sys/fs/cgroup/job/memory.events", "oom 5\noom_kill 4\n");
	kill_rank(1, SIGKILL);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"out-of-memory\""), 1);
	/* The counter has not grown since: the next kill is another one's. */
	train_all();
	kill_rank(1, SIGKILL);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"agent-killed\""), 1);
}

/* An agent that lives on, or a new one, may be killed before all ranks are ready, and the counter may
 * already say so when the next generation starts. */
static void the_oom_killer_may_strike_again_before_all_are_ready(void **state)
{
	(void)state;
	write_below("proc/vmstat", "oom_kill 3\n");
	open_with_decoy();
	start_training();
	write_below("proc/vmstat", "oom_kill 5\n");
	kill_rank(1, SIGKILL);
	pass_time(2);
	connect_all();
	kill_rank(0, SIGKILL);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"out-of-memory\""), 2);
}

static void a_crash_is_not_the_oom_killers(void **state)
{
	(void)state;
	write_below("proc/vmstat", "oom_kill 0\n");
	open_with_decoy();
	start_training();
	write_below("proc/vmstat", "oom_kill 1\n");
	kill_rank(1, SIGSEGV);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"agent-crashed\""), 1);
}

/* srun says this and ends. */
static void refuse_step(const char *said)
{
	char path[64];
	snprintf(path, sizeof path, "run/logs/launch-%u.log", h.generation);
	write_below(path, said);
	h.running = false;
	h.events.exited(h.events.arg, -1, 1 << 8);
	h.events.all_gone(h.events.arg);
	deliver_all();
}

static const char *const away =
	"srun: error: Unable to confirm allocation for job 3: Unable to contact slurm controller "
	"(connect failure)\n";

static void an_outage_of_slurm_does_not_count(void **state)
{
	(void)state;
	h.first.job.restart.patience = 1000;
	h.first.job.restart.max_restarts = h.first.job.restart.max_futile = 1;
	open_with_decoy();
	supervise_start(h.supervisor);
	deliver_all();
	for (int i = 0; i < 10; i++) {
		int starts = h.starts;
		refuse_step(away);
		pass_time(20);
		assert_int_equal(h.starts, starts + 1);
	}
	assert_int_equal(count_events("\"event\":\"fault\"", "\"retry\":\"wait\""), 10);
	train_all();
	send_step(&h.peers[1], MSG_METRICS, 1);
	kill_rank(1, SIGKILL); /* the one restart is still left */
	assert_int_equal(exit_status(), -1);
	assert_int_equal(h.starts, 12);
}

static void patience_with_an_outage_ends(void **state)
{
	(void)state;
	bool last;
	h.first.job.restart.patience = 30;
	open_with_decoy();
	supervise_start(h.supervisor);
	deliver_all();
	for (int i = 0; exit_status() < 0 && i < 20; i++) {
		refuse_step(away);
		pass_time(16);
	}
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
	assert_int_equal(count_events("gave-up", "patience = 30 s"), 1);
	/* With the first loss, and as the last words: not with each restart. */
	assert_true(h.starts > 2);
	assert_int_equal(count_printed("remedy     Tell the site's administrators", &last), 2);
	assert_true(last);
}

static void a_missing_plugin_is_not_tried_again(void **state)
{
	(void)state;
	bool last;
	open_with_decoy();
	supervise_start(h.supervisor);
	deliver_all();
	refuse_step("srun: error: cannot find mpi plugin for mpi/pmix\n");
	assert_int_equal(exit_status(), STATUS_FAILED);
	assert_int_equal(h.starts, 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"pmix-missing\""), 1);
	assert_int_equal(count_printed("remedy     Install Slurm's mpi/pmix plugin", &last), 1);
	assert_true(last);
}

static void a_pmix_server_that_does_not_work_is_replaced(void **state)
{
	(void)state;
	open_with_decoy();
	supervise_start(h.supervisor);
	deliver_all();
	h.events.noted(h.events.arg, LAUNCH_NOTE_PMIX_REFUSED, NULL, "it cannot be reached");
	refuse_step("srun: error: cannot find mpi plugin for mpi/pmix\n");
	pass_time(20);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"event\":\"pmix\"", "\"what\":\"refused\""), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"pmix-refused\""), 1);
	h.events.noted(h.events.arg, LAUNCH_NOTE_OWN_PMIX, NULL, "it cannot be reached");
	assert_int_equal(count_events("\"event\":\"pmix\"", "\"what\":\"own\""), 1);
	/* The note was of the first generation only. */
	train_all();
	send_step(&h.peers[1], MSG_METRICS, 1);
	kill_rank(1, SIGSEGV);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"agent-crashed\""), 1);
}

static void a_lost_helper_is_named(void **state)
{
	(void)state;
	bool last;
	start_training();
	h.events.noted(h.events.arg, LAUNCH_NOTE_HELPER_LOST, h.node.name, "the helper has ended");
	kill_rank(1, SIGKILL);
	assert_int_equal(count_events("\"event\":\"pmix\"", "\"what\":\"helper-lost\""), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"helper-lost\""), 1);
	assert_int_equal(count_printed("the helper has ended", &last), 1);
	assert_int_equal(h.starts, 2);
}

/* Rank `rank` fails, and blames `ranks`, a JSON list. */
static void fail_with_blame(int rank, const char *code, const char *ranks, bool suspect)
{
	json_t *list = json_loads(ranks, JSON_DECODE_ANY, NULL),
	       *blame = msg_blame_json(&(struct msg_blame){ .ranks = list,
							    .suspect = suspect,
							    .step = 4,
							    .kind = "weights",
							    .tensor = "norm.weight" });
	send_message(&h.peers[rank], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){
			     .code = code, .text = "bad", .has_blame = true, .blame = blame }));
	json_decref(list);
	json_decref(blame);
	deliver_all();
}

static int count_traced(const char *words)
{
	return count_events("\"event\":\"numbers-traced\"", words);
}

static void wrong_numbers_are_the_loss_of_the_rank_that_they_were_traced_to(void **state)
{
	(void)state;
	start_training();
	fail_with_blame(0, "numeric", "[1]", true);
	fail_with_blame(1, "numeric", "[1]", true); /* all ranks report the same */
	end_rank(0);
	end_rank(1);
	assert_int_equal(count_traced("\"rank\":1,"), 1);
	assert_int_equal(count_traced("\"step\":4,\"kind\":\"weights\",\"tensor\":\"norm.weight\""),
			 1);
	assert_int_equal(count_traced(""), 1);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"rank\":1,"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"wrong-results\""), 1);
	assert_int_equal(count_events("\"event\":\"node-suspected\"", "\"numbers\""), 1);
}

static void numbers_that_come_from_the_data_make_no_node_suspect(void **state)
{
	(void)state;
	start_training();
	fail_with_blame(0, "numeric", "[1]", false);
	end_rank(0);
	end_rank(1);
	assert_int_equal(count_traced("\"rank\":1,"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"numeric\""), 1);
	assert_int_equal(count_events("\"event\":\"node-suspected\"", ""), 0);
}

static void replicas_of_which_either_may_be_wrong_are_both_named(void **state)
{
	(void)state;
	start_training();
	fail_with_blame(1, "replicas", "[0, 1]", true);
	end_rank(0);
	end_rank(1);
	assert_int_equal(count_traced(""), 2);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"rank\":null"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"replicas-differ\""), 1);
	assert_true(count_events("\"event\":\"node-suspected\"", "\"numbers\"") >= 1);
}

static void a_malformed_blame_is_a_broken_protocol(void **state)
{
	static const char *const lists[] = { "[2]",         "[-1]",
					     "[\"1\"]",     "[1.5]",
					     "[null]",      "7",
					     "{}",          "[0,0,0,0,0,0,0,0,0]",
					     "[4294967297]" };
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		if (i && (teardown(state) || setup(state)))
			fail();
		start_training();
		fail_with_blame(0, "numeric", lists[i], true);
		assert_int_equal(count_traced(""), 0);
		assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"protocol\""), 1);
	}
}

/* A loss that several ranks are blamed for has no rank, but one that blames a peer must have
 * one. */
static void only_wrong_numbers_are_blamed_on_ranks(void **state)
{
	static const char *const codes[] = { "peer", "timeout", "device" };
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		if (i && (teardown(state) || setup(state)))
			fail();
		start_training();
		fail_with_blame(1, codes[i], "[0, 1]", true);
		assert_int_equal(count_traced(""), 0);
		assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"protocol\""), 1);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_signal_tells_killed_from_crashed),
		T(the_oom_killer_is_known_by_its_counter),
		T(the_oom_killer_may_strike_again_before_all_are_ready),
		T(a_crash_is_not_the_oom_killers),
		T(an_outage_of_slurm_does_not_count),
		T(patience_with_an_outage_ends),
		T(a_missing_plugin_is_not_tried_again),
		T(a_pmix_server_that_does_not_work_is_replaced),
		T(a_lost_helper_is_named),
		T(wrong_numbers_are_the_loss_of_the_rank_that_they_were_traced_to),
		T(numbers_that_come_from_the_data_make_no_node_suspect),
		T(replicas_of_which_either_may_be_wrong_are_both_named),
		T(a_malformed_blame_is_a_broken_protocol),
		T(only_wrong_numbers_are_blamed_on_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
