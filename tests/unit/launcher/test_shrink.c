/* The layouts that a job may have instead of its own. */
#include "launcher/shrink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct cluster machines;
static struct job job, asked;
static bool by_planner; /* whether the planner has chosen launch.speeds */
static struct shrink_candidate examined[SHRINK_WAYS], *fastest;

/* Examines what tp 8 × dp 4 can become on this many nodes of 8 GPUs. */
static int shrink(int nodes, const char *word, int64_t dp_least)
{
	const char *words[] = { "model.layers=8",
				"model.hidden=1024",
				"model.heads=8",
				"model.vocab=256",
				"model.seq=1024",
				"batch.global=48",
				"batch.micro=1",
				"job.device=cuda",
				"parallel.tp=8",
				"parallel.dp=4",
				word };
	char spec[32];
	struct err e = ERR_INIT;
	snprintf(spec, sizeof spec, "dgx-h100:%d", nodes);
	if (topo_cluster_open(spec, 0, &machines, &e) || job_words(words, 11, &job, &e))
		fail_msg("%s", e.text);
	asked = job;
	if (by_planner)
		memset(asked.launch.speeds, 0, sizeof asked.launch.speeds);
	const struct shrink_request r = {
		.job = &job,
		.dp_most = 3,
		.dp_least = dp_least,
		.again = &job,
		.cluster = &machines,
		.permitted = job.restart.shrink,
		.asked = &asked,
	};
	return launcher_shrink(&r, examined, &fastest);
}

static int free_all(void **state)
{
	(void)state;
	if (fastest)
		launcher_deployment_free(fastest->deployment);
	fastest = NULL;
	topo_cluster_free(&machines);
	return 0;
}

static void the_fastest_permitted_layout_is_taken(void **state)
{
	(void)state;
	assert_int_equal(shrink(3, "restart.shrink=any", 1), 2);
	assert_int_equal(examined[0].way, SHRINK_WAY_DP);
	assert_int_equal(examined[1].way, SHRINK_WAY_REPLAN);
	assert_non_null(strstr(examined[0].text, "dp 3"));
	assert_non_null(strstr(examined[0].text, "on 24 of 24 devices"));
	assert_non_null(fastest);
	for (int i = 0; i < 2; i++) {
		assert_true(examined[i].step_s >= fastest->step_s);
		assert_true(!examined[i].deployment == (&examined[i] != fastest));
	}
	assert_true(fastest->deployment->plan.time.total == fastest->step_s);
	assert_int_equal(fastest->deployment->job.batch.global, 48);
}

static void only_what_is_permitted_is_examined(void **state)
{
	(void)state;
	assert_int_equal(shrink(3, "restart.shrink=dp", 1), 1);
	assert_ptr_equal(fastest, &examined[0]);
	assert_int_equal(fastest->deployment->plan.layout.dp, 3);
	free_all(NULL);
	assert_int_equal(shrink(3, "restart.shrink=keep", 1), 0);
	assert_null(fastest);
}

static void an_impossible_layout_has_its_reason(void **state)
{
	(void)state;
	assert_int_equal(shrink(2, "restart.shrink=dp", 3), 1);
	assert_null(fastest);
	assert_string_equal(examined[0].text, "the devices that are left hold no replica");
	assert_true(examined[0].step_s == 0);
}

static void a_job_that_names_its_devices_has_no_other_layout(void **state)
{
	(void)state;
	char word[128] = "launch.speeds=1";
	for (int i = 1; i < 32; i++)
		strcat(word, ",1");
	assert_int_equal(shrink(3, word, 1), 2);
	assert_null(fastest);
	for (int i = 0; i < 2; i++)
		assert_non_null(strstr(examined[i].text, "names the device of each rank"));
}

static void speeds_of_an_earlier_plan_do_not_bind(void **state)
{
	(void)state;
	char word[128] = "launch.speeds=1";
	for (int i = 1; i < 32; i++)
		strcat(word, ",1");
	by_planner = true;
	int n = shrink(3, word, 1);
	by_planner = false;
	assert_int_equal(n, 2);
	assert_non_null(fastest);
	assert_string_equal(fastest->deployment->job.launch.speeds, "");
	assert_true(examined[0].step_s > 0 && examined[1].step_s > 0);
}

#define T(f) cmocka_unit_test_teardown(f, free_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_fastest_permitted_layout_is_taken),
		T(only_what_is_permitted_is_examined),
		T(an_impossible_layout_has_its_reason),
		T(a_job_that_names_its_devices_has_no_other_layout),
		T(speeds_of_an_earlier_plan_do_not_bind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
