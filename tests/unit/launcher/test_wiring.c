/* Which ranks each rank's welcome says are next to it. */
#include "launcher/supervise/wiring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 40, NODES = 41 };

static struct plan_rank places[RANKS];

static struct plan plan_of(const int *nodes, int n)
{
	memset(places, 0, sizeof places);
	for (int r = 0; r < n; r++)
		places[r].node = nodes[r];
	return (struct plan){ .world = n, .ranks = places };
}

/* Checks leader, here and near of a rank; the lists are NULL for ranks that lead no node. */
static void expect(const struct wiring *w, const struct plan *plan, int rank, int leader,
		   const char *here, const char *near)
{
	struct msg_welcome m = { .rank = rank };
	assert_int_equal(supervise_wiring_tell(w, plan, rank, &m, NULL), 0);
	assert_int_equal(m.leader, leader);
	char *texts[] = { m.here ? json_dumps(m.here, JSON_COMPACT) : NULL,
			  m.near ? json_dumps(m.near, JSON_COMPACT) : NULL };
	const char *wanted[] = { here, near };
	for (int i = 0; i < 2; i++) {
		if (wanted[i])
			assert_string_equal(texts[i], wanted[i]);
		else
			assert_null(texts[i]);
		free(texts[i]);
	}
	assert_int_equal(m.has_here, here != NULL);
	assert_int_equal(m.has_near, near != NULL);
	json_decref(m.here);
	json_decref(m.near);
}

static void the_first_rank_of_a_node_is_told_of_its_ranks_and_the_tree(void **state)
{
	/* node 3 has rank 0, so it is the root; node 4 has no rank */
	static const int nodes[] = { 3, 0, 3, 1, 0, 2, 5, 1 };
	(void)state;
	struct wiring w = { .ranks = NULL };
	struct plan plan = plan_of(nodes, 8);
	assert_int_equal(supervise_wiring_set(&w, &plan, 6, NULL), 0);
	expect(&w, &plan, 0, 0, "[0,2]", "[-1,1,3]");
	expect(&w, &plan, 1, 1, "[1,4]", "[0,5,6]");
	expect(&w, &plan, 2, 0, NULL, NULL);
	expect(&w, &plan, 3, 3, "[3,7]", "[0]");
	expect(&w, &plan, 4, 1, NULL, NULL);
	expect(&w, &plan, 5, 5, "[5]", "[1]");
	expect(&w, &plan, 6, 6, "[6]", "[1]");
	expect(&w, &plan, 7, 3, NULL, NULL);
	/* the next generation has one node */
	plan = plan_of((const int[]){ 2, 2, 2 }, 3);
	assert_int_equal(supervise_wiring_set(&w, &plan, 3, NULL), 0);
	expect(&w, &plan, 0, 0, "[0,1,2]", "[-1]");
	expect(&w, &plan, 2, 0, NULL, NULL);
	supervise_wiring_fini(&w);
}

/* Each end of an edge names the other one, and all nodes hang together. */
static void the_nodes_form_one_tree(void **state)
{
	int nodes[RANKS];
	(void)state;
	for (int n = 1; n <= RANKS; n++) {
		struct wiring w = { .ranks = NULL };
		int parent[RANKS];
		for (int r = 0; r < n; r++)
			nodes[r] = NODES - 1 - r; /* one rank each */
		struct plan plan = plan_of(nodes, n);
		assert_int_equal(supervise_wiring_set(&w, &plan, NODES, NULL), 0);
		memset(parent, -1, sizeof parent);
		for (int r = 0; r < n; r++) {
			struct msg_welcome m = { .rank = r };
			assert_int_equal(supervise_wiring_tell(&w, &plan, r, &m, NULL), 0);
			size_t near = json_array_size(m.near);
			assert_in_range(near, 1, 3);
			/* the parent has named this one before, because its number is lower */
			assert_int_equal(json_integer_value(json_array_get(m.near, 0)), parent[r]);
			for (size_t i = 1; i < near; i++) {
				int child = (int)json_integer_value(json_array_get(m.near, i));
				assert_in_range(child, r + 1, n - 1);
				assert_int_equal(parent[child], -1);
				parent[child] = r;
			}
			json_decref(m.here);
			json_decref(m.near);
		}
		for (int r = 1; r < n; r++)
			assert_true(parent[r] >= 0);
		supervise_wiring_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_rank_of_a_node_is_told_of_its_ranks_and_the_tree),
		cmocka_unit_test(the_nodes_form_one_tree),
	};
	return cmocka_run_group_tests_name("wiring", tests, NULL, NULL);
}
