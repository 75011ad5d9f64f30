/* What the supervisor remembers of the agents of earlier generations, and what a later supervisor
 * reads of it from the run folder. */
#include "launcher/supervise/predecessors.h"

#include "base/file.h"
#include "launcher/rundir/agents.h"
#include "launcher/rundir/events.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static struct predecessors *known;
static char dir[256], events[512];

static int setup(void **state)
{
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(events, sizeof events, "%s/run/events.jsonl", dir);
	return supervise_predecessors_open(&known, NULL);
}

static int teardown(void **state)
{
	(void)state;
	char remove[512];
	supervise_predecessors_close(known);
	snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
	return system(remove) ? -1 : 0;
}

static void hello(uint32_t generation, int rank, const char *node, int pid)
{
	supervise_predecessors_add(known, generation,
				   &(struct msg_hello){ .rank = rank,
							.node = node,
							.pid = pid,
							.start = 10 * pid,
							.pid_space = 5,
							.boot = "b" });
}

/* The pids of the list for an agent, the last one first, as in "3 2 1"; "": none. */
static const char *listed(uint32_t generation, const char *node)
{
	static char text[8192];
	size_t len = 0;
	json_t *list = supervise_predecessors_list(known, generation, node);
	*text = '\0';
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct msg_predecessor p;
		assert_int_equal(msg_predecessor_read(json_array_get(list, i), &p, NULL), 0);
		assert_true(p.generation < generation);
		assert_int_equal(p.start, 10 * p.pid);
		assert_int_equal(p.pid_space, 5);
		assert_string_equal(p.boot, "b");
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i ? " " : "", p.pid);
	}
	json_decref(list);
	return text;
}

static void a_new_agent_gets_the_earlier_agents_of_its_own_host(void **state)
{
	(void)state;
	hello(1, 0, "n1", 11);
	hello(1, 1, "n2", 12);
	assert_string_equal(listed(1, "n1"), "");
	hello(2, 0, "n1", 21);
	assert_string_equal(listed(2, "n1"), "11");
	assert_string_equal(listed(3, "n1"), "21 11");
	assert_string_equal(listed(3, "n2"), "12");
	assert_string_equal(listed(3, "n3"), "");
}

static void an_agent_whose_end_was_seen_is_forgotten(void **state)
{
	(void)state;
	hello(1, 0, "n1", 11);
	hello(1, 1, "n1", 12);
	hello(2, 0, "n1", 21);
	supervise_predecessors_ended(known, 1, 0, "n1");
	assert_string_equal(listed(3, "n1"), "21 12");
}

/* A plain list of the same agents, for the random test. */
enum { HOSTS = 5, RANKS = 16, MOST = 4096 };

static struct plain {
	uint32_t generation; /* 0: forgotten */
	int rank, host, pid;
} plain[MOST];
static int n_plain;

static const char *name_of(int host)
{
	static const char *const names[HOSTS] = { "n0", "n1", "n2", "n3", "n4" };
	return names[host];
}

static void both_add(uint32_t generation, int rank, int host)
{
	int pid = n_plain + 1;
	hello(generation, rank, name_of(host), pid);
	plain[n_plain++] = (struct plain){ generation, rank, host, pid };
}

static void both_keep(uint32_t generation, int rank)
{
	struct plain *a = &plain[rand() % n_plain];
	if (!a->generation)
		return;
	supervise_predecessors_keep(known, generation,
				    &(struct msg_hello){ .rank = rank,
							 .node = name_of(a->host),
							 .pid = a->pid,
							 .start = 10 * a->pid,
							 .pid_space = 5,
							 .boot = "b" });
	a->generation = generation;
	a->rank = rank;
}

static void both_end(uint32_t generation, int rank, int host)
{
	supervise_predecessors_ended(known, generation, rank, name_of(host));
	for (struct plain *a = plain; a < plain + n_plain; a++)
		if (a->generation == generation && a->rank == rank && a->host == host)
			a->generation = 0;
}

