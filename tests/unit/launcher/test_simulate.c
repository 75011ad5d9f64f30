/* Tests the supervisor in simulated runs: many seeds, each kind of fault alone, and what earlier seeds found. */
#include "launcher/simulate/queue.h"
#include "base/random.h"
#include "tests/unit/launcher/simulate_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* make simulate runs more. MUSTER_SIMULATE_SEED is the first one. */
enum { SEEDS = 150, SEEDS_ALONE = 2, SEEDS_LONG = 24, FAULTS_LONG = 100 };

static void run(uint64_t seed, int faults, void (*change)(struct simulate_setup *),
		struct simulate_result *r)
{
	struct err e = ERR_INIT;
	if (simulate_long_seed(seed, faults, change, r, &e))
		fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
}

static void run_long_well(uint64_t seed, int faults, void (*change)(struct simulate_setup *),
			  struct simulate_result *r)
{
	run(seed, faults, change, r);
	if (r->broken)
		fail_msg("%s", buf_str(&r->text));
	buf_fini(&r->text);
}

static void run_well(uint64_t seed, void (*change)(struct simulate_setup *),
		     struct simulate_result *r)
{
	run_long_well(seed, 0, change, r);
}

/* --- The parts -------------------------------------------------------------------------------- */

static int order[6], ordered;

static void note_order(void *arg)
{
	order[ordered++] = *(int *)arg;
}

static void events_happen_by_time_and_then_by_order(void **state)
{
	(void)state;
	static int names[] = { 0, 1, 2, 3, 4, 5 };
	static const double at[] = { 3, 1, 2, 1, 2, 1 };
	static const int expected[] = { 1, 3, 5, 2, 4, 0 };
	struct simulate_queue q = { .now = 10 };
	for (int i = 0; i < 6; i++)
		simulate_queue_add(&q, at[i], note_order, &names[i]);
	while (q.n) {
		struct simulate_event e = simulate_queue_next(&q);
		assert_true(q.now == e.at);
		e.fire(e.arg);
	}
	assert_memory_equal(order, expected, sizeof order);
	assert_true(q.now == 13);
	simulate_queue_close(&q);
}

static void a_stream_of_random_numbers_is_named_by_its_seed(void **state)
{
	(void)state;
	struct random_stream a, b, other;
	random_init(&a, 7, STREAM_FAULTS);
	random_init(&b, 7, STREAM_FAULTS);
	random_init(&other, 7, STREAM_DELAYS);
	int equal = 0;
	double sum = 0;
	for (int i = 0; i < 1000; i++) {
		double x = random_unit(&a);
		assert_true(x == random_unit(&b) && x >= 0 && x < 1);
		equal += x == random_unit(&other);
		sum += x;
	}
	assert_true(equal < 3);
	assert_true(sum > 450 && sum < 550);
}

/* --- Whole runs ------------------------------------------------------------------------------- */

static void remove_faults(struct simulate_setup *s)
{
	s->most_faults = 0;
}

static void use_relays(struct simulate_setup *s)
{
	s->relays = true;
}

static void use_relays_without_faults(struct simulate_setup *s)
{
	remove_faults(s);
	use_relays(s);
}

static void a_run_without_faults_is_done_in_one_generation(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct simulate_result r;
		run_well(seed, seed % 2 ? remove_faults : use_relays_without_faults, &r);
		assert_int_equal(r.generations, 1);
		assert_int_equal(r.ends[END_DONE], 1);
		assert_int_equal(r.repeated, 0);
	}
}

static void a_seed_decides_everything(void **state)
{
	(void)state;
	uint64_t last = 0;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct simulate_result a, b;
		run_well(seed, NULL, &a);
		run_well(seed, NULL, &b);
		assert_true(a.hash == b.hash && a.events == b.events);
		assert_true(a.hash != last);
		last = a.hash;
	}
}

static void the_supervisor_survives_many_seeds(void **state)
{
	(void)state;
	const char *first = getenv("MUSTER_SIMULATE_SEED");
	uint64_t from = first ? strtoull(first, NULL, 10) : 1;
	int faults = 0, done = 0;
	for (uint64_t seed = from; seed < from + SEEDS; seed++) {
		struct simulate_result r;
		run_well(seed, NULL, &r);
		faults += r.all_faults;
		done += r.ends[END_DONE];
	}
	print_message("%d seeds from %llu on: %d faults, %d runs done\n", SEEDS,
		      (unsigned long long)from, faults, done);
	assert_true(faults > 10 * SEEDS);
	assert_true(done > SEEDS / 8);
}

