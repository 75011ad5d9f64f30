/* Tests what a simulated run does with its nodes: those that are lost, those that have several faults, and slow ones. */
#include "launcher/goodput/run_inner.h"
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/patience.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

/* --- Lost nodes ------------------------------------------------------------------------------- */

static void without_a_spare_the_run_shrinks_and_grows_again(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_SILENT, 16, 50 * hour, 10 * hour);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.spares = 0;
	goodput_run(&s, 2, &r);
	assert_true(r.shrunk > 0);
	assert_int_equal(r.waited, 0);
	/* A quarter of the replicas for ten hours each time, longer if another node is away meanwhile. */
	check_sums(&s, &r);
	double lower = r.parts[GOODPUT_LOWER];
	assert_in_range(lower, 0.2 * (double)r.shrunk * 10 * hour,
			0.25 * (double)r.restarts * 10 * hour);
	s.rules.regrows = false;
	goodput_run(&s, 2, &r);
	assert_true(r.parts[GOODPUT_LOWER] > 2 * lower);
	s.rules.shrinks = false;
	goodput_run(&s, 2, &r);
	assert_true(r.waited > 0);
	assert_int_equal(r.people, r.waited);
	assert_in_range(r.parts[GOODPUT_WAIT], 5 * hour, (double)r.waited * 10 * hour);
	assert_true(r.parts[GOODPUT_LOWER] == 0);
	check_sums(&s, &r);
	s.rules.requeues = true;
	goodput_run(&s, 2, &r);
	assert_int_equal(r.people, 0);
	assert_float_equal(r.parts[GOODPUT_WAIT], (double)r.waited * (600 + 600), 1200);
	check_sums(&s, &r);
}

static void a_node_that_is_replaced_costs_the_start_of_its_ranks(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_SILENT, 16, 20 * hour, 1);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 5);
	assert_int_equal(r.replaced, r.restarts);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 2 + 10),
			   1e-6);
}

/* --- Nodes that have several faults ----------------------------------------------------------- */

static void a_node_with_many_faults_is_not_used_any_more(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.seconds = 100 * day;
	s.rules.shrinks = false;
	s.rules.exclude_after = 1;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.excluded + r.replaced, 0); /* the fault is not its own */
	f.of[0].blames = true;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 80);
	/* After four spares, the fifth node stays: none is left, so that the others can be used again. */
	assert_int_equal(r.excluded, r.all_faults - r.all_faults / 5);
	assert_int_equal(r.replaced, r.excluded);
	assert_int_equal(r.waited, 0);
	check_sums(&s, &r);
	/* Without spares each stays, or the run waits until it is back. */
	s.spares = 0;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 80);
	assert_int_equal(r.excluded + r.replaced, 0);
	f.of[0].node_out = 60;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.waited, r.restarts);
	assert_int_equal(r.excluded, 0);
	f.of[0].node_out = 0;
	s.spares = 4;
	/* Replicas are left out before nodes are used again. */
	s.rules.shrinks = true;
	s.rules.regrows = false;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.shrunk, 3);
	assert_true(r.parts[GOODPUT_LOWER] > 0);
	check_sums(&s, &r);
	s.rules.exclude_after = 0;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.excluded + r.replaced, 0);
	/* The last node is never excluded. */
	s.nodes = s.replicas = 1;
	s.spares = 0;
	s.rules.exclude_after = 1;
	goodput_run(&s, 3, &r);
	assert_true(r.all_faults > 0);
	assert_int_equal(r.excluded, 0);
}

static void faults_of_a_node_are_forgotten_after_a_day(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 5 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	f.of[0].blames = true;
	s.seconds = 200 * day;
	s.rules.shrinks = false;
	s.rules.exclude_after = 2;
	sum_runs(&s, 50, &sum);
	/* A node has a fault in 80 hours. The share of those that come within a day of another one, of a node
	 * that was not excluded by that one. One in five stays, because there are four spares. */
	double within = 1 - exp(-24.0 / 80), share = within / (1 + within);
	assert_float_equal(sum.excluded / sum.all_faults, 0.8 * share, 0.01);
}

