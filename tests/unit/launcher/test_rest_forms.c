/* rest: what is sent for a batch script, and what answers mean, in each version of the interface. */
#include "launcher/slurm/rest/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKEN "a.b.c2VjcmV0"

/* --- Numbers --- */

static void test_numbers(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t number; /* -1: none */
	} cases[] = {
		{ "{\"a\": 5}", 5 },
		{ "{\"a\": {\"set\": true, \"infinite\": false, \"number\": 5}}", 5 },
		{ "{\"a\": {\"set\": false, \"infinite\": false, \"number\": 5}}", -1 },
		{ "{\"a\": {\"set\": true, \"infinite\": true, \"number\": 5}}", -1 },
		{ "{\"a\": {\"number\": 5}}", -1 },
		{ "{\"a\": -5}", -1 },
		{ "{\"a\": 1e300}", -1 },
		{ "{\"a\": \"5\"}", -1 },
		{ "{\"a\": null}", -1 },
		{ "{}", -1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		json_t *o = json_loads(cases[i].text, 0, NULL);
		int64_t n = -1;
		assert_int_equal(slurm_rest_number(o, "a", &n), cases[i].number >= 0);
		assert_int_equal(n, cases[i].number);
		json_decref(o);
	}
}

/* --- Descriptions --- */

static const char script[] = "#!/bin/bash\n# a comment\n"
			     "#SBATCH --job-name=\"try one\"\n#SBATCH --nodes=2\n"
			     "#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=2\n"
			     "#SBATCH --gpus-per-node=4\n#SBATCH --gres=\"nic:1,shard:2\"\n"
			     "#SBATCH --mem=\"2G\"\n#SBATCH --exclusive\n"
			     "#SBATCH --time=\"1:00:30\"\n#SBATCH --nodelist=\"n[1-2,4]\"\n"
			     "#SBATCH --exclude=\"n3\"\n#SBATCH --mail-type=\"ALL,TIME_LIMIT_90\"\n"
			     "#SBATCH --signal=B:TERM@120\n#SBATCH --no-requeue\n"
			     "#SBATCH --dependency=\"afterok:3\"\n#SBATCH --nice=\"5\"\n"
			     "#SBATCH --no-kill\n#SBATCH --output=\"/runs/try/slurm-%j.out\"\n"
			     "#SBATCH --open-mode=append\n"
			     "umask 077\n#SBATCH --bogus\n";
static char *environment[] = { (char *)(uintptr_t) "PATH=/bin",
			       (char *)(uintptr_t) "SLURM_JWT=" TOKEN,
			       (char *)(uintptr_t) "SLURM_SUBMIT_DIR=/other", NULL };

static json_t *describe(const char *text, int version, const char *dependency, struct buf *notes,
			struct err *e)
{
	const struct rest_script s = { .text = text,
				       .dependency = dependency,
				       .cwd = "/home/ana",
				       .environment = environment,
				       .version = version };
	return slurm_rest_describe(&s, notes, e);
}

static void expect_description(int version, const char *dependency, const char *expected,
			       const char *note)
{
	struct err e = ERR_INIT;
	struct buf notes = BUF_INIT;
	json_error_t at;
	char host[256] = "";
	json_t *body = describe(script, version, dependency, &notes, &e);
	if (!body)
		fail_msg("%s", e.text);
	assert_string_equal(slurm_rest_text(body, "script"), script);
	json_t *job = json_object_get(body, "job"), *wanted = json_loads(expected, 0, &at);
	if (!wanted)
		fail_msg("line %d: %s", at.line, at.text);
	gethostname(host, sizeof host - 1);
	json_t *env = json_object_get(wanted, "environment");
	if (json_is_object(env)) {
		json_object_set_new(env, "SLURM_SUBMIT_HOST", json_string(host));
	} else {
		json_t *word = json_sprintf("SLURM_SUBMIT_HOST=%s", host);
		json_array_insert_new(env, 2, word);
	}
	if (!json_equal(job, wanted)) {
		char *got = json_dumps(job, JSON_SORT_KEYS | JSON_INDENT(1));
		char *want = json_dumps(wanted, JSON_SORT_KEYS | JSON_INDENT(1));
		fail_msg("v0.0.%d: got %s\nwanted %s", version, got, want);
	}
	if (note)
		assert_non_null(strstr(buf_str(&notes), note));
	else
		assert_string_equal(buf_str(&notes), "");
	buf_fini(&notes);
	json_decref(wanted);
	json_decref(body);
}

