/*
 * Tests the model of `muster simulate` against the real supervisor, which runs in virtual time with agents that
 * are killed (launcher/simulate). One run says how long a restart takes; with that figure the model predicts the
 * effective training time of runs with other rates of faults and other intervals.
 */
#include "launcher/goodput/study.h"
#include "tests/unit/launcher/simulate_seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Seconds with faults. The run ends after twice the time, in which the other half has none. */
static const double length_s = 20000, step_s = 1;

static struct {
	double fault_s; /* between two faults */
	int64_t every;  /* steps between checkpoints */
} course;

static void set_job(struct job *job)
{
	job->job.steps = 1000000;
	job->checkpoint.every = course.every;
	job->checkpoint.memory_every = 0;
	job->restart.warm = true;
	job->restart.max_restarts = job->restart.max_futile = 1000000;
	job->restart.backoff = 0;
	job->restart.exclude_after = 0;
}

/* Agents are killed, and nothing else happens. */
static void set_course(struct simulate_setup *s)
{
	struct cluster used;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = f == SIMULATE_KILLED;
	s->fault_s = course.fault_s;
	s->burst = 0;
	s->most_faults = 1000000;
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

static void run(uint64_t seed, double fault_s, int64_t every, struct simulate_result *r)
{
	course.fault_s = fault_s;
	course.every = every;
	assert_int_equal(simulate_seed(seed, set_course, r, NULL), 0);
	assert_false(r->broken);
	assert_int_equal(r->ends[END_STOPPED], 1);
	buf_fini(&r->text);
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
	assert_int_equal(goodput_sum(&s, &(struct goodput_plan){ 50, 1 }, &sum, NULL), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_model_predicts_what_the_supervisor_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
