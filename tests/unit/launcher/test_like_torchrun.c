/* Tests job files out of command lines of torchrun: each option, the program, and what is refused. */
#include "launcher/cli/like_torchrun.h"
#include "launcher/cli/torchrun_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16 };

static int translate(const char *const *words, struct buf *job, struct buf *notes, struct err *e)
{
	return command_torchrun_job((char *const *)(uintptr_t)words, job, notes, e);
}

static void a_whole_command_line_becomes_a_job_file(void **state)
{
	static const char *const words[] = { "/venv/bin/torchrun",
					     "--nnodes=2",
					     "--nproc_per_node",
					     "8",
					     "--rdzv-backend=c10d",
					     "--rdzv-endpoint",
					     "n1:29400",
					     "--max-restarts=3",
					     "-t3",
					     "train.py",
					     "--nnodes=7",
					     "it's",
					     NULL };
	static const char want[] =
		"# Made from this command line of torchrun:\n"
		"#   /venv/bin/torchrun --nnodes=2 --nproc_per_node 8 --rdzv-backend=c10d "
		"--rdzv-endpoint n1:29400 --max-restarts=3 -t3 train.py --nnodes=7 \"it's\"\n"
		"#\n"
		"# What its options became:\n"
		"#   --nnodes=2                   slurm.nodes = 2\n"
		"#   --nproc-per-node=8           slurm.gpus_per_node = 8\n"
		"#   --rdzv-backend=c10d          ignored: muster connects the ranks\n"
		"#   --rdzv-endpoint=n1:29400     ignored: muster connects the ranks, on ports "
		"that "
		"are free\n"
		"#   --max-restarts=3             restart.max_restarts = 3\n"
		"#   --tee=3                      program.show = all\n"
		"#   the script and its words     job.program, job.name\n"
		"#   nodes * ranks on each        parallel.dp = 16\n"
		"\n"
		"[job]\n"
		"name = train\n"
		"program = /venv/bin/python3 -u train.py --nnodes=7 \"it's\"\n"
		"device = cuda\n"
		"\n"
		"[parallel]\n"
		"dp = 16\n"
		"\n"
		"[program]\n"
		"show = all\n"
		"\n"
		"[slurm]\n"
		"nodes = 2\n"
		"gpus_per_node = 8\n"
		"\n"
		"[restart]\n"
		"max_restarts = 3\n";
	struct buf job = BUF_INIT, notes = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	if (translate(words, &job, &notes, &e))
		fail_msg("%s", e.text);
	assert_string_equal(buf_str(&job), want);
	assert_non_null(strstr(buf_str(&notes), "job.device=cuda is assumed"));
	assert_non_null(strstr(buf_str(&notes), "--rdzv-backend, --rdzv-endpoint: ignored"));
	assert_null(strstr(buf_str(&notes), "max_restarts"));
	buf_fini(&job);
	buf_fini(&notes);
}

/* The line "KEY = VALUE" of the file, or its absence: "-KEY". */
static void assert_lines(const char *const *words, const char *const *want)
{
	struct buf job = BUF_INIT, notes = BUF_INIT;
	struct err e = ERR_INIT;
	if (translate(words, &job, &notes, &e))
		fail_msg("%s: %s", words[0], e.text);
	for (; *want; want++) {
		struct buf line = BUF_INIT;
		bool absent = **want == '-';
		buf_printf(&line, "\n%s%s", *want + absent, absent ? " =" : "\n");
		if (!strstr(buf_str(&job), buf_str(&line)) != absent)
			fail_msg("%s %s: %s%s", words[0], words[1] ? words[1] : "",
				 absent ? "unwanted" : "missing", buf_str(&line));
		buf_fini(&line);
	}
	buf_fini(&job);
	buf_fini(&notes);
}

struct line {
	const char *words[MOST], *want[MOST];
};

static void assert_all(const struct line *cases, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_lines(cases[i].words, cases[i].want);
}

