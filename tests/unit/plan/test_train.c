/* The time to train under failures, against Daly's own figures and against trying all intervals. */
#include "plan/cost/train_time.h"
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static double total(const struct train_costs *c, int64_t steps, int64_t every)
{
	struct train_time t;
	cost_train_expect(c, steps, every, &t);
	return t.total;
}

static void near(double x, double expected, double share)
{
	if (!(fabs(x - expected) <= share * fabs(expected)))
		fail_msg("%g is not %g", x, expected);
}

/* Young's interval if checkpoints are cheap: √(2 · 5 · 86400) = 929.5 s. Daly's, with 5 minutes per
 * checkpoint and a day between failures: √(2 · 300 · 86400) (1 + √(300 / 172800) / 3 + 300 / 172800
 * / 9) - 300 = 7200 · 1.014081 - 300 = 7001.4 s. */
static void the_interval_is_youngs_and_dalys(void **state)
{
	struct train_costs c = { .step = 0.1, .snapshot = 5, .mtbf = 86400 };
	(void)state;
	near(0.1 * (double)cost_train_interval(&c, 1000000000), sqrt(2 * 5 * 86400.0), 0.01);
	c.snapshot = 300;
	near(0.1 * (double)cost_train_interval(&c, 1000000000), 7001.4, 1e-4);
	c.snapshot = 3 * 86400.0; /* a checkpoint takes longer than the machine survives */
	near(0.1 * (double)cost_train_interval(&c, 1000000000), 86400, 1e-4);
}

static void the_interval_keeps_to_the_run(void **state)
{
	struct train_costs c = { .step = 10, .snapshot = 1, .write = 300, .mtbf = 3600 };
	(void)state;
	/* as long as writing takes; Young's interval would be 8 */
	assert_int_equal(cost_train_interval(&c, 100000), 30);
	c.write = 0;
	assert_int_equal(cost_train_interval(&c, 100000), 8);
	assert_int_equal(cost_train_interval(&c, 5), 5);
	c.snapshot = 1e-6;
	assert_int_equal(cost_train_interval(&c, 100000), 1);
	c.mtbf = 0;
	assert_int_equal(cost_train_interval(&c, 100000), 100000);
}

/* No interval is much better. The test tries all. */
static void no_other_interval_is_better(void **state)
{
	static const struct train_costs cases[] = {
		{ 10, 5, 0, 60, 1800 }, { 10, 5, 0, 60, 86400 },  { 30, 120, 0, 600, 14400 },
		{ 2, 0.5, 0, 30, 600 }, { 60, 30, 0, 300, 3600 },
	};
	enum { STEPS = 5000 };
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		double best = INFINITY,
		       chosen = total(&cases[i], STEPS, cost_train_interval(&cases[i], STEPS));
		for (int64_t every = 1; every <= STEPS; every++)
			best = fmin(best, total(&cases[i], STEPS, every));
		assert_true(chosen <= 1.002 * best);
	}
}

/* Simulates runs on a machine that fails at random; the test takes the mean of 400 runs. */
static double random_unit(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(*state >> 11) + 0.5) / (double)(1ull << 53);
}

static double play(const struct train_costs *c, int64_t steps, int64_t every, uint64_t *seed)
{
	double now = 0, fails = -c->mtbf * log(random_unit(seed)),
	       interval = (double)every * c->step + c->snapshot;
	for (int64_t done = 0; done < steps;) {
		double begun = now;
		if (begun + interval <= fails) {
			now += interval;
			done += every;
			continue;
		}
		for (;;) { /* a restart can fail, too */
			now = fails;
			fails = now - c->mtbf * log(random_unit(seed));
			if (now + c->restart <= fails)
				break;
		}
		now += c->restart;
	}
	return now;
}

static void the_expectation_is_the_mean_of_simulated_runs(void **state)
{
	static const struct train_costs cases[] = { { 10, 20, 0, 120, 3600 },
						    { 10, 20, 0, 120, 1200 },
						    { 10, 200, 0, 600, 7200 } };
	enum { STEPS = 3000, RUNS = 400 };
	uint64_t seed = 1;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		/* 10, 155, 300: each nearly divides the number of steps */
		for (int64_t every = 10; every <= 300; every += 145) {
			double sum = 0;
			int64_t steps = STEPS / every * every;
			for (int run = 0; run < RUNS; run++)
				sum += play(&cases[i], steps, every, &seed);
			near(total(&cases[i], steps, every), sum / RUNS, 0.03);
		}
}

