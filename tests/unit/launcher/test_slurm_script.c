#include "launcher/slurm/script.h"
#include "launcher/template.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void job_of(const char *const *words, int n, struct job *job)
{
	struct err e = ERR_INIT;
	if (job_load(NULL, words, n, job, &e))
		fail_msg("%s", e.text);
}

static void names_are_replaced_and_other_at_signs_are_kept(void **state)
{
	(void)state;
	const struct template_value values[] = { { "who", "rank 7" },
						 { "empty", "" },
						 { NULL, NULL } };
	struct buf out = BUF_INIT;
	assert_int_equal(launcher_template_render("a@b \"$@\" @who@@empty@! me@site.org @ @who",
						  values, &out, NULL),
			 0);
	assert_string_equal(buf_str(&out), "a@b \"$@\" rank 7! me@site.org @ @who");
	buf_fini(&out);
}

static void an_unknown_name_is_refused(void **state)
{
	(void)state;
	const struct template_value values[] = { { NULL, NULL } };
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	assert_int_equal(launcher_template_render("x @optons@", values, &out, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "@optons@"));
	buf_fini(&out);
}

/* A shell turns a quoted word back into the word. */
static void quoted_words_pass_unchanged_through_the_shell(void **state)
{
	(void)state;
	static const char *const words[] = {
		"plain", "two words", "it's", "'", "$(touch /x) `x` \"y\" \\ ; & | *", "a\nb", ""
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		struct buf command = BUF_INIT;
		char got[200] = "";
		buf_puts(&command, "printf %s ");
		slurm_script_quote(words[i], &command);
		FILE *f = popen(buf_str(&command), "re");
		assert_non_null(f);
		size_t n = fread(got, 1, sizeof got - 1, f);
		got[n] = '\0';
		assert_int_equal(pclose(f), 0);
		assert_string_equal(got, words[i]);
		buf_fini(&command);
	}
}

static void the_size_follows_from_the_degrees(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *words[8];
		int min_nodes, max_nodes, agents, gpus;
	} rows[] = {
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "batch.micro=1", "slurm.nodes=4" }, 4, 4, 2, 0 },
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=1", "slurm.nodes=1" }, 1, 1, 4, 0 },
		/* A tensor-parallel pair stays on one node, so 3 ranks per node become 4. */
		{ { "parallel.tp=2", "parallel.pp=3", "parallel.dp=1", "model.layers=6", "slurm.nodes=2" }, 2, 2, 4, 0 },
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=1", "slurm.nodes=2", "slurm.gpus_per_node=8" }, 2, 2, 8, 8 },
		{ { "parallel.tp=2", "parallel.pp=1", "parallel.dp=0", "job.device=cuda", "slurm.nodes=2" }, 2, 2, 1, 1 },
		/* Spares come in addition to the most nodes. A fixed number comes with all of them. */
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "slurm.nodes=4", "slurm.spares=2" }, 6, 6, 2, 0 },
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "slurm.nodes=3-4", "slurm.spares=1" }, 3, 5, 2, 0 },
		/* The agents fill the most nodes if the layout may change, and otherwise fit on the fewest. */
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "slurm.nodes=2-4", "restart.shrink=dp" }, 2, 4, 2, 0 },
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "slurm.nodes=2-4", "restart.shrink=keep" }, 2, 4, 4, 0 },
		{ { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "slurm.nodes=1-4", "restart.shrink=any" }, 1, 4, 2, 0 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job;
		struct script_size size;
		struct err e = ERR_INIT;
		int n = 0;
		while (n < 8 && rows[i].words[n])
			n++;
		job_of(rows[i].words, n, &job);
		if (slurm_script_size(&job, &size, &e))
			fail_msg("%s", e.text);
		assert_int_equal(size.min_nodes, rows[i].min_nodes);
		assert_int_equal(size.max_nodes, rows[i].max_nodes);
		assert_int_equal(size.agents, rows[i].agents);
		assert_int_equal(size.gpus, rows[i].gpus);
	}
}

