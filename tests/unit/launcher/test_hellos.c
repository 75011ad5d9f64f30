/* The event hello: a line for the agents of a node, before any of them may do something. */
#include "launcher/rundir/agents.h"
#include "launcher/supervise/supervisor.h"
#include "tests/unit/launcher/harness.h"

static void connect_as(int rank, const char *boot, int64_t pid_space)
{
	json_t *hello = hello_json(rank);
	json_object_set_new(hello, "boot", json_string(boot));
	json_object_set_new(hello, "pid_space", json_integer(pid_space));
	send_message(peer_open(rank, h.secret, h.generation), MSG_HELLO, hello);
}

static void connect_rank(int rank)
{
	connect_as(rank, "boot", 7);
}

static void the_agents_of_a_node_have_one_line(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_all();
	assert_int_equal(count_events("\"hello\"", ""), 1);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":0,\"pid\":100,\"start\":1000}"), 1);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,\"pid\":101,\"start\":1001}"), 1);
	assert_int_equal(count_events("\"hello\"", "\"node\":\"here\",\"boot\":\"boot\","), 1);
	assert_int_equal(count_events("\"hello\"", "\"kept\""), 0);
	assert_true(h.peers[0].welcomed && h.peers[1].welcomed);
}

static void an_agent_waits_for_the_others_of_its_node_for_a_moment(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_rank(1);
	assert_int_equal(count_events("\"hello\"", ""), 0);
	assert_false(h.peers[1].welcomed);
	assert_true(supervise_due(h.supervisor) <= h.now + HELLOS_WAIT_S + 1e-9);
	pass_time(HELLOS_WAIT_S - 0.1);
	assert_false(h.peers[1].welcomed);
	pass_time(0.2);
	assert_true(h.peers[1].welcomed);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,"), 1);
	connect_rank(0);
	assert_true(h.peers[0].welcomed);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":0,"), 1);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,"), 1);
	assert_int_equal(count_events("\"connected\"", ""), 1);
}

/* A process id means something in its name space of one boot only. */
static void agents_that_differ_have_lines_of_their_own(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_as(0, "boot", 7);
	connect_as(1, "boot", 8);
	assert_int_equal(count_events("\"hello\"", ""), 2);
	assert_int_equal(count_events("\"pid_space\":7", "{\"rank\":0,"), 1);
	assert_int_equal(count_events("\"pid_space\":8", "{\"rank\":1,"), 1);
}

static void nodes_have_lines_of_their_own(void **state)
{
	(void)state;
	open_on_two_nodes();
	supervise_start(h.supervisor);
	connect_rank(1);
	assert_true(h.peers[1].welcomed); /* nobody else is on its node */
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,"), 1);
	connect_rank(0);
	assert_int_equal(count_events("\"hello\"", ""), 2);
}

/* Nothing else is said to an agent before its welcome, and nothing of it is recorded before its line. */
static void what_happens_meanwhile_ends_the_wait(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_rank(1);
	supervise_stop(h.supervisor, "time is up", false);
	deliver_all();
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,"), 1);
	assert_true(h.peers[1].welcomed);
}

static void an_agent_that_ends_while_it_waits_is_recorded(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_rank(1);
	end_rank(1);
	assert_int_equal(count_events("\"hello\"", "{\"rank\":1,"), 1);
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
}

/* --- reading --------------------------------------------------------------------------------- */

static struct {
	int ranks[8], n, kept;
} seen;

static void take(void *arg, const struct rundir_joined *a)
{
	(void)arg;
	assert_string_equal(a->node, "n1");
	seen.ranks[seen.n++] = a->rank;
	seen.kept += a->kept;
}

static int read_text(const char *text)
{
	json_t *line = json_loads(text, 0, NULL);
	assert_non_null(line);
	memset(&seen, 0, sizeof seen);
	int n = rundir_agents_of(line, take, NULL);
	assert_int_equal(n, seen.n);
	assert_int_equal(n, rundir_agents_of(line, NULL, NULL));
	json_decref(line);
	return n;
}

#define NODE "\"node\":\"n1\",\"boot\":\"b\",\"pid_space\":5"

static void what_is_no_agent_is_skipped(void **state)
{
	(void)state;
	assert_int_equal(
		read_text("{" NODE ",\"kept\":true,\"agents\":["
			  "{\"rank\":3,\"pid\":7,\"start\":1},{\"rank\":-1,\"pid\":7,\"start\":1},"
			  "{\"rank\":4,\"pid\":0,\"start\":1},{\"rank\":4,\"pid\":7},7,null,"
			  "{\"rank\":5,\"pid\":8,\"start\":0}]}"),
		2);
	assert_int_equal(seen.ranks[0], 3);
	assert_int_equal(seen.ranks[1], 5);
	assert_int_equal(seen.kept, 2);
	assert_int_equal(read_text("{" NODE ",\"agents\":[]}"), 0);
	assert_int_equal(read_text("{" NODE ",\"agents\":7}"), 0);
	assert_int_equal(read_text("{\"agents\":[{\"rank\":3,\"pid\":7,\"start\":1}]}"), 0);
	assert_int_equal(read_text("{}"), 0);
}

static void a_line_of_one_agent_is_understood(void **state)
{
	(void)state;
	assert_int_equal(read_text("{" NODE ",\"rank\":3,\"pid\":7,\"start\":1}"), 1);
	assert_int_equal(seen.ranks[0], 3);
	assert_int_equal(seen.kept, 0);
	assert_int_equal(read_text("{" NODE ",\"rank\":3,\"start\":1}"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define HELLO_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		HELLO_TEST(the_agents_of_a_node_have_one_line),
		HELLO_TEST(an_agent_waits_for_the_others_of_its_node_for_a_moment),
		HELLO_TEST(agents_that_differ_have_lines_of_their_own),
		HELLO_TEST(nodes_have_lines_of_their_own),
		HELLO_TEST(what_happens_meanwhile_ends_the_wait),
		HELLO_TEST(an_agent_that_ends_while_it_waits_is_recorded),
		cmocka_unit_test(what_is_no_agent_is_skipped),
		cmocka_unit_test(a_line_of_one_agent_is_understood),
	};
	return cmocka_run_group_tests_name("hellos", tests, NULL, NULL);
}
