/*
 * Tests the model of `muster simulate` against the real supervisor, which runs in virtual time with agents that
 * are killed (launcher/simulate). One run says how long a restart takes; with that figure the model predicts the
 * effective training time of runs with other rates of faults and other intervals, when restarts without progress
 * end a run, and how many nodes are replaced because of their faults.
 */
#include "launcher/supervise/policy.h"
#include "launcher/supervise/restart.h"
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/simulate_seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Seconds with faults. The run ends after twice the time, in which the other half has none. */
static const double length_s = 20000, step_s = 1;

/* Seeds whose shapes are 4 nodes, without and with 2 spare ones. */
enum { PLAIN = 1, SPARED = 16 };

struct course {
	uint64_t seed;
	double fault_s; /* between two faults */
	int64_t every;  /* steps between checkpoints */
	int64_t futile, exclude_after;
	double backoff;
	enum job_shrink shrink;
};
static struct course course;

static const int64_t many = 1000000;

static void set_job(struct job *job)
{
	job->job.steps = many;
	job->checkpoint.every = course.every;
	job->checkpoint.memory_every = 0;
	job->restart.warm = true;
	job->restart.max_restarts = many;
	job->restart.max_futile = course.futile;
	job->restart.backoff = course.backoff;
	job->restart.exclude_after = course.exclude_after;
	job->restart.shrink = course.shrink;
	job->restart.regrow = REGROW_YES;
}

/* Agents are killed, and nothing else happens. */
static void set_course(struct simulate_setup *s)
{
	struct cluster used;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = f == SIMULATE_KILLED;
	s->seed = course.seed;
	s->fault_s = course.fault_s;
	s->burst = 0;
	s->most_faults = (int)many;
	s->seconds = length_s;
	s->step_s = step_s;
	s->heartbeat_s = 1;
	set_job(&s->job);
	assert_int_equal(topo_cluster_without(&s->machines, NULL, 0, &used, NULL), 0);
	launcher_deployment_free(s->first);
	assert_int_equal(launcher_deployment_build(&s->job, s->job.parallel.dp, 0, &used, &s->first,
						   NULL),
			 0);
}

static void run_shape(uint64_t shape, struct simulate_result *r)
{
	assert_int_equal(simulate_seed(shape, set_course, r, NULL), 0);
	assert_false(r->broken);
	buf_fini(&r->text);
}

static void run(uint64_t seed, double fault_s, int64_t every, struct simulate_result *r)
{
	course =
		(struct course){ .seed = seed, .fault_s = fault_s, .every = every, .futile = many };
	run_shape(seed, r);
	assert_int_equal(r->ends[END_STOPPED], 1);
}

static double effective_of(const struct simulate_result *r)
{
	double calm = r->seconds - length_s;
	return ((double)(r->steps - r->repeated) * step_s - calm) / length_s;
}

static double predict(double fault_s, int64_t every, double restart_s)
{
	const struct goodput_faults faults = {
		.n = 1, .of[0] = { .rate = 1 / fault_s, .shows = SHOWS_CLOSED }
	};
	const struct goodput_setup s = {
		.nodes = 1,
		.replicas = 1,
		.seconds = length_s,
		/* The simulated agents write for 1.05 s on average. */
		.costs = { .step = step_s, .write = 1.05, .respawn = restart_s },
		.rules = { .warm = true, .restarts = -1, .every = every },
		.faults = &faults,
	};
	struct goodput_sum sum;
	sum_runs(&s, 50, &sum);
	return sum.effective;
}

static void the_model_predicts_what_the_supervisor_does(void **state)
{
	(void)state;
	static const struct {
		uint64_t seed;
		double fault_s;
		int64_t every;
	} cases[] = { { 1, 600, 50 }, { 1, 120, 50 }, { 1, 60, 10 }, { 3, 60, 20 }, { 2, 30, 10 } };
	struct simulate_result r;
	run(1, 60, 50, &r);
	double restart_s = (r.seconds - (double)r.steps * step_s) / r.all_faults;
	print_message("a restart takes %.2f s\n", restart_s);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		run(cases[i].seed, cases[i].fault_s, cases[i].every, &r);
		double is = effective_of(&r),
		       predicted = predict(cases[i].fault_s, cases[i].every, restart_s);
		print_message(
			"a fault in %g s, a checkpoint in %lld steps: %.1f %%, predicted %.1f %%\n",
			cases[i].fault_s, (long long)cases[i].every, 100 * is, 100 * predicted);
		assert_true(fabs(is - predicted) < 0.03);
	}
}

/* The means of runs of that shape which end because restarts make no progress: seconds until then, faults, and
 * generations. */
struct ends {
	double seconds, faults, generations;
};