static void the_parts_add_up(void **state)
{
	struct train_costs c = { 10, 5, 100, 60, 7200 };
	struct train_time t;
	(void)state;
	cost_train_expect(&c, 10000, 50, &t);
	near(t.work + t.saving + t.lost, t.total, 1e-12);
	near(t.work, 100000, 1e-12);
	near(t.saving, 200 * 5, 1e-12);
	near(t.failures, t.total / 7200, 1e-12);
	/* half an interval is repeated, and the checkpoint that was being written is lost */
	assert_true(t.lost > t.failures * (60 + 100 + 0.45 * 505));
	assert_true(total(&(struct train_costs){ 10, 5, 0, 60, 7200 }, 10000, 50) < t.total);
	c.mtbf = 0;
	cost_train_expect(&c, 10000, 0, &t);
	assert_true(t.lost == 0 && t.failures == 0 && t.every == 10000);
	near(t.total, 100005, 1e-12);
	c.mtbf = 1e-3; /* the run never ends */
	cost_train_expect(&c, 10000, 1, &t);
	assert_true(isinf(t.total));
}

/* The costs for 175 billion parameters with `words` on dgx-h100:256, whatever fits. scatter: the
 * ranks are distributed round-robin over the nodes. */
static struct train_costs costs_of(const char *words[], int n, bool scatter)
{
	struct err e = ERR_INIT;
	struct train_costs costs;
	struct cluster c;
	struct job job;
	struct plan p;
	assert_int_equal(topo_cluster_open("dgx-h100:256", 0, &c, &e), 0);
	c.kinds[0].device_memory = 0;
	if (job_load("templates/jobs/175b.ini", words, n, &job, &e) || plan_build(&job, &c, &p, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < p.world && scatter; i++)
		p.ranks[i].node = i % (p.world / 8);
	cost_train_costs_of(&job, &c, &p, &costs);
	near(costs.step, p.time.total, 1e-12);
	plan_free(&p);
	topo_cluster_free(&c);
	return costs;
}

enum { NODE_HOURS = 6300 };
#define SAVED (12 * 174.6e9) /* bytes: fp32 parameters and two moments */

/* The same plan on more nodes fails more often, and its checkpoint is written sooner. */
static void a_plans_costs(void **state)
{
	const char *eight[] = { "parallel.dp=8" }, *sixteen[] = { "parallel.dp=16" };
	struct train_costs few = costs_of(eight, 1, false), many = costs_of(sixteen, 1, false);
	(void)state;
	near(few.mtbf, NODE_HOURS * 3600.0 / 128, 1e-9);
	near(many.mtbf, few.mtbf / 2, 1e-9);
	near(few.write, SAVED / 128e9, 0.01);
	near(many.write, few.write / 2, 1e-9);
	/* a 1024th of 2.1 TB at 50 GB/s: each rank saves its share */
	assert_true(few.snapshot > 0.04 && few.snapshot < 0.05);
	near(many.snapshot, few.snapshot / 2, 0.01);
}

/* A node counts as one, whichever ranks are on it. */
static void ranks_of_a_node_need_not_follow_on_each_other(void **state)
{
	const char *eight[] = { "parallel.dp=8" };
	struct train_costs beside = costs_of(eight, 1, false), scattered = costs_of(eight, 1, true);
	(void)state;
	near(scattered.mtbf, beside.mtbf, 1e-9);
	near(scattered.write, beside.write, 1e-9);
	near(scattered.restart, beside.restart, 1e-9);
}

/* All replicas together save what one of them has. After a failure, each reads everything that it
 * holds. */
static void what_is_not_cut_is_read_by_each_replica(void **state)
{
	const char *whole[] = { "parallel.dp=8", "parallel.zero=0" },
		   *cut[] = { "parallel.dp=8", "parallel.zero=1" };
	struct train_costs one = costs_of(whole, 2, false), other = costs_of(cut, 2, false);
	(void)state;
	near(one.snapshot, other.snapshot, 1e-9);
	near(one.write, other.write, 1e-9);
	near(other.restart - 30, other.write, 1e-9);
	near(one.restart - 30, 8 * one.write, 1e-9);
}

static void a_users_own_cluster_counts(void **state)
{
	const char *words[] = { "parallel.dp=8",           "restart.node_mtbf=100",
				"restart.respawn=300",     "checkpoint.node_bandwidth=4",
				"checkpoint.bandwidth=64", "parallel.zero=1" };
	struct train_costs own = costs_of(words, 6, false), wide;
	(void)state;
	near(own.mtbf, 3600 * 100.0 / 128, 1e-9);
	near(own.write, SAVED / 64e9, 0.01);
	near(own.restart, 300 + own.write, 1e-9);
	words[4] = "checkpoint.bandwidth=100000";
	wide = costs_of(words, 6, false);
	near(wide.write, SAVED / 512e9, 0.01); /* now as much as the nodes can write */
	words[1] = "restart.node_mtbf=0";
	assert_true(!(costs_of(words, 6, false).mtbf > 0));
}

/* The costs of a small Llama of 95040 parameters on one host, at 1 GB/s. *state: the bytes of
 * optimizer state on all ranks. */
static struct train_costs costs_of_small(const char *kind, const char *zero, double *state)
{
	const char *words[] = { "model.family=llama",
				"model.layers=2",
				"model.hidden=64",
				"model.heads=4",
				"model.kv_heads=4",
				"model.ffn=128",
				"model.vocab=100",
				"model.seq=32",
				"parallel.tp=2",
				"parallel.dp=2",
				zero,
				kind,
				"checkpoint.bandwidth=1",
				"checkpoint.node_bandwidth=1",
				"restart.respawn=0" };
	struct err e = ERR_INIT;
	struct train_costs costs;
	struct cluster c;
	struct job job;
	struct plan p;
	assert_int_equal(topo_cluster_open("local", 4, &c, &e), 0);
	if (job_load(NULL, words, (int)(sizeof words / sizeof *words), &job, &e) ||
	    plan_build(&job, &c, &p, &e))
		fail_msg("%s", e.text);
	assert_true(shape_params(&p.shape) == 95040);
	cost_train_costs_of(&job, &c, &p, &costs);
	*state = 0;
	for (int i = 0; i < p.world; i++)
		*state += p.ranks[i].optimizer;
	plan_free(&p);
	topo_cluster_free(&c);
	return costs;
}

/* Muon has a first moment of all 95040 parameters, and a second one of the 13120 that are not in
 * hidden matrices. Adafactor has 2824 numbers: the rows and columns of 2 × 7 + 2 matrices, and the
 * elements of 5 norms. */
static void a_checkpoint_has_every_state_of_the_optimizer(void **state)
{
	static const struct {
		const char *kind;
		double elements;
	} cases[] = {
		{ "optimizer.kind=adamw", 3 * 95040 },
		{ "optimizer.kind=sgd", 2 * 95040 },
		{ "optimizer.kind=muon", 2 * 95040 + 13120 },
		{ "optimizer.kind=adafactor", 95040 + 2824 },
	};
	double held;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct train_costs c = costs_of_small(cases[i].kind, "parallel.zero=1", &held);
		near(c.write, 4 * cases[i].elements / 1e9, 1e-12);
	}
}