static void long_runs_meet_as_many_faults_as_asked_for(void **state)
{
	(void)state;
	int faults = 0, done = 0;
	for (uint64_t seed = 1; seed <= SEEDS_LONG; seed++) {
		struct simulate_result r;
		run_long_well(seed, FAULTS_LONG, seed % 2 ? NULL : use_relays, &r);
		faults += r.all_faults;
		done += r.ends[END_DONE];
	}
	print_message("%d seeds: %d faults, %d runs done\n", SEEDS_LONG, faults, done);
	assert_in_range(faults, SEEDS_LONG * FAULTS_LONG * 7 / 10,
			SEEDS_LONG * FAULTS_LONG * 13 / 10);
	assert_true(done > SEEDS_LONG / 3);
}

/* Each has found a bug, which is told beside it. They mean nothing any more once the simulation draws otherwise, but
 * are runs like others then. */
static void seeds_that_have_found_bugs_are_survived(void **state)
{
	(void)state;
	static const struct {
		uint64_t seed;
		int faults; /* of simulate_chaos */
		bool relays;
	} seeds[] = {
		/* The start of generation 3 failed, in which an agent lived on. The next supervisor gave the
		 * number again, and its agents did not end that one. */
		{ 109990, 0, false },
		/* The endpoints of an agent came after the generation was lost and a smaller world was planned,
		 * and were written behind the list of that world. Only a sanitizer sees it. */
		{ 10, FAULTS_LONG, false },
		/* A node died after the survey of a loss, with a process that no signal had ended. The supervisor
		 * waited for Slurm to count the node as down, for minutes. */
		{ 10177, FAULTS_LONG, false },
		/* The same, but the plan did not use that node any more. */
		{ 3872, FAULTS_LONG, false },
	};
	for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
		struct simulate_result r;
		run_long_well(seeds[i].seed, seeds[i].faults, seeds[i].relays ? use_relays : NULL,
			      &r);
	}
}

static enum simulate_fault alone;

static void keep_one_fault(struct simulate_setup *s)
{
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = f == (int)alone;
}

static void each_fault_happens_and_is_survived_alone(void **state)
{
	(void)state;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++) {
		int happened = 0;
		alone = (enum simulate_fault)f;
		for (uint64_t seed = 1; seed <= SEEDS_ALONE; seed++) {
			struct simulate_result r;
			run_well(seed, keep_one_fault, &r);
			happened += r.faults[f];
		}
		if (!happened)
			fail_msg("%s does not happen", simulate_fault_row(alone)->name);
	}
}

static void be_hasty(struct simulate_setup *s)
{
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = f == SIMULATE_KILLED || f == SIMULATE_LINK_SLOW;
	s->bug = BUG_COMMITS_UNRECORDED;
}

static void be_cut_off(struct simulate_setup *s)
{
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = f == SIMULATE_NODE_CUT || f == SIMULATE_CKPT_SLOW;
}

static void commit_unheard(struct simulate_setup *s)
{
	be_cut_off(s);
	s->bug = BUG_COMMITS_UNHEARD;
}

static void is_found(void (*plant)(struct simulate_setup *), const char *as)
{
	struct simulate_result r = { 0 };
	for (uint64_t seed = 1; seed <= 200 && !r.broken; seed++) {
		buf_fini(&r.text);
		run(seed, 0, plant, &r);
	}
	assert_true(r.broken);
	if (!strstr(r.why, as))
		fail_msg("found: %s", r.why);
	assert_non_null(strstr(buf_str(&r.text), "faults:\n   1 "));
	assert_non_null(strstr(buf_str(&r.text), "BROKEN: "));
	buf_fini(&r.text);
}

static void bugs_of_the_agents_are_found(void **state)
{
	(void)state;
	is_found(be_hasty, "metrics.jsonl lacks step");
	is_found(commit_unheard, "commits a checkpoint while generation");
}

static void agents_that_are_cut_off_commit_nothing_late(void **state)
{
	(void)state;
	struct simulate_result r;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		run_well(seed, be_cut_off, &r);
}

static void the_supervisor_survives_where_one_rank_reports_for_its_node(void **state)
{
	(void)state;
	struct simulate_result r;
	for (uint64_t seed = 1; seed <= SEEDS / 2; seed++)
		run_well(seed, use_relays, &r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_happen_by_time_and_then_by_order),
		cmocka_unit_test(a_stream_of_random_numbers_is_named_by_its_seed),
		cmocka_unit_test(a_run_without_faults_is_done_in_one_generation),
		cmocka_unit_test(a_seed_decides_everything),
		cmocka_unit_test(bugs_of_the_agents_are_found),
		cmocka_unit_test(agents_that_are_cut_off_commit_nothing_late),
		cmocka_unit_test(seeds_that_have_found_bugs_are_survived),
		cmocka_unit_test(each_fault_happens_and_is_survived_alone),
		cmocka_unit_test(the_supervisor_survives_many_seeds),
		cmocka_unit_test(the_supervisor_survives_where_one_rank_reports_for_its_node),
		cmocka_unit_test(long_runs_meet_as_many_faults_as_asked_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