static struct ends mean_ends(int runs)
{
	struct ends sum = { 0 };
	for (int i = 1; i <= runs; i++) {
		struct simulate_result r;
		course.seed = (uint64_t)i;
		run_shape(PLAIN, &r);
		assert_int_equal(r.ends[END_GAVE_UP], 1);
		sum.seconds += r.seconds / runs;
		sum.faults += (double)r.all_faults / runs;
		sum.generations += (double)r.generations / runs;
	}
	return sum;
}

/* A restart takes the same as in the test above: its generation starts after a second, and faults in this second
 * belong to the loss before. */
static struct goodput_setup setup_of(const struct goodput_faults *faults)
{
	return (struct goodput_setup){
		.nodes = 1,
		.replicas = 1,
		.seconds = length_s,
		.costs = { .step = step_s, .write = 1.05, .end = 1, .respawn = 2.3, .person = 1e9 },
		.rules = { .warm = true,
			   .restarts = -1,
			   .every = course.every,
			   .futile = course.futile,
			   .backoff = course.backoff,
			   .exclude_after = course.exclude_after },
		.faults = faults,
	};
}

static void assert_near(double is, double predicted, double most)
{
	if (fabs(predicted / is - 1) > most)
		fail_msg("%g, and %g is predicted", is, predicted);
}

static void the_model_gives_up_when_the_supervisor_does(void **state)
{
	(void)state;
	static const struct course cases[] = {
		{ .fault_s = 12, .every = 1000, .futile = 3 },
		{ .fault_s = 8, .every = 5, .futile = 4 },
		{ .fault_s = 15, .every = 1000, .futile = 4, .backoff = 2 },
	};
	assert_int_equal(GOODPUT_WAIT_MOST, RESTART_WAIT_MAX);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		course = cases[i];
		const struct goodput_faults faults = {
			.n = 1, .of[0] = { .rate = 1 / course.fault_s, .shows = SHOWS_CLOSED }
		};
		const struct goodput_setup s = setup_of(&faults);
		struct goodput_sum sum;
		struct ends is = mean_ends(200);
		sum_runs(&s, 1000, &sum);
		double predicted = s.seconds - sum.parts[GOODPUT_PERSON];
		print_message(
			"a fault in %g s, max_futile = %lld, backoff %g s: gave up after %.1f s "
			"and %.2f generations, predicted %.1f s and %.2f\n",
			course.fault_s, (long long)course.futile, course.backoff, is.seconds,
			is.generations, predicted, sum.restarts);
		assert_near(is.seconds, predicted, 0.12);
		assert_near(is.generations, sum.restarts, 0.1);
	}
}

/* Of the signals that end agents, 3 of 5 are those of a crash, which counts against its node. */
static void the_model_excludes_nodes_as_the_supervisor_does(void **state)
{
	(void)state;
	enum { RUNS = 4, NODES = 4, SPARES = 2 };
	static const enum job_shrink shrinks[] = { SHRINK_KEEP, SHRINK_DP };
	assert_int_equal(GOODPUT_FAULT_MEMORY, POOL_FAULT_MEMORY);
	for (size_t i = 0; i < sizeof shrinks / sizeof *shrinks; i++) {
		double spare = 0, shrunk = 0;
		course = (struct course){ .fault_s = 60,
					  .every = 10,
					  .futile = many,
					  .exclude_after = 2,
					  .shrink = shrinks[i] };
		const struct goodput_faults faults = {
			.n = 2,
			.of = { { .rate = 0.4 / course.fault_s / NODES, .shows = SHOWS_CLOSED },
				{ .rate = 0.6 / course.fault_s / NODES,
				  .shows = SHOWS_CLOSED,
				  .blames = true } }
		};
		struct goodput_setup s = setup_of(&faults);
		struct goodput_sum sum;
		s.nodes = s.replicas = NODES;
		s.spares = SPARES;
		s.rules.shrinks = s.rules.regrows = shrinks[i] == SHRINK_DP;
		for (course.seed = 1; course.seed <= RUNS; course.seed++) {
			struct simulate_result r;
			run_shape(SPARED, &r);
			spare += (double)r.decisions[RECOVERY_SPARE] / RUNS;
			shrunk += (double)r.decisions[RECOVERY_DP] / RUNS;
		}
		sum_runs(&s, 100, &sum);
		print_message(
			"%.1f nodes were replaced and %.1f left out, predicted %.1f and %.1f\n",
			spare, shrunk, sum.replaced, sum.shrunk);
		/* The supervisor leaves out two nodes at once if the batch cannot be split otherwise. */
		assert_near(spare + shrunk, sum.replaced + sum.shrunk, 0.1);
		assert_true((shrunk > 0) == (sum.shrunk > 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_model_predicts_what_the_supervisor_does),
		cmocka_unit_test(the_model_gives_up_when_the_supervisor_does),
		cmocka_unit_test(the_model_excludes_nodes_as_the_supervisor_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
