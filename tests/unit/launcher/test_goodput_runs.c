/* Tests the simulated runs of `muster simulate`, and what many of them say, against what can be computed, and what must
 * hold for all. */
#include "base/random.h"
#include "launcher/goodput/report.h"
#include "launcher/goodput/run_inner.h"
#include "launcher/goodput/study.h"
#include "launcher/goodput/timeline.h"
#include "plan/cost/train_time.h"
#include "tests/unit/launcher/goodput_setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const double hour = 3600, day = 86400;

static double sum_of(const struct goodput_result *r)
{
	double sum = 0;
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		sum += r->parts[i];
	return sum;
}

static void check_sums(const struct goodput_setup *s, const struct goodput_result *r)
{
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		assert_true(r->parts[i] >= -1e-6);
	assert_float_equal(sum_of(r), r->seconds, 1e-6 * r->seconds);
	assert_float_equal(r->parts[GOODPUT_TRAINED], (double)r->steps * s->costs.step,
			   1e-6 * r->seconds);
	if (s->seconds > 0)
		assert_float_equal(r->seconds, s->seconds, 1e-6);
}

/* A run that is recorded is the same, and its columns and marks are all that happened. */
static void check_timeline(const struct goodput_setup *s, uint64_t seed,
			   const struct goodput_result *r)
{
	enum { COLUMNS = 50 };
	struct goodput_history h = { 0 };
	struct goodput_timeline t;
	struct goodput_result again;
	double sums[GOODPUT_PART_COUNT] = { 0 };
	goodput_run_record(s, seed, &h, &again);
	assert_memory_equal(&again, r, sizeof again);
	assert_int_equal(goodput_timeline_open(&t, &h, r->seconds / COLUMNS, COLUMNS, NULL), 0);
	for (int i = 0; i < COLUMNS; i++) {
		double all = 0;
		for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
			assert_true(t.columns[i][p] > -1e-6 * t.each);
			all += t.columns[i][p];
			sums[p] += t.columns[i][p];
		}
		assert_float_equal(all / t.each, 1, 1e-6);
	}
	for (int p = 0; p < GOODPUT_PART_COUNT; p++)
		assert_float_equal(sums[p], r->parts[p], 1e-6 * r->seconds);
	assert_int_equal(h.n_marks, r->all_faults);
	for (int i = 1; i < h.n_marks; i++)
		assert_true(h.marks[i].at >= h.marks[i - 1].at);
	goodput_timeline_close(&t);
	goodput_history_fini(&h);
}

/* --- What can be computed --------------------------------------------------------------------- */

static void without_faults_only_the_start_and_the_snapshots_cost_time(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 1000;
	goodput_run(&s, 1, &r);
	assert_int_equal(r.steps, 1000);
	assert_float_equal(r.parts[GOODPUT_START], 40, 1e-9);
	assert_float_equal(r.parts[GOODPUT_SAVING], 1000 * (0.1 / 100 + 0.1 / 5), 1e-6);
	assert_float_equal(r.seconds, 40 + 2000 + 21, 1e-6);
	assert_int_equal(r.all_faults, 0);
}

/* Daly's equation (20), which plan/cost/train_time.h computes. */
static void the_mean_is_that_of_dalys_formula(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	struct train_time expected;
	s.seconds = 0;
	s.steps = 20000;
	s.costs.step = 1;
	s.costs.snapshot = 5;
	s.costs.write = s.costs.closed = s.costs.start = 0;
	s.rules.copy_every = 0;
	const struct train_costs costs = { .step = 1,
					   .snapshot = 5,
					   .restart = s.costs.end + s.costs.respawn + s.costs.load,
					   .mtbf = hour };
	cost_train_expect(&costs, s.steps, s.rules.every, &expected);
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 3000, .seed = 1 }, &sum, NULL), 0);
	/* The first start is not in the formula. */
	assert_float_equal((sum.seconds - s.costs.respawn) / expected.total, 1, 0.005);
	assert_float_equal(sum.all_faults / expected.failures, 1, 0.02);
}

