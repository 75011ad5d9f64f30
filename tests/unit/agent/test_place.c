/* What an agent reads of its welcome about the ranks next to it, and whose endpoints it asks for. */
#include "agent/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { WORLD = 20 };

static int read_place(int rank, int leader, const char *here, const char *near, bool apart,
		      struct agent_place *p, struct err *e)
{
	struct msg_welcome w = { .rank = rank, .world = WORLD, .leader = leader };
	w.here = here ? json_loads(here, JSON_DECODE_ANY, NULL) : NULL;
	w.near = near ? json_loads(near, JSON_DECODE_ANY, NULL) : NULL;
	w.has_here = w.here;
	w.has_near = w.near;
	int rc = agent_place_read(&w, apart, p, e);
	json_decref(w.here);
	json_decref(w.near);
	return rc;
}

static void expect_wants(const struct agent_place *p, const int *wants, int n)
{
	assert_int_equal(p->n_wants, n);
	assert_memory_equal(p->wants, wants, (size_t)n * sizeof *wants);
}

static void the_first_rank_of_a_node_wants_its_ranks_and_the_tree(void **state)
{
	struct agent_place p;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(read_place(8, 8, "[8, 10, 11]", "[3, 15, 16]", false, &p, &e), 0);
	assert_int_equal(p.comm.leader, 8);
	assert_int_equal(p.comm.n_here, 3);
	assert_int_equal(p.comm.here[2], 11);
	assert_true(p.comm.has_parent);
	assert_int_equal(p.comm.n_near, 3);
	assert_int_equal(p.comm.near[0], 3);
	expect_wants(&p, (const int[]){ 8, 10, 11, 3, 15, 16 }, 6);
	agent_place_fini(&p);

	assert_int_equal(read_place(0, 0, "[0]", "[-1, 4]", false, &p, &e), 0);
	assert_false(p.comm.has_parent);
	expect_wants(&p, (const int[]){ 0, 4 }, 2);
	agent_place_fini(&p);
}

static void the_other_ranks_want_the_first_one(void **state)
{
	struct agent_place p;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(read_place(10, 8, NULL, NULL, false, &p, &e), 0);
	assert_int_equal(p.comm.leader, 8);
	assert_int_equal(p.comm.n_here, 0);
	expect_wants(&p, (const int[]){ 8 }, 1);
	agent_place_fini(&p);
}

static void ranks_that_use_the_network_only_form_a_tree_themselves(void **state)
{
	struct agent_place p;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(read_place(10, 8, NULL, NULL, true, &p, &e), 0);
	assert_int_equal(p.comm.leader, 10);
	assert_true(p.comm.has_parent);
	expect_wants(&p, (const int[]){ 10, 4 }, 2);
	agent_place_fini(&p);
	assert_int_equal(read_place(4, 0, NULL, NULL, true, &p, &e), 0);
	expect_wants(&p, (const int[]){ 4, 1, 9, 10 }, 4);
	agent_place_fini(&p);
	assert_int_equal(read_place(0, 0, "[0, 1]", "[-1]", true, &p, &e), 0);
	assert_false(p.comm.has_parent);
	expect_wants(&p, (const int[]){ 0, 1, 2 }, 3);
	agent_place_fini(&p);
}

static void other_lists_are_refused(void **state)
{
	static const struct {
		const char *here, *near;
	} bad[] = {
		{ NULL, "[-1]" },      { "[0]", NULL },        { "[]", "[-1]" },
		{ "[0]", "[]" },       { "[0]", "[1,2,3,4]" }, { "[20]", "[-1]" },
		{ "[-1]", "[-1]" },    { "[0]", "[20]" },      { "[0]", "[-2]" },
		{ "[\"0\"]", "[-1]" }, { "{}", "[-1]" },       { "[0]", "\"1\"" },
		{ "[0.5]", "[-1]" },   { "[0]", "[null]" },    { "[4294967296]", "[-1]" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct agent_place p;
		struct err e = ERR_INIT;
		assert_int_equal(read_place(0, 0, bad[i].here, bad[i].near, false, &p, &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_rank_of_a_node_wants_its_ranks_and_the_tree),
		cmocka_unit_test(the_other_ranks_want_the_first_one),
		cmocka_unit_test(ranks_that_use_the_network_only_form_a_tree_themselves),
		cmocka_unit_test(other_lists_are_refused),
	};
	return cmocka_run_group_tests_name("agent/place", tests, NULL, NULL);
}
