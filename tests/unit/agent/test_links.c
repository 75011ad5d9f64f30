/* What a rank reports about its links: per window, the busiest first, and only what has changed. */
#include "agent/links.h"

#include "base/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct links *l;

static int setup(void **state)
{
	(void)state;
	l = links_open(100);
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	links_close(l);
	return 0;
}

static struct comm_link sum(const char *group, int peer, double bytes, double busy_s)
{
	struct comm_link s = { .peer = peer, .bytes = bytes, .busy_s = busy_s, .segments = 100 };
	strcpy(s.group, group);
	return s;
}

static void read_link(json_t *list, size_t i, struct msg_link *out)
{
	assert_int_equal(msg_link_read(json_array_get(list, i), out, NULL), 0);
}

static void rates_are_those_of_the_window(void **state)
{
	(void)state;
	struct comm_link s = sum("dp", 3, 1e6, 1);
	struct msg_link m;
	json_t *list = links_judge(l, 110, &s, 1);
	read_link(list, 0, &m);
	assert_true(m.rate == 1e6 && m.share > 0.099 && m.share < 0.101);
	json_decref(list);
	s = sum("dp", 3, 1.5e6, 6);
	s.segments = 200;
	s.resent = 10;
	list = links_judge(l, 120, &s, 1);
	read_link(list, 0, &m);
	assert_int_equal(m.peer, 3);
	assert_string_equal(m.group, "dp");
	assert_true(m.rate > 0.99e5 && m.rate < 1.01e5 && m.share > 0.49 && m.share < 0.51);
	assert_true(m.resent > 0.099 && m.resent < 0.101);
	json_decref(list);
}

static void nothing_is_sent_while_nothing_changes(void **state)
{
	(void)state;
	for (int i = 1; i < 10; i++) {
		struct comm_link s = sum("dp", 3, 1e6 * i, 1.0 * i);
		json_t *list = links_judge(l, 100 + 10 * i, &s, 1);
		assert_int_equal(list != NULL, i == 1);
		json_decref(list);
	}
}

static void the_busiest_links_are_sent(void **state)
{
	(void)state;
	struct comm_link s[2 * LINKS_SENT];
	struct msg_link m;
	for (int i = 0; i < 2 * LINKS_SENT; i++)
		s[i] = sum("ep", i, 1e6, 0.1 * (i + 1));
	json_t *list = links_judge(l, 110, s, 2 * LINKS_SENT);
	assert_int_equal(json_array_size(list), LINKS_SENT);
	read_link(list, 0, &m);
	assert_int_equal(m.peer, 2 * LINKS_SENT - 1);
	json_decref(list);
}

static void a_link_that_moves_nothing_is_left_out(void **state)
{
	(void)state;
	struct comm_link s[2] = { sum("dp", 3, 1e6, 1), sum("pp", 4, 1e6, 1) };
	json_t *list = links_judge(l, 110, s, 2);
	assert_int_equal(json_array_size(list), 2);
	json_decref(list);
	s[0] = sum("dp", 3, 2e6, 2);
	list = links_judge(l, 120, s, 2);
	assert_int_equal(json_array_size(list), 1);
	json_decref(list);
}

static void a_connection_that_was_made_anew_begins_again(void **state)
{
	(void)state;
	struct comm_link s = sum("dp", 3, 1e9, 5);
	struct msg_link m;
	json_decref(links_judge(l, 110, &s, 1));
	s = sum("dp", 3, 1e6, 1);
	json_t *list = links_judge(l, 120, &s, 1);
	read_link(list, 0, &m);
	assert_true(m.rate == 1e6);
	json_decref(list);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(rates_are_those_of_the_window),
		CASE(nothing_is_sent_while_nothing_changes),
		CASE(the_busiest_links_are_sent),
		CASE(a_link_that_moves_nothing_is_left_out),
		CASE(a_connection_that_was_made_anew_begins_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
