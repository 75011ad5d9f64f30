/* A slow link between two ranks is named. The agents are doubles, and time stands still between the
 * calls. */
#include "tests/unit/launcher/harness.h"

static int setup_links(void **state)
{
	if (setup(state))
		return -1;
	h.first.job.health.slow_factor = 1.5;
	h.first.job.health.slow_window = 10;
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	return 0;
}

static json_t *link_of(const char *group, int peer, double share, double rate)
{
	return msg_link_json(&(struct msg_link){
		.group = group, .peer = peer, .share = share, .rate = rate, .resent = 0.02 });
}

static void send_links(int rank, json_t *list)
{
	static int64_t number;
	send_message(&h.peers[rank], MSG_LINKS,
		     msg_links_json(&(struct msg_links){ .number = ++number, .links = list }));
	json_decref(list);
}

/* Ranks report their link to the other one in group dp. */
static void send_pair(double share0, double rate0, double share1, double rate1)
{
	send_links(0, json_pack("[o]", link_of("dp", 1, share0, rate0)));
	send_links(1, json_pack("[o]", link_of("dp", 0, share1, rate1)));
}

/* Windows in which the agents only send progress. */
static void pass_windows(int n)
{
	for (int i = 0; i < 20 * n + 1; i++) {
		for (int r = 0; r < WORLD; r++)
			send_message(&h.peers[r], MSG_PROGRESS,
				     msg_progress_json(&(struct msg_progress){
					     .step = i, .phase = "forward", .count = i }));
		pass_time(0.5);
	}
}

static void a_link_much_slower_than_the_others_is_named_once(void **state)
{
	(void)state;
	send_pair(0.9, 1e6, 0.05, 1e8);
	pass_windows(2);
	assert_int_equal(count_events("\"slow-link\"", ""), 0);
	pass_windows(8);
	assert_int_equal(count_events("\"slow-link\"", "\"rank\":0"), 1);
	assert_int_equal(count_events("\"slow-link\"", "from rank 0 on"), 1);
	assert_int_equal(count_events("\"slow-link\"", ""), 1);
}

static void a_link_that_is_as_fast_again_is_named_again(void **state)
{
	(void)state;
	send_pair(0.9, 1e6, 0.05, 1e8);
	pass_windows(4);
	send_pair(0.1, 1e8, 0.05, 1e8);
	pass_windows(5);
	assert_int_equal(count_events("\"slow-link\"", "\"slow\":false"), 1);
}

static void a_link_that_is_hardly_used_or_as_fast_as_the_others_is_not_named(void **state)
{
	(void)state;
	send_pair(0.1, 1e6, 0.05, 1e8);
	pass_windows(5);
	send_pair(0.95, 1e6, 0.9, 2.5e6);
	pass_windows(5);
	assert_int_equal(count_events("\"slow-link\"", ""), 0);
}

static void links_of_another_group_are_no_reference(void **state)
{
	(void)state;
	send_links(0, json_pack("[o]", link_of("pp", 1, 0.9, 1e6)));
	send_links(1, json_pack("[o]", link_of("dp", 0, 0.9, 1e9)));
	pass_windows(5);
	assert_int_equal(count_events("\"slow-link\"", ""), 0);
}

static void a_link_that_is_not_named_any_more_is_not_judged(void **state)
{
	(void)state;
	send_pair(0.9, 1e6, 0.05, 1e8);
	pass_windows(2);
	send_links(0, json_array());
	pass_windows(5);
	assert_int_equal(count_events("\"slow-link\"", ""), 0);
}

static void a_lying_rank_ends_the_generation(void **state)
{
	(void)state;
	send_links(0, json_pack("[o]", link_of("dp", 7, 0.9, 1e6)));
	assert_int_equal(count_events("\"rank-lost\"", "protocol"), 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_links, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_link_much_slower_than_the_others_is_named_once),
		CASE(a_link_that_is_as_fast_again_is_named_again),
		CASE(a_link_that_is_hardly_used_or_as_fast_as_the_others_is_not_named),
		CASE(links_of_another_group_are_no_reference),
		CASE(a_link_that_is_not_named_any_more_is_not_judged),
		CASE(a_lying_rank_ends_the_generation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