static void test_descriptions(void **state)
{
	(void)state;
	expect_description(
		38, NULL,
		"{\"name\": \"try one\", \"nodes\": \"2\", \"tasks_per_node\": 4, \"tasks\": 8, "
		"\"cpus_per_task\": 2, \"gpus_per_node\": \"4\", \"gres\": \"nic:1,shard:2\", "
		"\"memory_per_node\": \"2G\", \"exclusive\": \"exclusive\", \"time_limit\": 61, "
		"\"nodelist\": \"n[1-2,4]\", \"exclude_nodes\": \"n3\", \"mail_type\": "
		"\"ALL,TIME_LIMIT_90\", "
		"\"no_requeue\": true, \"dependency\": \"afterok:3\", \"nice\": 5, \"no_kill\": "
		"\"set\", "
		"\"standard_output\": \"/runs/try/slurm-%j.out\", \"open_mode\": \"append\", "
		"\"current_working_directory\": \"/home/ana\", \"environment\": {\"PATH\": "
		"\"/bin\", "
		"\"SLURM_SUBMIT_DIR\": \"/home/ana\", \"SLURM_JOB_NAME\": \"try one\", "
		"\"SLURM_UMASK\": \"0077\", \"SLURM_NTASKS_PER_NODE\": \"4\", "
		"\"SLURM_CPUS_PER_TASK\": \"2\"}}",
		"--signal=B:TERM@120 is left out");
#define NEW(gres, dependency) \
	"{\"name\": \"try one\", \"minimum_nodes\": 2, \"maximum_nodes\": 2, \"tasks_per_node\": " \
	"4, " \
	"\"tasks\": 8, \"cpus_per_task\": 2, \"tres_per_node\": \"" gres "\", " \
	"\"memory_per_node\": {\"set\": true, \"infinite\": false, \"number\": 2048}, " \
	"\"shared\": [\"none\"], \"time_limit\": {\"set\": true, \"infinite\": false, " \
	"\"number\": 61}, " \
	"\"required_nodes\": [\"n[1-2,4]\"], \"excluded_nodes\": [\"n3\"], \"mail_type\": " \
	"[\"BEGIN\", " \
	"\"END\", \"FAIL\", \"INVALID_DEPENDENCY\", \"REQUEUE\", \"STAGE_OUT\", \"TIME=90%\"], " \
	"\"kill_warning_signal\": \"TERM\", \"kill_warning_delay\": {\"set\": true, " \
	"\"infinite\": " \
	"false, \"number\": 120}, \"kill_warning_flags\": [\"BATCH_JOB\"], \"requeue\": false, " \
	"\"dependency\": \"" dependency "\", \"nice\": 5, \"kill_on_node_fail\": false, " \
	"\"standard_output\": \"/runs/try/slurm-%j.out\", \"open_mode\": [\"APPEND\"], " \
	"\"current_working_directory\": \"/home/ana\", \"environment\": [\"PATH=/bin\", " \
	"\"SLURM_SUBMIT_DIR=/home/ana\", \"SLURM_JOB_NAME=try one\", \"SLURM_UMASK=0077\", " \
	"\"SLURM_NTASKS_PER_NODE=4\", \"SLURM_CPUS_PER_TASK=2\"]}"
	expect_description(39, NULL, NEW("gres:gpu:4,gres:nic:1,gres:shard:2", "afterok:3"), NULL);
	expect_description(45, "singleton", NEW("gres/gpu:4,gres/nic:1,gres/shard:2", "singleton"),
			   NULL);
#undef NEW
}