static void options_become_keys(void **state)
{
	static const struct line cases[] = {
		/* torchrun's defaults are one node and one rank */
		{ { "x.py" }, { "device = cuda", "gpus_per_node = 1", "dp = 1", "-nodes" } },
		{ { "--nnodes", "3", "x.py" }, { "nodes = 3", "dp = 3" } },
		{ { "--nnodes=1:4", "--nproc-per-node=8", "x.py" },
		  { "nodes = 1-4", "shrink = dp", "gpus_per_node = 8", "-dp" } },
		{ { "--nnodes=2:2", "x.py" }, { "nodes = 2", "-shrink", "dp = 2" } },
		{ { "--nproc-per-node=gpu", "x.py" },
		  { "device = cuda", "-gpus_per_node", "-dp" } },
		{ { "--nproc-per-node=auto", "x.py" },
		  { "device = cuda", "-gpus_per_node", "-dp" } },
		{ { "--nproc-per-node=cpu", "x.py" }, { "device = cpu", "-gpus_per_node", "-dp" } },
		{ { "--max_restarts=0", "x.py" }, { "max_restarts = 0" } },
		{ { "--shutdown-timeout=90", "x.py" }, { "stop_grace = 90" } },
		{ { "--virtual-local-rank", "x.py" }, { "visible = own" } },
		{ { "--tee", "3", "x.py" }, { "show = all" } },
		{ { "-t", "1", "-r", "3", "x.py" }, { "show = all" } },
		{ { "-r=3", "x.py" }, { "show = none" } },
		{ { "--redirects=1", "x.py" }, { "-show" } },
		{ { "--tee=0:3", "x.py" }, { "-show" } },
		{ { "--tee=0", "x.py" }, { "-show" } },
		{ { "x.py", "--tee=3" }, { "-show" } },
		/* argparse takes the begin of a name, and the last of several */
		{ { "--nproc=4", "--nproc-per-node=2", "x.py" }, { "gpus_per_node = 2" } },
	};
	(void)state;
	assert_all(cases, sizeof cases / sizeof *cases);
}

static void the_program_runs_as_under_torchrun(void **state)
{
	static const char shell[] =
		"program = sh -c 'python=$0 script=$1; shift; exec \"$python\" -u \"$script\" "
		"--local-rank=\"$LOCAL_RANK\" \"$@\"' python3.11 x.py 1";
	static const char module_shell[] =
		"program = sh -c 'python=$0 module=$1; shift; exec \"$python\" -u -m \"$module\" "
		"--local-rank=\"$LOCAL_RANK\" \"$@\"' python a.b";
	static const struct line cases[] = {
		{ { "x.py", "-a", "b c" }, { "program = python3 -u x.py -a 'b c'" } },
		{ { "torchrun", "--", "x.py" }, { "program = python3 -u x.py", "name = x" } },
		{ { "torchrun", "x.py", "--", "y" }, { "program = python3 -u x.py -- y" } },
		{ { "-m", "lab.train", "-m" },
		  { "program = python3 -u -m lab.train -m", "name = lab.train" } },
		{ { "--module", "x.py" }, { "program = python3 -u -m x.py", "name = x.py" } },
		{ { "--no-python", "/opt/sim", "-n" }, { "program = /opt/sim -n", "name = sim" } },
		{ { "--run-path", "/a/x.py" }, { "program = python3 -u /a/x.py" } },
		{ { "--run-path", "--no-python", "/a/x.py" }, { "program = python3 -u /a/x.py" } },
		{ { "/v/bin/python", "-m", "torch.distributed.run", "x.py" },
		  { "program = /v/bin/python -u x.py" } },
		{ { "python3.11", "-m", "torch.distributed.launch", "x.py", "1" }, { shell } },
		{ { "python", "-m", "torch.distributed.launch", "-m", "a.b" }, { module_shell } },
		{ { "python", "-m", "torch.distributed.launch", "--use_env", "x.py" },
		  { "program = python -u x.py" } },
		/* a program called python is no torchrun */
		{ { "--no-python", "python", "-m", "torch.distributed.run" },
		  { "program = python -m torch.distributed.run" } },
		/* names that cannot be those of a folder */
		{ { "my run.py" }, { "name = my-run", "program = python3 -u 'my run.py'" } },
		{ { "dir/.py" }, { "name = py" } },
		{ { "--no-python", "dir/" }, { "name = program" } },
	};
	(void)state;
	assert_all(cases, sizeof cases / sizeof *cases);
}