static void sizes_that_cannot_hold_the_degrees_are_refused(void **state)
{
	(void)state;
	static const struct {
		struct job_range nodes;
		int gpus;
		enum job_shrink shrink;
		const char *says; /* NULL: not refused */
	} rows[] = {
		{ { 3, 3 }, 4, SHRINK_ANY, "3 nodes with 4 agents each cannot hold the 16 ranks" },
		{ { 3, 4 }, 4, SHRINK_KEEP, "3 nodes with 4 agents each cannot hold the 16 ranks" },
		{ { 1, 4 },
		  4,
		  SHRINK_DP,
		  "1 node with 4 agents each cannot hold the 8 ranks of "
		  "one replica; raise the minimum of nodes" },
		{ { 2, 4 }, 4, SHRINK_DP, NULL },
		{ { 1, 4 }, 4, SHRINK_ANY, NULL },
		{ { INT32_MAX / 4, INT32_MAX / 4 }, 8, SHRINK_ANY, "are too many" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job;
		struct script_size size;
		struct err e = ERR_INIT;
		job_of(NULL, 0, &job);
		job.parallel.tp = 4;
		job.parallel.pp = job.parallel.dp = 2;
		job.slurm.nodes = rows[i].nodes;
		job.slurm.gpus_per_node = rows[i].gpus;
		job.restart.shrink = rows[i].shrink;
		int rc = slurm_script_size(&job, &size, &e);
		assert_int_equal(rc, rows[i].says ? -1 : 0);
		if (rc)
			assert_int_equal(e.code, ERR_NOFIT);
		if (rc && !strstr(e.text, rows[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, rows[i].says);
	}
}

/* The script of a job that these words describe. */
static void script_of(const char *const *words, int n, struct buf *out)
{
	struct job job;
	struct script_size size;
	job_of(words, n, &job);
	assert_int_equal(slurm_script_size(&job, &size, NULL), 0);
	assert_int_equal(slurm_script_options(&job, &size, "/run", out, NULL), 0);
	buf_puts(out, "\n");
}

static void slurm_ends_a_job_only_if_it_cannot_go_on_without_a_node(void **state)
{
	(void)state;
	static const struct {
		const char *words[4];
		const char *nodes;
		bool no_kill;
	} rows[] = {
		{ { "slurm.nodes=3-4" }, "#SBATCH --nodes=3-4\n", true },
		{ { "slurm.nodes=4" }, "#SBATCH --nodes=4\n", true },
		{ { "slurm.nodes=1" }, "#SBATCH --nodes=1\n", false },
		{ { "slurm.nodes=4", "restart.shrink=dp" }, "#SBATCH --nodes=4\n", true },
		{ { "slurm.nodes=4", "restart.shrink=keep" }, "#SBATCH --nodes=4\n", false },
		{ { "slurm.nodes=3-4", "restart.shrink=keep" }, "#SBATCH --nodes=3-4\n", false },
		{ { "slurm.nodes=4", "restart.shrink=keep", "slurm.spares=1" },
		  "#SBATCH --nodes=5\n",
		  true },
		{ { "slurm.nodes=3-4", "slurm.spares=2" }, "#SBATCH --nodes=3-6\n", true },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF_INIT;
		int n = 0;
		while (n < 4 && rows[i].words[n])
			n++;
		script_of(rows[i].words, n, &out);
		assert_non_null(strstr(buf_str(&out), rows[i].nodes));
		assert_non_null(strstr(buf_str(&out), "#SBATCH --requeue\n"));
		assert_non_null(strstr(buf_str(&out), "#SBATCH --open-mode=append\n"));
		assert_int_equal(strstr(buf_str(&out), "#SBATCH --no-kill\n") != NULL,
				 rows[i].no_kill);
		buf_fini(&out);
	}
}

static void options_contain_the_values_of_the_job(void **state)
{
	(void)state;
	const char *words[] = { "job.name=try",       "slurm.nodes=4",
				"slurm.time=1:30:00", "slurm.partition=gpu",
				"slurm.account=lab",  "slurm.signal_before=90",
				"slurm.requeue=no",   "slurm.cpus_per_task=6" };
	struct job job;
	struct script_size size;
	struct buf out = BUF_INIT;
	job_of(words, 8, &job);
	assert_int_equal(slurm_script_size(&job, &size, NULL), 0);
	assert_int_equal(slurm_script_options(&job, &size, "/run/50% done/try", &out, NULL), 0);
	static const char *const lines[] = {
		"#SBATCH --nodes=4\n",
		"#SBATCH --ntasks-per-node=1\n",
		"#SBATCH --cpus-per-task=6\n",
		"#SBATCH --job-name=\"try\"\n",
		"#SBATCH --time=\"1:30:00\"\n",
		"#SBATCH --partition=\"gpu\"\n",
		"#SBATCH --account=\"lab\"\n",
		"#SBATCH --signal=B:TERM@90\n",
		"#SBATCH --no-requeue\n",
		"#SBATCH --no-kill\n",
		"#SBATCH --output=\"/run/50%% done/try/logs/slurm-%j.out\"\n",
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (!strstr(buf_str(&out), lines[i]))
			fail_msg("no line %s in\n%s", lines[i], buf_str(&out));
	assert_null(strstr(buf_str(&out), "--qos"));
	assert_null(strstr(buf_str(&out), "--gpus"));
	buf_fini(&out);
}

/* The lines of the options that sites need; words without a line add none. */
static void keys_of_sites_become_options(void **state)
{
	(void)state;
	static const struct {
		const char *word, *line;
	} rows[] = {
		{ "slurm.mem=200G", "#SBATCH --mem=\"200G\"\n" },
		{ "slurm.exclusive=yes", "#SBATCH --exclusive\n" },
		{ "slurm.exclusive=user", "#SBATCH --exclusive=\"user\"\n" },
		{ "slurm.exclusive=no", NULL },
		{ "slurm.exclude=n[7,9]", "#SBATCH --exclude=\"n[7,9]\"\n" },
		{ "slurm.nodelist=n[1-4]", "#SBATCH --nodelist=\"n[1-4]\"\n" },
		{ "slurm.dependency=afterok:12?singleton",
		  "#SBATCH --dependency=\"afterok:12?singleton\"\n" },
		{ "slurm.mail_user=a@b.org", "#SBATCH --mail-user=\"a@b.org\"\n" },
		{ "slurm.mail_type=END,FAIL", "#SBATCH --mail-type=\"END,FAIL\"\n" },
		{ "slurm.switches=1@2:00:00", "#SBATCH --switches=\"1@2:00:00\"\n" },
		{ "slurm.comment=run of a # b", NULL }, /* refused when the job is read */
		{ "slurm.comment=run of group b", "#SBATCH --comment=\"run of group b\"\n" },
		{ "slurm.licenses=x@db:4", "#SBATCH --licenses=\"x@db:4\"\n" },
		{ "slurm.gres=nic:2,gpu:h100:4",
		  "#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=1\n"
		  "#SBATCH --gres=\"nic:2,gpu:h100:4\"\n" },
		{ "slurm.options=--nice=5 --spread-job --tmp=1G",
		  "#SBATCH --nice=\"5\"\n#SBATCH --spread-job\n#SBATCH --tmp=\"1G\"\n" },
		{ "slurm.options=", NULL },
	};
	struct buf plain = BUF_INIT;
	script_of(NULL, 0, &plain);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF_INIT;
		struct job job;
		if (job_load(NULL, (const char *const[]){ rows[i].word }, 1, &job, NULL)) {
			assert_null(rows[i].line);
			continue;
		}
		script_of((const char *const[]){ rows[i].word }, 1, &out);
		if (rows[i].line && !strstr(buf_str(&out), rows[i].line))
			fail_msg("no line %s in\n%s", rows[i].line, buf_str(&out));
		if (!rows[i].line)
			assert_string_equal(buf_str(&out), buf_str(&plain));
		buf_fini(&out);
	}
	buf_fini(&plain);
}

static void values_that_could_leave_their_line_are_refused(void **state)
{
	(void)state;
	static const char *const values[] = {
		"gpu\n#SBATCH --uid=0", "a\"b", "a'b", "a\\", "$HOME", "`x`", "a\rb", "\x7f"
	};
	const struct script_size size = { .min_nodes = 1, .max_nodes = 1, .agents = 1, .cpus = 1 };
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct job job;
		struct buf out = BUF_INIT;
		struct err e = ERR_INIT;
		job_of(NULL, 0, &job);
		strcpy(job.slurm.partition, values[i]);
		assert_int_equal(slurm_script_options(&job, &size, "/run", &out, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, "partition"));
		job.slurm.partition[0] = '\0';
		snprintf(job.slurm.options, sizeof job.slurm.options, "--nice=%s", values[i]);
		assert_int_equal(slurm_script_options(&job, &size, "/run", &out, &e), -1);
		assert_non_null(strstr(e.text, "options"));
		job.slurm.options[0] = '\0';
		assert_int_equal(slurm_script_options(&job, &size, values[i], &out, &e), -1);
		buf_fini(&out);
	}
}

static void a_template_is_read_from_the_named_folder(void **state)
{
	(void)state;
	char folder[64], path[96];
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	assert_non_null(tmpdir_make(folder, sizeof folder));
	setenv("MUSTER_TEMPLATES", folder, 1);
	assert_int_equal(launcher_template_read("sbatch.in", &out, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, folder));
	snprintf(path, sizeof path, "%s/sbatch.in", folder);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	fputs("mine", f);
	fclose(f);
	assert_int_equal(launcher_template_read("sbatch.in", &out, NULL), 0);
	assert_string_equal(buf_str(&out), "mine");
	buf_fini(&out);
	unlink(path);
	rmdir(folder);
	unsetenv("MUSTER_TEMPLATES");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_replaced_and_other_at_signs_are_kept),
		cmocka_unit_test(an_unknown_name_is_refused),
		cmocka_unit_test(quoted_words_pass_unchanged_through_the_shell),
		cmocka_unit_test(the_size_follows_from_the_degrees),
		cmocka_unit_test(sizes_that_cannot_hold_the_degrees_are_refused),
		cmocka_unit_test(slurm_ends_a_job_only_if_it_cannot_go_on_without_a_node),
		cmocka_unit_test(options_contain_the_values_of_the_job),
		cmocka_unit_test(keys_of_sites_become_options),
		cmocka_unit_test(values_that_could_leave_their_line_are_refused),
		cmocka_unit_test(a_template_is_read_from_the_named_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
