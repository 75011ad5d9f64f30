/* This host as measured: the prediction for a job on it follows from the calibration alone. */
#include "plan/cost/calibration.h"
#include "plan/forecast.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static char dir[128], path[160];
static int cores;

/* Every operation has a flat rate, and exchanges cost almost nothing. A time is then the work
 * divided by the cores. */
static int open_file(void **state)
{
	static struct calibration c;
	struct measured_machine m = { .agents = 1, .threads = 1 };
	struct measured_exchange x = {
		.group = 2, .crowd = 2, .n = 1, .bytes = { 1e9 }, .seconds = { 1e-6 }
	};
	(void)state;
	if (!tmpdir_make(dir, sizeof dir) || calibration_here(&c, NULL))
		return -1;
	snprintf(path, sizeof path, "%s/calibration.json", dir);
	cores = c.cores;
	m.machine.rates[RATE_PRODUCT_FWD] = (struct rate_curve){ 1, { 1e6 }, { 1e10 } };
	m.machine.rates[RATE_MOVED] = (struct rate_curve){ 1, { 1e6 }, { 1e10 } };
	topo_measured_add_machine(&c.measured, &m);
	for (int op = 0; op < MEASURED_MEETING; op++) {
		x.op = (enum measured_op)op;
		topo_measured_add_exchange(&c.measured, &x);
	}
	return calibration_save(&c, path, NULL);
}

static int close_file(void **state)
{
	(void)state;
	return remove(path) || remove(dir);
}

static double parts(const struct plan_time *t)
{
	double sum = 0;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum += t->parts[i];
	return sum;
}

static struct plan_time forecast(const char *layout)
{
	static const char *const fixed[] = { "launch.threads=1", "model.layers=8",
					     "model.hidden=256", "batch.micro=1",
					     "batch.global=96" };
	const char *words[8];
	char list[128];
	struct job job;
	struct forecast f;
	struct err e = ERR_INIT;
	int n = 0;
	for (; n < 5; n++)
		words[n] = fixed[n];
	snprintf(list, sizeof list, "%s", layout);
	for (char *rest = list, *word; (word = strtok_r(rest, " ", &rest));)
		words[n++] = word;
	if (job_load(NULL, words, n, &job, &e) || plan_forecast_here(&job, path, &f, &e))
		fail_msg("%s: %s", layout, e.text);
	assert_float_equal(parts(&f.time) / f.time.total, 1, 1e-9);
	assert_true(f.bytes > 0);
	return f.time;
}

static void near(double x, double expected, double tolerance)
{
	if (fabs(x / expected - 1) > tolerance)
		fail_msg("%g is not near %g", x, expected);
}

/* The cores' work is the same for any number of agents, if there are enough of them. */
static void agents_beyond_the_cores_only_share_them(void **state)
{
	char words[64];
	(void)state;
	double one = forecast("parallel.dp=1").compute;
	for (int times = 1; times <= 3 && 96 % (times * cores) == 0; times++) {
		snprintf(words, sizeof words, "parallel.dp=%d", times * cores);
		near(forecast(words).compute, one / cores, 1e-6);
	}
}

/* While one stage waits, another one computes on its core. */
static void stages_that_share_cores_leave_no_bubble(void **state)
{
	(void)state;
	double one = forecast("parallel.dp=1").total;
	/* The passes run one after another, however many cores there are. */
	near(forecast("parallel.pp=8 parallel.dp=1 parallel.schedule=naive").total, one, 0.1);
	struct plan_time t = forecast("parallel.pp=8 parallel.dp=1");
	assert_true(t.total < one / fmin(cores, 8) * 1.6);
	if (cores <= 4)
		assert_true(t.pp < 0.25 * t.total);
}

static void half_wide_types_take_the_wide_ones_rates_where_they_were_not_measured(void **state)
{
	(void)state;
	near(forecast("parallel.dp=1 precision.dtype=bf16").compute,
	     forecast("parallel.dp=1").compute, 0.2);
}

static void an_uncalibrated_host_is_refused_with_the_remedy(void **state)
{
	const char *words[] = { "parallel.dp=1", "launch.calibration=none" };
	struct job job;
	struct forecast f;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load(NULL, words, 2, &job, &e), 0);
	assert_int_equal(plan_forecast_here(&job, NULL, &f, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "muster bench calibrate"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agents_beyond_the_cores_only_share_them),
		cmocka_unit_test(stages_that_share_cores_leave_no_bubble),
		cmocka_unit_test(
			half_wide_types_take_the_wide_ones_rates_where_they_were_not_measured),
		cmocka_unit_test(an_uncalibrated_host_is_refused_with_the_remedy),
	};
	return cmocka_run_group_tests(tests, open_file, close_file);
}
