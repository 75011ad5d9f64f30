/* Tests what `muster simulate` takes from a job: costs, rules and other launchers; and the lists of faults. */
#include "launcher/goodput/launchers.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* --- The job ------------------------------------------------------------------------------------ */

/* llama-70b.ini with this word. */
static void setup_of(const char *word, struct goodput_setup *out)
{
	static struct job job;
	static const struct goodput_faults none;
	struct cluster c;
	struct deployment *d;
	struct err e = ERR_INIT;
	if (job_load("templates/jobs/llama-70b.ini", &word, 1, &job, &e) ||
	    topo_cluster_open("dgx-h100:8", 0, &c, &e) ||
	    launcher_deployment_build(&job, job.parallel.dp, 0, &c, &d, &e))
		fail_msg("%s: %s", word, e.text);
	goodput_setup_of(d, &none, out);
	launcher_deployment_free(d);
}

/* The setup of the job with the word has this value. */
#define HAS(word, member, value) \
	do { \
		struct goodput_setup s_; \
		setup_of(word, &s_); \
		if (fabs((double)s_.member - (value)) > 1e-9 && (double)s_.member != (value)) \
			fail_msg("%s: " #member " is %g, not %g", word, (double)s_.member, \
				 (double)(value)); \
	} while (0)

static void costs_and_rules_are_those_of_the_job(void **state)
{
	(void)state;
	struct goodput_setup s;
	setup_of("job.steps=5000", &s);
	assert_int_equal(s.nodes, 8);
	assert_int_equal(s.replicas, 2);
	assert_int_equal(s.steps, 5000);
	assert_true(s.costs.step > 1 && s.costs.write > 10 && s.costs.snapshot > 0.01);
	assert_float_equal(s.costs.recall, s.costs.copy + s.costs.snapshot, 1e-9);
	assert_true(s.costs.copy > 0 && s.costs.copy < 10 && s.costs.end > 0);
	HAS("restart.silent_timeout=20", costs.silent, 20);
	HAS("restart.hang_floor=40", costs.hang, 45);
	HAS("restart.hang_timeout=30", costs.hang, 35);
	HAS("restart.hang_timeout=0", costs.hang, INFINITY);
	HAS("restart.stacks_timeout=0", costs.hang, 60);
	HAS("restart.respawn=70", costs.respawn, 70);
	HAS("health.compare_every=10", costs.numbers, 10 * s.costs.step / 2);
	HAS("health.compare_every=0", costs.numbers, 500 * s.costs.step / 2);
	HAS("health.compare_every=-1", costs.numbers, INFINITY);
	HAS("health.slow_window=1000", costs.slow, 3000 + s.costs.snapshot + s.costs.write);
	HAS("health.slow_factor=1.25", rules.finds, 1.25);
	HAS("health.slow_factor=0", rules.finds, INFINITY);
	HAS("health.slow_policy=warn", rules.leaves_slow, false);
	HAS("health.slow_policy=exclude", rules.leaves_slow, true);
	HAS("restart.shrink=dp", rules.shrinks, true);
	HAS("restart.shrink=keep", rules.shrinks, false);
	HAS("restart.regrow=yes", rules.regrows, true);
	HAS("restart.regrow=no", rules.regrows, false);
	HAS("slurm.requeue=no", rules.requeues, false);
	HAS("restart.patience=5", rules.patience, 5);
	HAS("restart.max_restarts=7", rules.restarts, 7);
	HAS("restart.max_futile=5", rules.futile, 5);
	HAS("restart.backoff=4", rules.backoff, 4);
	HAS("restart.exclude_after=0", rules.exclude_after, 0);
	HAS("restart.exclude_after=3", rules.exclude_after, 3);
	HAS("restart.warm=no", rules.warm, false);
	HAS("restart.warm=no", rules.copy_every, 0);
	HAS("checkpoint.every=33", rules.every, 33);
	HAS("checkpoint.memory_every=12", rules.copy_every, 12);
	HAS("checkpoint.memory_every=0", rules.copy_every, 0);
	HAS("checkpoint.copies=0", rules.copy_every, 0);
	HAS("slurm.spares=3", spares, 3);
	/* As often as it costs less than a hundredth, and as it is worth it. */
	HAS("restart.node_mtbf=0.1", rules.copy_every,
	    ceil(s.costs.snapshot / 0.01 / s.costs.step));
	HAS("restart.node_mtbf=8000", rules.copy_every,
	    ceil(sqrt(2 * s.costs.snapshot * 3600 * 1000) / s.costs.step));
}

/* What others lack, and what they need more time for. */
static void others_see_and_start_as_they_are_documented(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	for (int i = 1; i < GOODPUT_LAUNCHERS; i++) {
		const struct goodput_setup ours = make_setup(&none);
		struct goodput_setup s = ours;
		goodput_launch_by(i, &s);
		assert_true(s.costs.hang > ours.costs.hang && s.costs.silent > ours.costs.silent);
		assert_true(s.costs.start >= 45);
		assert_false(s.rules.leaves_slow || s.rules.shrinks);
		assert_true(!s.rules.futile && !s.rules.exclude_after);
		assert_true(s.rules.keeps == (s.rules.copy_every > 0));
		assert_true(s.costs.step == ours.costs.step &&
			    s.costs.respawn == ours.costs.respawn &&
			    s.costs.person == ours.costs.person && s.spares == ours.spares &&
			    s.rules.patience == ours.rules.patience);
	}
}