static void each_loss_costs_its_detection_and_its_restart(void **state)
{
	(void)state;
	static const struct {
		enum goodput_shows shows;
		double detection;
	} cases[] = { { SHOWS_CLOSED, 0.1 }, { SHOWS_SILENT, 15 }, { SHOWS_HANG, 65 } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct goodput_faults f = only(cases[i].shows, 16, 20 * hour, 0);
		const struct goodput_setup s = make_setup(&f);
		struct goodput_result r;
		goodput_run(&s, 3, &r);
		assert_true(r.restarts > 5);
		assert_float_equal(r.parts[GOODPUT_DETECT], (double)r.restarts * cases[i].detection,
				   1e-6);
		assert_int_equal(r.from_copies, r.restarts);
		assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 2),
				   1e-6);
		/* At most what is between two copies, the time of one, and the step in flight. */
		assert_true(r.parts[GOODPUT_LOST] < (double)r.restarts * (5 * 2.1 + 1 + 2.1));
		check_sums(&s, &r);
	}
}

static void without_copies_a_loss_goes_back_to_the_checkpoint(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	s.rules.copy_every = 0;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 500, .seed = 1 }, &sum, NULL), 0);
	assert_true(sum.from_copies == 0);
	/* On average half of the interval, and the time to write. */
	assert_float_equal(sum.parts[GOODPUT_LOST] / sum.restarts, 100 + 20, 4);
}

static void wrong_numbers_go_back_to_before_they_began(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_NUMBERS, 16, 20 * hour, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 500, .seed = 1 }, &sum, NULL), 0);
	assert_true(sum.from_copies == 0);
	assert_float_equal(sum.parts[GOODPUT_LOST] / sum.restarts, 100 + 20 + 30, 4);
}

static void a_planned_stop_loses_no_step(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_PLANNED, 16, 20 * hour, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	goodput_run(&s, 5, &r);
	assert_true(r.all_faults > 5);
	assert_int_equal(r.restarts, 0);
	assert_true(r.parts[GOODPUT_LOST] < (double)(r.all_faults + 1) * 2.1);
	assert_float_equal(r.parts[GOODPUT_START],
			   40 + (double)r.all_faults * (0.1 + 20 + 10 + 30 + 20), 1e-6);
}

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

/* --- Nodes -------------------------------------------------------------------------------------- */

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

/* Processes that do not outlive a loss lose their copies, unless the nodes keep them. */
static void copies_are_kept_by_processes_or_by_nodes(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.rules.warm = false;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.from_copies, 0);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20 + 10),
			   1e-6);
	s.rules.keeps = true;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.from_copies, r.restarts);
}

/* A copy that is no older than its own transfer does not count. */
static void copies_and_checkpoints_count_once_they_are_done(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum soon, late;
	s.rules.every = 0;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 300, .seed = 1 }, &soon, NULL), 0);
	s.costs.copy += 40;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 300, .seed = 1 }, &late, NULL), 0);
	assert_float_equal((late.parts[GOODPUT_LOST] - soon.parts[GOODPUT_LOST]) / late.restarts,
			   40, 2);
}

static void checkpoints_that_take_longer_than_their_interval_hold_up_training(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.rules.copy_every = 0;
	s.rules.every = 5;
	goodput_run(&s, 1, &r); /* 20 s to write, 10 s of steps */
	assert_float_equal(r.parts[GOODPUT_SAVING] / r.parts[GOODPUT_TRAINED], 1, 1e-3);
}

static double share_from_copies(const struct goodput_result *r)
{
	return (double)r->from_copies / (double)r->restarts;
}

static void the_copies_of_two_neighbours_are_lost_together(void **state)
{
	(void)state;
	/* The second fault comes before the next copy. With two nodes they are neighbours. */
	const struct goodput_faults f = only(SHOWS_CLOSED, 2, 60, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result two, many;
	s.nodes = s.replicas = 2;
	goodput_run(&s, 1, &two);
	const struct goodput_faults g = only(SHOWS_CLOSED, 64, 60, 0);
	s.nodes = s.replicas = 64;
	s.faults = &g;
	goodput_run(&s, 1, &many);
	/* Some losses come before the end of the recovery from the one before. */
	assert_true(share_from_copies(&many) > share_from_copies(&two) + 0.1);
	s.nodes = s.replicas = 1;
	goodput_run(&s, 1, &many);
	assert_int_equal(many.from_copies, 0);
}

/* --- Rules -------------------------------------------------------------------------------------- */

static void after_the_last_restart_a_person_begins_again(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.rules.restarts = 0;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 5);
	assert_int_equal(r.people, r.restarts);
	assert_int_equal(r.from_copies, 0);
	assert_float_equal(r.parts[GOODPUT_PERSON], (double)r.people * 1800, 1801);
	s.rules.restarts = 3;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.people, r.restarts / 4);
}