static void wrong_lines_are_refused_with_the_remedy(void **state)
{
	static const struct {
		const char *words[MOST], *said;
	} cases[] = {
		{ { NULL }, "the script is missing" },
		{ { "torchrun", "--nnodes=2" }, "the script is missing" },
		{ { "--nnode_s=2", "x.py" },
		  "torchrun has no option --nnode-s; did you mean --nnodes?" },
		{ { "--batch-size=2", "x.py" },
		  "torchrun has no option --batch-size; options of the program come after the "
		  "script" },
		{ { "-x", "x.py" }, "torchrun has no option -x" },
		{ { "-mx", "x.py" }, "torchrun has no option -mx" },
		{ { "--rdzv=c10d", "x.py" }, "--rdzv can be " },
		{ { "--nnodes" }, "--nnodes needs a value; write --nnodes=VALUE" },
		{ { "--standalone=1", "x.py" }, "--standalone takes no value" },
		{ { "--nnodes=0", "x.py" },
		  "--nnodes=0: this is not a whole number from 1 to 65536" },
		{ { "--nnodes=2x", "x.py" }, "--nnodes=2x: this is not a whole number" },
		{ { "--nnodes=1:2:3", "x.py" }, "--nnodes=2:3: this is not a whole number" },
		{ { "--nnodes=4:2", "x.py" },
		  "--nnodes=4:2 begins with the larger number; write --nnodes=2:4" },
		{ { "--nproc-per-node=all", "x.py" }, "--nproc-per-node=all: this is not" },
		{ { "--nproc-per-node=xpu", "x.py" },
		  "--nproc-per-node=xpu: muster knows NVIDIA GPUs" },
		{ { "--max-restarts=-1", "x.py" },
		  "--max-restarts=-1: this is not a whole number "
		  "from 0 to 65536; write such as --max-restarts=2" },
		{ { "--no-python", "-m", "x" }, "--no-python and --module exclude each other" },
		{ { "python", "-m", "torch.distributed.launch", "--no-python", "x" },
		  "torch.distributed.launch --no-python needs --use-env" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf job = BUF_INIT, notes = BUF_INIT;
		struct err e = ERR_INIT;
		if (!translate(cases[i].words, &job, &notes, &e))
			fail_msg("%s is taken", cases[i].words[0] ? cases[i].words[0] : "nothing");
		assert_int_equal(e.code, ERR_USAGE);
		if (strncmp(e.text, cases[i].said, strlen(cases[i].said)))
			fail_msg("%s: %s", cases[i].words[0] ? cases[i].words[0] : "", e.text);
		assert_int_equal(job.len, 0);
		buf_fini(&job);
		buf_fini(&notes);
	}
}

static void a_program_that_no_line_can_hold_is_refused(void **state)
{
	enum { LONG = 2100 };
	char *word = malloc(LONG + 1);
	struct buf job = BUF_INIT, notes = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	memset(word, 'a', LONG);
	word[LONG] = '\0';
	assert_int_equal(translate((const char *const[]){ "x.py", word, NULL }, &job, &notes, &e),
			 -1);
	assert_non_null(strstr(e.text, "job.program holds 1999; put the arguments into a script"));
	buf_fini(&job);
	buf_fini(&notes);
	free(word);
}

/* Every option of the table can be given, and its comment says what became of it. */
static void no_option_is_without_a_word(void **state)
{
	(void)state;
	for (int i = 0; i < TORCHRUN_N; i++) {
		const struct torchrun_option *o = &command_torchrun_options[i];
		struct buf job = BUF_INIT, notes = BUF_INIT, begin = BUF_INIT;
		struct err e = ERR_INIT;
		const char *const words[] = { o->name, o->takes_value ? "1" : "x", "x", NULL };
		if (translate(words, &job, &notes, &e))
			fail_msg("%s: %s", o->name, e.text);
		buf_printf(&begin, "\n#   %s", o->name);
		const char *line = strstr(buf_str(&job), "became:");
		assert_non_null(line);
		line = strstr(line, buf_str(&begin));
		assert_non_null(line);
		line += strlen("\n#   ");
		/* the columns of the option come first */
		assert_in_range(strcspn(line, "\n"), 29 + 12, 200);
		buf_fini(&job);
		buf_fini(&notes);
		buf_fini(&begin);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_command_line_becomes_a_job_file),
		cmocka_unit_test(options_become_keys),
		cmocka_unit_test(the_program_runs_as_under_torchrun),
		cmocka_unit_test(wrong_lines_are_refused_with_the_remedy),
		cmocka_unit_test(a_program_that_no_line_can_hold_is_refused),
		cmocka_unit_test(no_option_is_without_a_word),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