/* No rank has a part of Adafactor's states: each of the four holds and reads all of them. */
static void states_that_are_not_split_are_read_by_each_rank(void **state)
{
	double held;
	struct train_costs c = costs_of_small("optimizer.kind=adafactor", "parallel.zero=1", &held);
	(void)state;
	near(c.restart, 4 * (95040 + 4 * 2824) / 1e9, 1e-12);
	assert_true(held == 4 * 4 * 2824);
	c = costs_of_small("optimizer.kind=adafactor", "parallel.zero=0", &held);
	near(c.restart, 4 * (2 * 95040 + 4 * 2824) / 1e9, 1e-12);
	c = costs_of_small("optimizer.kind=muon", "parallel.zero=0", &held);
	near(c.restart, 2 * c.write, 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_interval_is_youngs_and_dalys),
		cmocka_unit_test(the_interval_keeps_to_the_run),
		cmocka_unit_test(no_other_interval_is_better),
		cmocka_unit_test(the_expectation_is_the_mean_of_simulated_runs),
		cmocka_unit_test(the_parts_add_up),
		cmocka_unit_test(a_plans_costs),
		cmocka_unit_test(ranks_of_a_node_need_not_follow_on_each_other),
		cmocka_unit_test(what_is_not_cut_is_read_by_each_replica),
		cmocka_unit_test(a_users_own_cluster_counts),
		cmocka_unit_test(a_checkpoint_has_every_state_of_the_optimizer),
		cmocka_unit_test(states_that_are_not_split_are_read_by_each_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