static void a_node_that_was_away_keeps_its_faults(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_SILENT, 1, 2 * hour, 60);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	f.of[0].blames = true;
	s.nodes = s.replicas = s.spares = 1;
	s.rules.exclude_after = 2;
	goodput_run(&s, 3, &r);
	/* Two nodes take turns. A node's second fault excludes it, unless it is the last one. */
	assert_in_range(r.excluded, r.all_faults / 4, r.all_faults / 2);
	check_sums(&s, &r);
	/* A person, who starts another supervisor, forgets them. */
	s.rules.restarts = 0;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.excluded, 0);
	assert_true(r.people > 50);
}

/* --- Slow nodes ------------------------------------------------------------------------------- */

static void a_slow_node_slows_all_until_the_run_leaves_it(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_SLOW, 16, 50 * hour, 5 * hour);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result leaves, stays;
	goodput_run(&s, 7, &leaves);
	s.rules.leaves_slow = false;
	goodput_run(&s, 7, &stays);
	assert_int_equal(leaves.replaced, leaves.all_faults);
	assert_int_equal(stays.replaced, 0);
	assert_true(leaves.parts[GOODPUT_SLOW] < (double)leaves.all_faults * 40);
	assert_true(stays.parts[GOODPUT_SLOW] > (double)stays.all_faults * hour / 2);
	check_sums(&s, &stays);
	/* Each step takes 1.3 times as long, for five hours; a fault may come at the end of the run. */
	double whole = (double)stays.all_faults * 5 * hour * 0.3 / 1.3;
	assert_in_range(stays.parts[GOODPUT_SLOW], 0.6 * whole, whole);
	/* It is not found, or there is no faster way to go on. */
	s.rules.leaves_slow = true;
	s.rules.finds = 1.5;
	goodput_run(&s, 7, &leaves);
	assert_memory_equal(&leaves, &stays, sizeof stays);
	s.rules.finds = 1.2;
	s.spares = 0; /* a quarter of the replicas is more than a slow node costs */
	goodput_run(&s, 7, &leaves);
	assert_int_equal(leaves.shrunk, 0);
	/* Each look for a faster way cuts a step. */
	assert_float_equal(leaves.parts[GOODPUT_SLOW], stays.parts[GOODPUT_SLOW],
			   (double)stays.all_faults * 0.6);
	s.replicas = 16;
	goodput_run(&s, 7, &leaves);
	assert_int_equal(leaves.shrunk, leaves.all_faults);
}

static bool is_slow(const struct run *r, int place)
{
	for (int i = 0; i < r->n_slow; i++)
		if (r->slow[i].place == place)
			return true;
	return false;
}

static void slow_nodes_keep_their_places_when_the_run_shrinks(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_SLOW, 16, 20 * hour, hour);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result out = { 0 };
	struct run r = { .s = &s, .out = &out, .exposed = -1 };
	static const int places[] = { 2, 9, 13, 15 };
	s.rules.exclude_after = 2;
	random_init(&r.dice, 1, 0);
	for (int i = 0; i < 4; i++) {
		r.slow[r.n_slow++] = (struct slow_node){ .until = i == 2 ? 0 : day,
							 .repaired = day,
							 .slowdown = 3,
							 .out = hour,
							 .place = places[i] };
		assert_false(goodput_blame(&r, places[i]));
	}
	/* Replica 0 is left out. Nodes 12 to 15 take its places. */
	goodput_node_leaves(&r, 1, hour, false);
	assert_int_equal(goodput_node_replace(&r, 1), 0);
	assert_int_equal(goodput_nodes_used(&r), 12);
	assert_int_equal(r.n_slow, 3);
	assert_true(is_slow(&r, 1) && is_slow(&r, 3) && is_slow(&r, 9));
	/* A fault that was drawn before. */
	r.next.node = 12;
	r.next.at = day;
	goodput_become_slow(&r);
	assert_int_equal(r.n_slow, 4);
	assert_true(is_slow(&r, 0));
	/* The run leaves the slow node with what is held against it: that of place 13 before. */
	goodput_leave_slow_node(&r);
	assert_int_equal(r.n_slow, 3);
	assert_false(is_slow(&r, 1));
	assert_int_equal(r.n_away, 2);
	assert_int_equal(r.away[1].blame.faults, 1);
	assert_int_equal(goodput_blame_take(&r, 1).faults, 0);
	assert_int_equal(goodput_blame_take(&r, 3).faults, 1);
}