/* --- Lists of faults ---------------------------------------------------------------------------- */

static void llama3_has_the_numbers_of_its_paper(void **state)
{
	(void)state;
	struct goodput_faults f, rsc;
	double unplanned = 0;
	assert_int_equal(goodput_faults_open("llama3", &f, NULL), 0);
	for (int i = 0; i < f.n; i++)
		unplanned += f.of[i].shows == SHOWS_PLANNED ? 0 : f.of[i].rate;
	assert_float_equal(unplanned * 54 * day * 2048, 419, 1e-6);
	assert_float_equal(goodput_faults_rate(&f) * 54 * day * 2048, 466, 1e-6);
	assert_int_equal(goodput_faults_open("rsc1", &rsc, NULL), 0);
	assert_float_equal(goodput_faults_rate(&rsc) * day * 1000 * 419 / 466, 6.5, 1e-6);
}

/* As launcher/supervise/faults.c does: not for an error of a process, unless it needs a repair. */
static void a_list_blames_nodes_as_the_supervisor_does(void **state)
{
	(void)state;
	static const struct {
		const char *shows, *out, *more;
		bool blames;
	} cases[] = {
		{ "closed", "0", "", false },
		{ "closed", "1", "", true },
		{ "silent", "0", "", true },
		{ "hang", "0", "", true },
		{ "numbers", "0", "", true },
		{ "slow", "1", "", false },
		{ "planned", "0", "", false },
		{ "closed", "0", ", \"blames_node\": true", true },
		{ "hang", "0", ", \"blames_node\": false", false },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct goodput_faults f;
		char text[256];
		snprintf(text, sizeof text,
			 "{\"faults\": [{\"name\": \"a\", \"per_node_year\": 1, \"shows\": \"%s\", "
			 "\"node_out_h\": %s%s}]}",
			 cases[i].shows, cases[i].out, cases[i].more);
		assert_int_equal(goodput_faults_parse(text, strlen(text), "ours", &f, NULL), 0);
		assert_int_equal(f.of[0].blames, cases[i].blames);
	}
}

static void a_list_is_what_it_was_after_a_file(void **state)
{
	(void)state;
	struct goodput_faults f, again;
	char folder[256], path[300];
	assert_int_equal(goodput_faults_open("rsc2", &f, NULL), 0);
	json_t *doc = goodput_faults_json(&f);
	assert_non_null(tmpdir_make(folder, sizeof folder));
	snprintf(path, sizeof path, "%s/faults.json", folder);
	assert_int_equal(json_dump_file(doc, path, 0), 0);
	json_decref(doc);
	assert_int_equal(goodput_faults_open(path, &again, NULL), 0);
	assert_int_equal(again.n, f.n);
	assert_string_equal(again.name, "rsc2");
	for (int i = 0; i < f.n; i++) {
		assert_string_equal(again.of[i].name, f.of[i].name);
		assert_int_equal(again.of[i].shows, f.of[i].shows);
		assert_float_equal(again.of[i].rate / f.of[i].rate, 1, 1e-9);
		assert_float_equal(again.of[i].node_out, f.of[i].node_out, 1e-6);
		assert_int_equal(again.of[i].blames, f.of[i].blames);
	}
	remove(path);
	remove(folder);
}

static void a_list_that_is_wrong_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "[", "" },
		{ "{}", "must be a list of 1 to 64 faults" },
		{ "{\"faults\": []}", "must be a list of 1 to 64 faults" },
		{ "{\"faults\": [{\"name\": \"a\"}]}", "ours: fault 1: a fault" },
		{ "{\"faults\": [{\"name\": \"a\", \"per_node_year\": -1, \"shows\": \"hang\", "
		  "\"node_out_h\": 0}]}",
		  "per_node_year must be 0 to 1e9" },
		{ "{\"faults\": [{\"name\": \"a\", \"per_node_year\": 1, \"shows\": \"fire\", "
		  "\"node_out_h\": 0}]}",
		  "shows is \"fire\"; it must be closed" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct goodput_faults f;
		struct err e = ERR_INIT;
		assert_int_equal(goodput_faults_parse(cases[i].text, strlen(cases[i].text), "ours",
						      &f, &e),
				 -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_int_equal(strncmp(e.text, "ours: ", 6), 0);
		assert_non_null(strstr(e.text, cases[i].why));
	}
}

static void costs_are_set_by_their_names(void **state)
{
	(void)state;
	static const char *const wrong[] = { "hang", "hang=",   "hang=x", "hang=-1",
					     "=3",   "hangs=3", "step=0" };
	struct goodput_costs c = { .step = 2 };
	struct err e = ERR_INIT;
	assert_int_equal(goodput_costs_set(&c, "hang=12.5", &e), 0);
	assert_float_equal(c.hang, 12.5, 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(goodput_costs_set(&c, wrong[i], &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_and_rules_are_those_of_the_job),
		cmocka_unit_test(others_see_and_start_as_they_are_documented),
		cmocka_unit_test(llama3_has_the_numbers_of_its_paper),
		cmocka_unit_test(a_list_blames_nodes_as_the_supervisor_does),
		cmocka_unit_test(a_list_is_what_it_was_after_a_file),
		cmocka_unit_test(a_list_that_is_wrong_is_refused),
		cmocka_unit_test(costs_are_set_by_their_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
