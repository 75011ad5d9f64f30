/* The table of sbatch's options, and what a job file may add to them. */
#include "plan/spec/job/sbatch.h"

#include "plan/spec/job/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_row_has_a_key_or_a_reason(void **state)
{
	(void)state;
	for (int i = 0; i < job_n_sbatch; i++) {
		const struct job_sbatch *row = &job_sbatch_table[i];
		for (int k = 0; k < i; k++)
			assert_string_not_equal(row->option, job_sbatch_table[k].option);
		if (row->kind == SBATCH_BARRED) {
			assert_non_null(strchr(row->why, ';')); /* cause; remedy */
			continue;
		}
		int key = job_key_at(row->key);
		assert_true(key >= 0);
		enum job_type type = job_keys[key].type;
		if (row->kind == SBATCH_VALUE)
			assert_true(type == JOB_NAME || type == JOB_ATOM || type == JOB_TIME ||
				    type == JOB_LINE);
		if (row->kind == SBATCH_CHOICE)
			assert_int_equal(type, JOB_WORD);
	}
}

/* A key of [slurm] that no row knows would be read and then ignored. */
/* Keys that muster itself obeys. */
static bool is_musters_own(const char *name)
{
	static const char *const own[] = { "spares",           "options", "chain",
					   "progress_comment", "rest",    "rest_token_file",
					   "rest_ca_file" };
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!strcmp(name, own[i]))
			return true;
	return false;
}

static void every_other_key_of_the_section_reaches_sbatch(void **state)
{
	(void)state;
	for (int i = 0; i < job_n_keys; i++)
		if (!strcmp(job_keys[i].section, "slurm") && !is_musters_own(job_keys[i].name))
			assert_non_null(job_sbatch_option(job_keys[i].offset));
	assert_string_equal(job_sbatch_option(offsetof(struct job, slurm.mail_user)), "mail-user");
	assert_null(job_sbatch_option(offsetof(struct job, model.layers)));
}

static void options_that_muster_decides_are_refused_with_the_key_to_use(void **state)
{
	(void)state;
	static const struct {
		const char *word, *says; /* NULL: it is accepted */
	} rows[] = {
		{ "--nice=100", NULL },
		{ "--spread-job", NULL },
		{ "--tmp=20G", NULL },
		{ "--gres-flags=enforce-binding", NULL },
		{ "--mem-per-cpu=2G", NULL },
		{ "--nodes=4", "use [slurm] nodes" },
		{ "--job-name=x", "use [job] name" },
		{ "--mail-user=a@b.org", "use [slurm] mail_user" },
		{ "--no-requeue", "use [slurm] requeue" },
		{ "--signal=B:USR1@60", "use [slurm] signal_before" },
		{ "--no-kill", "[restart] shrink" },
		{ "--output=x", "[job] run_dir" },
		{ "--err=x", "[job] run_dir" }, /* sbatch accepts abbreviations */
		{ "--node", "use [slurm] nodes" },
		{ "--gpus=4", "the same number of GPUs" }, /* not gpus-per-node */
		{ "--array=0-3", "job.name=NAME-$i" },
		{ "--uid=0", "the run folder belongs to you" },
		{ "--wrap=true", "MUSTER_TEMPLATES" },
		{ "hetjob", "does not begin with --" },
		{ ":", "heterogeneous" },
		{ "-N4", "does not begin with --" },
		{ "--", "does not begin with --" },
		{ "--=x", "does not begin with --" },
		{ "--ni$ce", "is not an option of sbatch" },
		{ "--nice=$(id)", "shell character" },
		{ "--nice=`id`", "shell character" },
		{ "--nice=1;id", "shell character" },
		{ "--nice=\"1", "shell character" },
		{ "--nice=1#", "shell character" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf why = BUF_INIT;
		int rc = job_sbatch_check(rows[i].word, strlen(rows[i].word), &why);
		if (rc != (rows[i].says ? -1 : 0) || (rc && !strstr(buf_str(&why), rows[i].says)))
			fail_msg("%s: %s", rows[i].word, buf_str(&why));
		buf_fini(&why);
	}
}

static void words_are_separated_by_blanks(void **state)
{
	(void)state;
	const char *at = "  --a=1\t --b ", *word;
	size_t len;
	assert_true(job_sbatch_word(&at, &word, &len));
	assert_int_equal(len, 5);
	assert_memory_equal(word, "--a=1", 5);
	assert_true(job_sbatch_word(&at, &word, &len));
	assert_memory_equal(word, "--b", 3);
	assert_int_equal(len, 3);
	assert_false(job_sbatch_word(&at, &word, &len));
}

static void an_option_without_a_key_has_its_reason_as_a_hint(void **state)
{
	(void)state;
	static const struct {
		const char *name, *says;
	} rows[] = {
		{ "array", "same run folder" },
		{ "ntasks_per_node", "degrees" },
		{ "ntasks-per-node", "degrees" },
		{ "hetjob", "heterogeneous" },
		{ "mem", NULL },
		{ "nice", NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF_INIT;
		bool hint = job_sbatch_hint(rows[i].name, &out);
		assert_int_equal(hint, rows[i].says != NULL);
		if (hint)
			assert_non_null(strstr(buf_str(&out), rows[i].says));
		buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_has_a_key_or_a_reason),
		cmocka_unit_test(every_other_key_of_the_section_reaches_sbatch),
		cmocka_unit_test(options_that_muster_decides_are_refused_with_the_key_to_use),
		cmocka_unit_test(words_are_separated_by_blanks),
		cmocka_unit_test(an_option_without_a_key_has_its_reason_as_a_hint),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
