/* Devices of different speed: speeds, threads, stages, and the replicas' shares of the global
 * batch. */
#include "plan/spec/batch.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

static struct job job_of(const char *words)
{
	const char *list[16];
	char copy[512];
	struct job job;
	struct err e = ERR_INIT;
	int n = 0;
	snprintf(copy, sizeof copy, "%s", words);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		list[n++] = w;
	if (job_load(NULL, list, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

struct work {
	struct job job;
	struct model_shape m;
	struct layout l;
	struct stage stages[MOST];
	struct batch_share shares[MOST];
};

static struct work work_of(const char *words, int dp)
{
	struct work w = { .job = job_of(words) };
	struct err e = ERR_INIT;
	shape_of_job(&w.job, &w.m);
	w.l = layout_of(&w.job, dp);
	if (speeds_stages(&w.job, &w.m, &w.l, w.stages, &e) ||
	    batch_split(&w.job, &w.m, &w.l, w.stages, w.shares, &e))
		fail_msg("%s", e.text);
	return w;
}

/* The shares are consecutive and together form the whole batch. */
static void must_be_whole(const struct work *w)
{
	int64_t at = 0;
	for (int dp = 0; dp < w->l.dp; dp++) {
		assert_int_equal(w->shares[dp].first, at);
		assert_true(w->shares[dp].micros >= 1);
		at += w->shares[dp].micros * w->job.batch.micro;
	}
	assert_int_equal(at, w->job.batch.global);
}

static void equal_devices_get_equal_shares(void **state)
{
	(void)state;
	for (int dp = 1; dp <= 8; dp++) {
		char words[64];
		snprintf(words, sizeof words, "batch.micro=2 batch.global=%d", 6 * dp);
		struct work w = work_of(words, dp);
		must_be_whole(&w);
		for (int i = 0; i < dp; i++)
			assert_int_equal(w.shares[i].micros, 3);
	}
}

static void fast_replicas_take_more(void **state)
{
	(void)state;
	struct work w = work_of("batch.micro=1 batch.global=30 launch.speeds=2,1", 2);
	must_be_whole(&w);
	assert_int_equal(w.shares[0].micros, 20);
	assert_int_equal(w.shares[1].micros, 10);
	w = work_of("batch.micro=2 batch.global=16 launch.speeds=1000,1,1", 3);
	must_be_whole(&w);
	assert_int_equal(w.shares[0].micros, 6); /* every replica gets some */
}

/* The least time of the slowest group, over all ways to share n rounds. */
static double best_time(int n, int groups, const double *speed, int at)
{
	double best = INFINITY;
	if (at == groups - 1)
		return n / speed[at];
	for (int k = 1; k <= n - (groups - at - 1); k++)
		best = fmin(best, fmax(k / speed[at], best_time(n - k, groups, speed, at + 1)));
	return best;
}

static void the_slowest_replica_is_as_fast_as_can_be(void **state)
{
	static const double lists[][4] = { { 1, 1, 1, 1 },       { 2, 1, 1, 1 },
					   { 3, 2, 1, 1 },       { 1.5, 1, 2.5, 7 },
					   { 1, 0.3, 0.3, 0.1 }, { 100, 1, 1, 1 } };
	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (int n = 4; n <= 26; n++) {
			char words[128];
			const double *s = lists[i];
			snprintf(words, sizeof words,
				 "batch.micro=1 batch.global=%d launch.speeds=%g,%g,%g,%g", n, s[0],
				 s[1], s[2], s[3]);
			struct work w = work_of(words, 4);
			double worst = 0;
			must_be_whole(&w);
			for (int dp = 0; dp < 4; dp++)
				worst = fmax(worst, w.shares[dp].micros / s[dp]);
			if (worst > best_time(n, 4, s, 0) * (1 + 1e-9))
				fail_msg("%s: %g", words, worst);
		}
}

static void a_replica_is_as_fast_as_its_slowest_device(void **state)
{
	(void)state;
	/* tp 2: ranks 0 and 1 are replica 0. */
	struct work w = work_of("parallel.tp=2 batch.micro=1 batch.global=12 launch.speeds=4,1,2,2",
				2);
	must_be_whole(&w);
	assert_int_equal(w.shares[0].micros, 4);
	assert_int_equal(w.shares[1].micros, 8);
}

static void stages_are_as_fast_as_their_slowest_holder(void **state)
{
	(void)state;
	struct work w = work_of(
		"parallel.pp=2 model.layers=12 model.hidden=512 model.heads=8 launch.speeds=2,1",
		1);
	assert_int_equal(w.stages[0].layer_hi, 8);
	assert_int_equal(w.stages[1].layer_hi, 12);
	/* Two replicas of the same pipeline: ranks 0 and 1 hold its first stage. */
	w = work_of("parallel.pp=2 model.layers=12 model.hidden=512 model.heads=8 "
		    "launch.speeds=2,1,1,1",
		    2);
	assert_int_equal(w.stages[0].layer_hi, 6);
	/* its second stage is no faster */
	assert_int_equal(w.shares[0].micros, w.shares[1].micros);
	w = work_of("parallel.pp=2 parallel.stages=3,9 model.layers=12 launch.speeds=2,1", 1);
	assert_int_equal(w.stages[0].layer_hi, 3); /* computed by hand */
}

static void expert_groups_take_equally_many(void **state)
{
	(void)state;
	struct work w = work_of("model.family=mixtral parallel.ep=2 batch.micro=1 batch.global=24 "
				"launch.speeds=8,1,2,2",
				4);
	must_be_whole(&w);
	assert_int_equal(w.shares[0].micros, 4);
	assert_int_equal(w.shares[1].micros, 4);
	assert_int_equal(w.shares[2].micros, 8);
	assert_int_equal(w.shares[3].micros, 8);
}

static void threads_are_speeds_where_they_differ(void **state)
{
	(void)state;
	struct job job = job_of("launch.threads=2,1");
	assert_int_equal(speeds_devices(&job), 2);
	assert_int_equal(speeds_threads(&job, 0), 2);
	assert_int_equal(speeds_threads(&job, 1), 1);
	assert_true(speeds_rank(&job, 0) == 2 && speeds_rank(&job, 1) == 1);
	job = job_of("launch.threads=2,1 launch.speeds=1,3");
	assert_true(speeds_rank(&job, 0) == 1 && speeds_rank(&job, 1) == 3);
	job = job_of("launch.threads=3");
	assert_int_equal(speeds_devices(&job), 0);
	assert_int_equal(speeds_threads(&job, 5), 3);
	assert_true(speeds_rank(&job, 5) == 1);
	job = job_of("job.steps=1");
	assert_int_equal(speeds_devices(&job), 0);
	assert_int_equal(speeds_threads(&job, 0), 0);
}

static void lists_are_numbers_with_commas(void **state)
{
	static const char *const bad[] = { ",",           "1,",
					   ",1",          "1,,2",
					   "a",           "1 2",
					   "1,nan",       "inf",
					   "0x10",        "-1",
					   "+1",          "1,2000",
					   "1e99",        "1, 2",
					   "2*",          "2*0",
					   "*2",          "2*-1",
					   "2*+1",        "2* 1",
					   "2*1.5",       "2*3*4",
					   "2*1e3",       "2*1048577",
					   "1,2*1048576", "2*99999999999999999999" };
	struct speeds_list out;
	const char *at;
	char many[4 * SPEEDS_ITEMS] = "1";
	(void)state;
	assert_int_equal(speeds_read("", 0, 1e3, false, &out, &at), 0);
	assert_int_equal(speeds_read("2,0.5,1e2", 0, 1e3, false, &out, &at), 3);
	assert_int_equal(out.n, 3);
	assert_true(out.items[0].number == 2 && out.items[1].number == 0.5 &&
		    out.items[2].number == 100);
	assert_int_equal(speeds_read("4*32,0.5,11*64", 0, 1e3, false, &out, &at), 97);
	assert_int_equal(out.n, 3);
	assert_true(out.items[0].end == 32 && out.items[1].end == 33 && out.items[2].end == 97);
	assert_int_equal(speeds_read("2*1048576", 0, 1e3, false, &out, &at), SPEEDS_MAX);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (speeds_read(bad[i], 0, 1e3, false, &out, &at) != -1)
			fail_msg("\"%s\" is taken", bad[i]);
	assert_int_equal(speeds_read("1.5", 0, 1e3, true, &out, &at), -1);
	assert_int_equal(speeds_read("1.5*2", 0, 1e3, true, &out, &at), -1);
	for (int i = 1; i < SPEEDS_ITEMS; i++)
		strcat(many, ",1");
	assert_int_equal(speeds_read(many, 0, 1e3, false, &out, &at), SPEEDS_ITEMS);
	strcat(many, ",1");
	assert_int_equal(speeds_read(many, 0, 1e3, false, &out, &at), -1);
}

/* A list with counts is the list without them. */
static void counts_stand_for_equal_numbers(void **state)
{
	struct job counted = job_of("parallel.tp=2 parallel.pp=2 parallel.dp=0 "
				    "launch.speeds=4*3,1,2*4,0.5"),
		   plain = job_of("parallel.tp=2 parallel.pp=2 parallel.dp=0 "
				  "launch.speeds=4,4,4,1,2,2,2,2,0.5"),
		   threads = job_of("parallel.dp=0 launch.threads=3*2,1*2");
	struct layout l = { .tp = 2, .cp = 1, .dp = 2, .pp = 2, .ep = 1, .chunks = 1 };
	const int numbers[] = { 4, 11, 4 }, counts[] = { 32, 1, 2 };
	char text[JOB_TEXT];
	(void)state;
	assert_int_equal(speeds_devices(&counted), 9);
	for (int r = 0; r < 12; r++)
		assert_true(speeds_rank(&counted, r) == speeds_rank(&plain, r));
	for (int pp = 0; pp < 2; pp++)
		for (int dp = -1; dp < 2; dp++)
			assert_true(speeds_holder(&counted, &l, dp, pp) ==
				    speeds_holder(&plain, &l, dp, pp));
	assert_true(speeds_holder(&counted, &l, 0, 0) == 4);
	assert_true(speeds_holder(&counted, &l, -1, 0) == 1);
	assert_true(speeds_holder(&counted, &l, -1, 1) == 2);
	assert_true(speeds_fastest(&counted) == 4 && speeds_fastest(&threads) == 3);
	assert_int_equal(speeds_devices(&threads), 4);
	assert_int_equal(speeds_threads(&threads, 1), 3);
	assert_int_equal(speeds_threads(&threads, 2), 1);
	assert_true(speeds_write(numbers, counts, 3, text));
	assert_string_equal(text, "4*32,11,4*2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_devices_get_equal_shares),
		cmocka_unit_test(fast_replicas_take_more),
		cmocka_unit_test(the_slowest_replica_is_as_fast_as_can_be),
		cmocka_unit_test(a_replica_is_as_fast_as_its_slowest_device),
		cmocka_unit_test(stages_are_as_fast_as_their_slowest_holder),
		cmocka_unit_test(expert_groups_take_equally_many),
		cmocka_unit_test(threads_are_speeds_where_they_differ),
		cmocka_unit_test(lists_are_numbers_with_commas),
		cmocka_unit_test(counts_stand_for_equal_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