/* A step takes longer than there is between two faults. */
static struct goodput_setup without_progress(const struct goodput_faults *f)
{
	struct goodput_setup s = make_setup(f);
	s.costs.step = 1000 * hour;
	s.rules.every = s.rules.copy_every = 0;
	return s;
}

static void restarts_without_progress_wait_longer_each_time(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10 * hour, 0);
	struct goodput_setup s = without_progress(&f);
	struct goodput_result r;
	s.rules.backoff = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 10);
	assert_int_equal(r.restarts, r.all_faults);
	/* The first loss is not one of a restart, and the next ones wait for 3, 6, 12, 24, 48 and 60 s. */
	double waits = 3 + 6 + 12 + 24 + 48 + 60 * (double)(r.restarts - 6);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20) + waits,
			   1e-6);
	/* Steps are progress. */
	s.costs.step = 2;
	s.rules.every = 100;
	goodput_run(&s, 3, &r);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20), 1e-6);
}

static void too_many_restarts_without_progress_wait_for_a_person(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10 * hour, 0);
	struct goodput_setup s = without_progress(&f);
	struct goodput_result r;
	s.seconds = 100 * day;
	s.rules.futile = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.people > 30);
	/* The first generation, and three restarts. */
	assert_int_equal(r.people, r.restarts / 4);
	assert_int_equal(r.futile, r.people);
	assert_float_equal(r.parts[GOODPUT_PERSON], (double)r.people * 1800, 1e-6);
	s.costs.step = 2;
	s.rules.every = 100;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.futile + r.people, 0);
	/* A planned stop starts another supervisor, too: few generations are lost between two of them. */
	struct goodput_faults often = f;
	often.n = 2;
	often.of[1] = (struct goodput_fault){ .shows = SHOWS_PLANNED, .rate = 20 * f.of[0].rate };
	s = without_progress(&often);
	s.seconds = 100 * day;
	s.rules.futile = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 100);
	assert_in_range(r.futile, 0, 1);
}

/* The next generation has not been started yet. */
static void faults_until_the_restart_belong_to_the_same_loss(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.seconds = day;
	s.costs.end = 300;
	s.rules.restarts = 1;
	goodput_run(&s, 3, &r);
	assert_true(r.all_faults > 5000);
	assert_int_equal(r.restarts, 1);
	check_sums(&s, &r);
}

/* --- Nodes that have several faults ------------------------------------------------------------- */

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
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 50, .seed = 1 }, &sum, NULL), 0);
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
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 1000, .seed = 1 }, &sum, NULL), 0);
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

/* ------------------------------------------------------------------------------------------------ */

static void the_same_seed_gives_the_same_faults(void **state)
{
	(void)state;
	struct goodput_faults llama;
	assert_int_equal(goodput_faults_open("llama3", &llama, NULL), 0);
	struct goodput_setup s = make_setup(&llama);
	struct goodput_result a, b;
	s.nodes = s.replicas = 2048;
	goodput_run(&s, 9, &a);
	goodput_run(&s, 9, &b);
	assert_memory_equal(&a, &b, sizeof a);
	s.costs.respawn *= 2;
	goodput_run(&s, 9, &b);
	assert_true(goodput_effective(&b) < goodput_effective(&a));
	assert_in_range(b.all_faults, a.all_faults - 3, a.all_faults + 3);
	goodput_run(&s, 10, &b);
	assert_memory_not_equal(&a, &b, sizeof a);
}

static void wrong_numbers_that_nobody_finds_cost_no_time(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_NUMBERS, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.costs.numbers = INFINITY;
	goodput_run(&s, 3, &r);
	assert_true(r.all_faults > 5);
	assert_int_equal(r.restarts, 0);
	check_sums(&s, &r);
}

static void a_hang_that_nobody_finds_ends_the_work(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_HANG, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.costs.hang = INFINITY;
	goodput_run(&s, 3, &r);
	assert_true(r.parts[GOODPUT_DETECT] > 5 * day);
	check_sums(&s, &r);
	s.seconds = 0;
	goodput_run(&s, 3, &r);
	assert_true(r.endless);
}

