/* The paces of four ranks on two nodes that are peers. */
#include "launcher/supervise/paces.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 4, STEPS = 10 };
#define WINDOW 10.0

static struct supervisor s;
static struct deployment d;
static struct plan_rank placed[RANKS];
static struct pace paces[RANKS], *order[RANKS];

static int setup(void **state)
{
	(void)state;
	memset(paces, 0, sizeof paces);
	for (int r = 0; r < RANKS; r++) {
		placed[r].node = r / 2;
		paces[r].rank = r;
		paces[r].now = (struct pace_sums){ .done = STEPS, .own = 2 };
	}
	d.plan.ranks = placed;
	s.d = &d;
	s.world = RANKS;
	s.stragglers.ranks = paces;
	s.stragglers.order = order;
	return 0;
}

static void check_paces(double first, double second, double third, double fourth)
{
	const double expected[RANKS] = { first, second, third, fourth };
	supervise_paces_compute(&s, WINDOW);
	for (int r = 0; r < RANKS; r++)
		assert_true(fabs(paces[r].pace - expected[r] / STEPS) < 1e-9);
}

static void the_longest_of_the_three_times_is_the_pace(void **state)
{
	(void)state;
	paces[1].now.stalled = 5;
	paces[2].now.own = 3;
	paces[3].now.delay = 6;
	check_paces(2, 5, 3, 6);
	assert_true(fabs(paces[0].reference - 3.0 / STEPS) < 1e-9); /* the lower median */
}

/* The two ranks of a node whose cores are busy do not hide each other. */
static void ranks_are_compared_with_those_of_other_nodes(void **state)
{
	(void)state;
	paces[0].now.delay = 7;
	paces[1].now.delay = 6;
	paces[2].now.delay = 1;
	check_paces(6, 5, 2, 2);
}

static void on_one_node_the_longest_delay_is_compared_with_the_second(void **state)
{
	(void)state;
	for (int r = 0; r < RANKS; r++)
		placed[r].node = 0;
	paces[0].now.delay = 7;
	paces[1].now.delay = 3;
	check_paces(4, 2, 2, 2);
}

static void a_delay_counts_from_a_part_of_the_window_on(void **state)
{
	(void)state;
	for (int r = 0; r < RANKS; r++)
		paces[r].now.own = 0.1;
	paces[3].now.delay = STRAGGLER_NO_CORE * WINDOW - 0.1;
	check_paces(0.1, 0.1, 0.1, 0.1);
	paces[3].now.delay = STRAGGLER_NO_CORE * WINDOW + 0.1;
	check_paces(0.1, 0.1, 0.1, 3.1);
}

static void a_rank_without_peers_has_its_whole_delay(void **state)
{
	(void)state;
	for (int r = 0; r < RANKS; r++)
		paces[r].group = r;
	paces[0].now.delay = 5;
	paces[1].now.delay = 5;
	check_paces(5, 5, 2, 2);
	assert_true(paces[0].alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_longest_of_the_three_times_is_the_pace, setup),
		cmocka_unit_test_setup(ranks_are_compared_with_those_of_other_nodes, setup),
		cmocka_unit_test_setup(on_one_node_the_longest_delay_is_compared_with_the_second,
				       setup),
		cmocka_unit_test_setup(a_delay_counts_from_a_part_of_the_window_on, setup),
		cmocka_unit_test_setup(a_rank_without_peers_has_its_whole_delay, setup),
	};
	return cmocka_run_group_tests_name("paces", tests, NULL, NULL);
}