/* Node 3 is slow, and has a fault; node 9 is slow, too. */
static void check_fault_of_slow_node(const struct goodput_setup *s, bool stays_slow)
{
	struct goodput_result out = { 0 };
	struct run r = { .s = s, .out = &out, .free = s->spares, .exposed = -1, .next.node = 3 };
	const struct slow_node slow = { .until = day, .repaired = day, .slowdown = 3, .out = day };
	random_init(&r.dice, 1, 0);
	r.slow[0] = r.slow[1] = slow;
	r.slow[0].place = 3;
	r.slow[1].place = 9;
	r.n_slow = 2;
	goodput_recover(&r);
	assert_int_equal(is_slow(&r, 3), stays_slow);
	assert_true(is_slow(&r, 9));
}

static void a_slow_node_that_is_lost_slows_nobody(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_SILENT, 16, 1000 * day, hour);
	struct goodput_setup s = make_setup(&f);
	check_fault_of_slow_node(&s, false); /* a spare takes its place */
	s.spares = 0;
	check_fault_of_slow_node(&s, false); /* its replica is left out */
	s.rules.shrinks = false;
	check_fault_of_slow_node(&s, false); /* the run waits until it is repaired... */
	s.rules.requeues = true;
	check_fault_of_slow_node(&s, false); /* ... or for another one */
	f.of[0] = only(SHOWS_CLOSED, 16, 1000 * day, 0).of[0];
	check_fault_of_slow_node(&s, true);
	/* It is to be excluded, and stays because there is no other one. */
	f.of[0].blames = true;
	s.rules.exclude_after = 1;
	check_fault_of_slow_node(&s, true);
	s.spares = 1;
	check_fault_of_slow_node(&s, false);
}

/* A node is lost once an hour, so that each slow one is slow for an hour on average, not for ten days. */
static void the_loss_of_a_slow_node_ends_its_slowness(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_SLOW, 1, 20 * hour, 10 * day);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	f.n = 2;
	f.of[1] = only(SHOWS_SILENT, 1, hour, 60).of[0];
	s.nodes = s.replicas = 1;
	s.rules.leaves_slow = false;
	sum_runs(&s, 1000, &sum);
	/* One in 21 comes while the node is slow already, and one in 50 during a recovery. */
	double expected = hour * 0.3 / 1.3 * 20 / 21 * 49 / 50;
	assert_float_equal(sum.parts[GOODPUT_SLOW] / sum.faults[0], expected, 0.03 * expected);
}

static void slow_nodes_faults_and_fewer_replicas_add_up(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_SLOW, 16, 5 * hour, 5 * hour);
	struct goodput_setup s = make_setup(&f);
	int64_t shrunk = 0, excluded = 0, replaced = 0;
	f.n = 2;
	f.of[0].slowdown = 3;
	f.of[1] = only(SHOWS_CLOSED, 16, 5 * hour, hour).of[0];
	f.of[1].blames = true;
	s.spares = 2;
	s.rules.exclude_after = 2;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct goodput_result r;
		goodput_run(&s, seed, &r);
		check_sums(&s, &r);
		check_timeline(&s, seed, &r);
		shrunk += r.shrunk;
		excluded += r.excluded;
		replaced += r.replaced;
	}
	assert_true(shrunk > 50 && excluded > 50 && replaced > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_spare_the_run_shrinks_and_grows_again),
		cmocka_unit_test(a_node_that_is_replaced_costs_the_start_of_its_ranks),
		cmocka_unit_test(a_node_with_many_faults_is_not_used_any_more),
		cmocka_unit_test(faults_of_a_node_are_forgotten_after_a_day),
		cmocka_unit_test(a_node_that_was_away_keeps_its_faults),
		cmocka_unit_test(a_slow_node_slows_all_until_the_run_leaves_it),
		cmocka_unit_test(slow_nodes_keep_their_places_when_the_run_shrinks),
		cmocka_unit_test(a_slow_node_that_is_lost_slows_nobody),
		cmocka_unit_test(the_loss_of_a_slow_node_ends_its_slowness),
		cmocka_unit_test(slow_nodes_faults_and_fewer_replicas_add_up),
	};
	alarm(PATIENCE_S); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