static void both_ready(uint32_t generation)
{
	bool on[HOSTS] = { false };
	supervise_predecessors_ready(known, generation);
	for (struct plain *a = plain; a < plain + n_plain; a++)
		on[a->host] |= a->generation == generation;
	for (struct plain *a = plain; a < plain + n_plain; a++)
		if (a->generation < generation && on[a->host])
			a->generation = 0;
}

static int both_list(uint32_t generation, int host)
{
	char want[8192] = "";
	size_t len = 0;
	int n = 0;
	for (int i = n_plain - 1; i >= 0; i--)
		if (plain[i].host == host && plain[i].generation &&
		    plain[i].generation < generation && len < sizeof want - 16)
			len += (size_t)snprintf(want + len, sizeof want - len, "%s%d",
						n++ ? " " : "", plain[i].pid);
	assert_string_equal(listed(generation, name_of(host)), want);
	return n;
}

static void it_lists_what_a_plain_list_would(void **state)
{
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	uint32_t generation = 1;
	long found = 0;
	(void)state;
	print_message("SEED=%u\n", seed);
	srand(seed);
	both_add(1, 0, 0);
	while (n_plain < MOST) {
		int what = rand() % 100, host = rand() % HOSTS, rank = rand() % RANKS;
		if (what < 30)
			both_add(generation, rank, host);
		else if (what < 35)
			generation++;
		else if (what < 40)
			both_keep(generation, rank);
		else if (what < 70)
			both_end(generation, rank, host);
		else if (what < 74)
			both_ready(generation);
		else
			found += both_list(generation, host);
	}
	assert_true(found > 1000);
}

static void earlier_agents_are_forgotten_where_a_later_generation_was_ready(void **state)
{
	(void)state;
	hello(1, 0, "n1", 11);
	hello(1, 1, "n2", 12);
	hello(2, 0, "n2", 21);
	supervise_predecessors_ready(known, 2);
	assert_string_equal(listed(3, "n1"), "11"); /* nobody has looked there */
	assert_string_equal(listed(3, "n2"), "21");
}

static void an_agent_that_cannot_be_identified_is_not_remembered(void **state)
{
	(void)state;
	char name[400];
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = '\0';
	hello(1, 0, "n1", 0); /* its start time is 0, too */
	hello(1, 0, name, 7);
	assert_string_equal(listed(2, "n1"), "");
	assert_string_equal(listed(2, name), "");
	name[255] = '\0';
	assert_string_equal(listed(2, name), "");
}

static void the_list_is_bounded_and_keeps_the_last_ones(void **state)
{
	(void)state;
	for (int pid = 1; pid <= 3 * PREDECESSORS_MAX; pid++)
		hello(1, 0, pid % 2 ? "n1" : "n2", pid);
	json_t *list = supervise_predecessors_list(known, 2, "n1");
	assert_int_equal(json_array_size(list), PREDECESSORS_LISTED_MAX);
	json_t *first = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(first, "pid")),
			 3 * PREDECESSORS_MAX - 1);
	json_decref(list);
}

static void write_hello(struct rundir *run, uint32_t generation, const char *node, int rank,
			int pid)
{
	json_t *agents = json_array();
	json_array_append_new(agents, rundir_agent_json(&(struct rundir_agent){
					      .rank = rank, .pid = pid, .start = 10 * pid }));
	rundir_event_hello(run, generation,
			   &(struct rundir_hello){
				   .node = node, .pid_space = 5, .boot = "b", .agents = agents });
	json_decref(agents);
}

static void write_events(struct rundir *run)
{
	write_hello(run, 1, "n1", 0, 11);
	write_hello(run, 1, "n2", 1, 12);
	rundir_event_refused(run, 1, &(struct rundir_why){ .why = "\"hello\" is not \"ready\"" });
	write_hello(run, 2, "n2", 0, 21);
	rundir_event_ready(run, 2, &(struct rundir_ready){ .step = 7 });
}