/* The time of a step may be less than what can be added to the time of the run. */
static void tiny_steps_after_huge_costs_are_done_all_the_same(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 3000;
	s.costs.step = 1e-7;
	s.costs.start = s.costs.respawn = 1e9;
	goodput_run(&s, 1, &r);
	assert_int_equal(r.steps, 3000);
}

/* Of any setup: the parts add up, and a run of given length has it. */
static void the_parts_add_up_whatever_happens(void **state)
{
	(void)state;
	struct goodput_faults f;
	assert_int_equal(goodput_faults_open("llama3", &f, NULL), 0);
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct random_stream r;
		struct goodput_result out;
		struct goodput_setup s = make_setup(&f);
		random_init(&r, seed, 1);
		for (int i = 0; i < f.n; i++)
			f.of[i].rate = exp(random_between(&r, -25, -9));
		f.of[0].blames = random_chance(&r, 0.5);
		for (int i = 0; i < GOODPUT_COST_COUNT; i++)
			*goodput_cost(&s.costs, i) *= exp(random_between(&r, -3, 3));
		s.nodes = 1 + random_below(&r, 40);
		s.replicas = random_chance(&r, 0.5) ? 8 * s.nodes : 1 + random_below(&r, s.nodes);
		s.spares = random_below(&r, 5);
		s.seconds = random_chance(&r, 0.7) ? s.seconds : 0;
		s.steps = 20000;
		s.rules.warm = random_chance(&r, 0.5);
		s.rules.keeps = random_chance(&r, 0.3);
		s.rules.shrinks = random_chance(&r, 0.5);
		s.rules.regrows = random_chance(&r, 0.5);
		s.rules.requeues = random_chance(&r, 0.5);
		s.rules.leaves_slow = random_chance(&r, 0.5);
		s.rules.restarts = random_below(&r, 30) - 1;
		s.rules.futile = random_below(&r, 4);
		s.rules.backoff = random_below(&r, 3);
		s.rules.exclude_after = random_below(&r, 3);
		s.rules.every = random_below(&r, 300);
		s.rules.copy_every = random_below(&r, 20);
		goodput_run(&s, seed, &out);
		if (out.endless)
			continue;
		check_sums(&s, &out);
		check_timeline(&s, seed, &out);
		if (s.seconds <= 0)
			assert_int_equal(out.steps, s.steps);
	}
}

static void a_run_that_loses_more_than_it_does_has_no_end(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 1000;
	goodput_run(&s, 1, &r);
	assert_true(r.endless);
}

/* --- Advice ------------------------------------------------------------------------------------- */

static void the_best_interval_is_as_good_as_dalys(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 6 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	const struct goodput_plan p = { .runs = 200, .seed = 1 };
	struct goodput_advice best;
	struct goodput_sum daly;
	s.costs.snapshot = 5;
	s.costs.write = 0;
	s.rules.copy_every = 0;
	const struct train_costs costs = {
		.step = 2, .snapshot = 5, .restart = 50, .mtbf = 6 * hour
	};
	assert_int_equal(goodput_advise(&s, &p, &best, NULL), 0);
	s.rules.every = cost_train_interval(&costs, 1000000);
	assert_int_equal(goodput_sum(&s, &p, &daly, NULL), 0);
	assert_true(best.sum.effective > daly.effective - 0.001);
	assert_in_range(best.every, s.rules.every / 3, s.rules.every * 3);
	assert_int_equal(best.spares, 0); /* no node is ever away */
	assert_int_equal(best.copy_every, 0);
}

static void too_few_faults_give_no_advice(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 3000 * day, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_advice best;
	assert_int_equal(
		goodput_advise(&s, &(struct goodput_plan){ .runs = 5, .seed = 1 }, &best, NULL), 0);
	assert_false(best.known);
}

static void low_and_high_leave_out_a_tenth_of_the_runs(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 2 * day, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	int below = 0, above = 0;
	s.rules.copy_every = 0;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 101, .seed = 1 }, &sum, NULL), 0);
	for (uint64_t seed = 1; seed <= 101; seed++) {
		struct goodput_result r;
		goodput_run(&s, seed, &r);
		below += goodput_effective(&r) < sum.low;
		above += goodput_effective(&r) > sum.high;
	}
	assert_int_equal(below, 5);
	assert_int_equal(above, 5);
}