static void test_options_that_cannot_be_described(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		int version;
		const char *text; /* NULL: it can */
	} cases[] = {
		{ "--spread-job", 41, "has nothing like it" },
		{ "--switches=1@60", 38, "has nothing like it" },
		{ "--switches=1@60", 41, NULL },
		{ "--bogus=1", 38, "has nothing like it" },
		{ "-N 4", 41, "write every option as --NAME=VALUE" },
		{ "--time", 41, "has no value" },
		{ "--time=soon", 41, "cannot take this value" },
		{ "--mem=lots", 41, "cannot take this value" },
		{ "--nodes=4-2", 38, "cannot take this value" },
		{ "--mail-type=NOW", 41, "cannot take this value" },
		{ "--signal=B:TERM@x", 41, "cannot take this value" },
		{ "--nodes=2 --hold # why", 41, NULL },
		{ "--comment=\"never closed --hold", 41, "or an open quote" },
		{ "--comment=\"\xff\"", 41, "cannot take this value" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[200];
		struct err e = ERR_INIT;
		struct buf notes = BUF_INIT;
		snprintf(text, sizeof text, "#!/bin/bash\n#SBATCH %s\ntrue\n", cases[i].line);
		json_t *body = describe(text, cases[i].version, NULL, &notes, &e);
		if ((body != NULL) != (cases[i].text == NULL))
			fail_msg("%s: %s", cases[i].line, e.text);
		if (!body && !strstr(e.text, cases[i].text))
			fail_msg("%s: %s", cases[i].line, e.text);
		json_decref(body);
		buf_fini(&notes);
	}
}

/* --- The cluster --- */

static void expect_site(const char *partitions, const char *nodes, bool default_unknown)
{
	struct site s;
	struct err e = ERR_INIT;
	json_t *p = json_loads(partitions, 0, NULL), *n = json_loads(nodes, 0, NULL);
	if (slurm_rest_read_site(p, n, &s, &e))
		fail_msg("%s", e.text);
	assert_int_equal(s.n_partitions, 1);
	assert_string_equal(s.partitions[0].name, "main");
	assert_string_equal(s.partitions[0].state, "UP");
	assert_string_equal(s.partitions[0].allow_accounts, "lab");
	assert_int_equal(s.partitions[0].total, 3);
	assert_int_equal(s.partitions[0].max_nodes, 2);
	assert_int_equal(s.partitions[0].max_time, 3600);
	assert_int_equal(s.partitions[0].max_cpus, 0);
	assert_int_equal(s.default_unknown, default_unknown);
	assert_int_equal(s.n_nodes, 2);
	assert_int_equal(s.nodes[0].count, 2);
	assert_int_equal(s.nodes[0].gpus, 4);
	assert_false(s.nodes[0].down);
	assert_int_equal(s.nodes[0].names.n, 2);
	assert_string_equal(s.nodes[0].names.names[1], "n3");
	assert_string_equal(s.nodes[0].features, "h100,ib");
	assert_true(s.nodes[1].down);
	slurm_site_free(&s);
	json_decref(p);
	json_decref(n);
}

static void test_sites_of_each_form(void **state)
{
	(void)state;
#define NODE(name, state, features) \
	"{\"name\": \"" name "\", \"state\": " state \
	", \"cpus\": 8, \"real_memory\": 1000, \"gres\": " \
	"\"gpu:h100:4\", \"features\": " features ", \"partitions\": [\"main\"]}"
	expect_site(
		"{\"partitions\": [{\"name\": \"main\", \"flags\": [\"default\"], \"state\": "
		"\"UP\", "
		"\"allowed_accounts\": \"lab\", \"total_nodes\": 3, \"maximum_nodes_per_job\": 2, "
		"\"max_time_limit\": 60, \"maximum_cpus_per_node\": -1}]}",
		"{\"nodes\": [" NODE("n1", "\"idle\"", "\"h100,ib\"") "," NODE(
			"n2", "\"down\"", "\"h100,ib\"") "," NODE("n3", "\"idle\"",
								  "\"h100,ib\"") "]}",
		false);
	expect_site(
		"{\"partitions\": [{\"name\": \"main\", \"partition\": {\"state\": [\"UP\"]}, "
		"\"accounts\": {\"allowed\": \"lab\"}, \"nodes\": {\"total\": 3}, \"maximums\": "
		"{\"nodes\": "
		"{\"set\": true, \"infinite\": false, \"number\": 2}, \"time\": {\"set\": true, "
		"\"infinite\": "
		"false, \"number\": 60}, \"cpus_per_node\": {\"set\": true, \"infinite\": true, "
		"\"number\": 0}}}]}",
		"{\"nodes\": [" NODE("n1", "[\"IDLE\"]", "[\"h100\", \"ib\"]") "," NODE(
			"n2", "[\"IDLE\", \"DRAIN\"]",
			"[\"h100\", \"ib\"]") "," NODE("n3", "[\"MIXED\"]",
						       "[\"h100\", \"ib\"]") "]}",
		true);
#undef NODE
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_descriptions),
		cmocka_unit_test(test_options_that_cannot_be_described),
		cmocka_unit_test(test_sites_of_each_form),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