static void a_later_supervisor_remembers_what_the_run_folder_holds(void **state)
{
	(void)state;
	struct rundir *run;
	assert_int_equal(rundir_open(dir, "run", &run, NULL), 0);
	write_events(run);
	assert_int_equal(supervise_predecessors_load(known, rundir_path(run), NULL), 0);
	assert_string_equal(listed(3, "n1"), "11");
	assert_string_equal(listed(3, "n2"), "21");
	rundir_close(run);
}

static void damaged_lines_are_skipped(void **state)
{
	(void)state;
	/* clang-format off */
	static const char *const lines[] = {
		"{\"event\":\"hello\",\"generation\":1,\"rank\":0,\"node\":\"n1\",\"pid\":9}", /* from an older muster */
		"{\"event\":\"hello\",\"generation\":0,\"rank\":0,\"node\":\"n1\",\"pid\":9,\"start\":90,\"pid_space\":5,\"boot\":\"b\"}",
		"{\"event\":\"hello\",\"generation\":1,\"rank\":-1,\"node\":\"n1\",\"pid\":9,\"start\":90,\"pid_space\":5,\"boot\":\"b\"}",
		"{\"event\":\"hello\",\"generation\":1,\"rank\":0,\"node\":\"n1\",\"pid\":-9,\"start\":90,\"pid_space\":5,\"boot\":\"b\"}",
		"{\"event\":[\"hello\"],\"generation\":1}", "[\"hello\"]", "\"hello\"", "\"ready\"",
		"{\"event\":\"ready\",\"generation\":4294967296}",
		"{\"event\":\"hello\",\"generation\":1,\"rank\":0,\"node\":\"n1\",\"pid\":11,\"start\":110,\"pid_space\":5,\"boot\":\"b\"}",
		"{\"event\":\"hello\",\"generation\":1,\"rank\":0,\"node\":\"n1\",\"pid\":12,\"start\":120,\"pid_sp", /* cut off */
	};
	/* clang-format on */
	struct rundir *run;
	struct buf text = BUF_INIT;
	char *blanks = calloc(1, 100001);
	memset(blanks, ' ', 100000);
	assert_int_equal(rundir_open(dir, "run", &run, NULL), 0);
	buf_printf(&text, "%s%s\n", blanks, lines[9]); /* too long to be one of ours */
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		buf_printf(&text, "%s%s", i ? "\n" : "", lines[i]);
	assert_int_equal(file_replace(events, text.data, text.len, NULL), 0);
	assert_int_equal(supervise_predecessors_load(known, rundir_path(run), NULL), 0);
	assert_string_equal(listed(3, "n1"), "11");
	rundir_close(run);
	buf_fini(&text);
	free(blanks);
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	char path[300];
	snprintf(path, sizeof path, "%s/events.jsonl", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(supervise_predecessors_load(known, dir, &e), -1);
	assert_non_null(strstr(e.text, "events.jsonl"));
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_new_agent_gets_the_earlier_agents_of_its_own_host, setup, teardown),
		cmocka_unit_test_setup_teardown(an_agent_whose_end_was_seen_is_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(earlier_agents_are_forgotten_where_a_later_generation_was_ready, setup, teardown),
		cmocka_unit_test_setup_teardown(an_agent_that_cannot_be_identified_is_not_remembered, setup, teardown),
		cmocka_unit_test_setup_teardown(it_lists_what_a_plain_list_would, setup, teardown),
		cmocka_unit_test_setup_teardown(the_list_is_bounded_and_keeps_the_last_ones, setup, teardown),
		cmocka_unit_test_setup_teardown(a_later_supervisor_remembers_what_the_run_folder_holds, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_lines_are_skipped, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_an_error, setup, teardown),
	};
	/* clang-format on */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