static void too_many_faults_are_refused(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 100, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	struct err e = ERR_INIT;
	s.seconds = 300 * day;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 100, .seed = 1 }, &sum, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "give fewer --runs"));
}

static void note_done(const struct goodput_watch *w)
{
	*(int64_t *)w->arg = w->done;
}

/* A line of progress shows the share of all runs. */
static void the_number_of_runs_is_known_before(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_report *r = calloc(1, sizeof *r);
	f.of[0].blames = true;
	for (int i = 0; i < 4; i++) {
		int64_t told = 0;
		struct goodput_watch w = { .show = note_done, .arg = &told };
		*r = (struct goodput_report){ .job = "job",
					      .cluster = "cluster",
					      .setup = make_setup(&f),
					      .plan = { .runs = 3, .seed = 1, .watch = &w } };
		r->setup.seconds = i & 1 ? 10 * day : 0;
		r->setup.steps = 10000;
		r->setup.rules.copy_every = i & 2 ? 5 : 0;
		r->setup.rules.exclude_after = 2;
		assert_int_equal(goodput_report_make(r, NULL), 0);
		assert_true(w.all > 300);
		assert_int_equal(w.done, w.all);
		assert_int_equal(told, w.all);
		goodput_report_close(r);
	}
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_faults_only_the_start_and_the_snapshots_cost_time),
		cmocka_unit_test(the_mean_is_that_of_dalys_formula),
		cmocka_unit_test(each_loss_costs_its_detection_and_its_restart),
		cmocka_unit_test(without_copies_a_loss_goes_back_to_the_checkpoint),
		cmocka_unit_test(wrong_numbers_go_back_to_before_they_began),
		cmocka_unit_test(a_planned_stop_loses_no_step),
		cmocka_unit_test(a_slow_node_slows_all_until_the_run_leaves_it),
		cmocka_unit_test(without_a_spare_the_run_shrinks_and_grows_again),
		cmocka_unit_test(the_copies_of_two_neighbours_are_lost_together),
		cmocka_unit_test(after_the_last_restart_a_person_begins_again),
		cmocka_unit_test(a_node_that_is_replaced_costs_the_start_of_its_ranks),
		cmocka_unit_test(copies_are_kept_by_processes_or_by_nodes),
		cmocka_unit_test(copies_and_checkpoints_count_once_they_are_done),
		cmocka_unit_test(checkpoints_that_take_longer_than_their_interval_hold_up_training),
		cmocka_unit_test(wrong_numbers_that_nobody_finds_cost_no_time),
		cmocka_unit_test(a_hang_that_nobody_finds_ends_the_work),
		cmocka_unit_test(tiny_steps_after_huge_costs_are_done_all_the_same),
		cmocka_unit_test(too_few_faults_give_no_advice),
		cmocka_unit_test(low_and_high_leave_out_a_tenth_of_the_runs),
		cmocka_unit_test(too_many_faults_are_refused),
		cmocka_unit_test(the_number_of_runs_is_known_before),
		cmocka_unit_test(restarts_without_progress_wait_longer_each_time),
		cmocka_unit_test(too_many_restarts_without_progress_wait_for_a_person),
		cmocka_unit_test(faults_until_the_restart_belong_to_the_same_loss),
		cmocka_unit_test(a_node_with_many_faults_is_not_used_any_more),
		cmocka_unit_test(faults_of_a_node_are_forgotten_after_a_day),
		cmocka_unit_test(a_node_that_was_away_keeps_its_faults),
		cmocka_unit_test(slow_nodes_keep_their_places_when_the_run_shrinks),
		cmocka_unit_test(a_slow_node_that_is_lost_slows_nobody),
		cmocka_unit_test(the_loss_of_a_slow_node_ends_its_slowness),
		cmocka_unit_test(slow_nodes_faults_and_fewer_replicas_add_up),
		cmocka_unit_test(the_same_seed_gives_the_same_faults),
		cmocka_unit_test(the_parts_add_up_whatever_happens),
		cmocka_unit_test(a_run_that_loses_more_than_it_does_has_no_end),
		cmocka_unit_test(the_best_interval_is_as_good_as_dalys),
	};
	alarm(120); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
