#include "launcher/agent_path.h"
#include "launcher/cli/command.h"
#include "launcher/deployment.h"
#include "launcher/drill/drill.h"
#include "launcher/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help_head[] =
	"muster drill — cause faults on purpose, and report how the job recovers\n"
	"\n"
	"SYNOPSIS\n"
	"  muster drill [OPTION …] JOB.ini|RUN [section.key=value …]\n"
	"\n"
	"DESCRIPTION\n"
	"  Trains the job for some steps without a fault, and then once per fault, each time in a\n"
	"  run folder of its own below run_dir/drill-NAME. It injects the fault after the second\n"
	"  checkpoint and measures the recovery. RUN is a run folder; its job.ini is used. The "
	"run\n"
	"  itself is not touched. Inside a Slurm allocation the runs use its nodes.\n"
	"\n"
	"  A result is right if the exit status is the expected one, the losses and gradient "
	"norms\n"
	"  are those of the undisturbed run (to the bit; if the layout changed, to 1e-5), every\n"
	"  sample was used once (muster data audit), no process and no shared memory is left, and\n"
	"  the fault that muster names is the one that was injected. A fault that is not possible\n"
	"  here is skipped, with the reason. On Ctrl-C everything ends and is removed.\n"
	"\n"
	"  With parallel.sync = server losses depend on timing and are not compared.\n"
	"\n"
	"  The checkpoints of the runs are in their run folders, also if the job sets\n"
	"  checkpoint.dir. The folder of a run whose result is wrong remains; drill.out in it\n"
	"  is what muster run printed.\n"
	"\n"
	"OPTIONS\n"
	"  --fault NAMES         only these faults, with commas between them\n"
	"  --steps N             steps of each run, at least 12; by default 60, or more if steps\n"
	"                        are fast\n"
	"  --allow-node-faults   also drain nodes and set them down with scontrol, and put them\n"
	"                        back; the allocation must have been made with --no-kill\n"
	"  --keep                the folders of all runs remain\n"
	"  --json                print JSON; seconds, null is unknown\n"
	"\n"
	"COLUMNS\n"
	"  said                  the fault that muster named, otherwise how it lost the rank\n";

static const char help_tail[] =
	"  redone                steps that were computed again\n"
	"\n"
	"  Times are in seconds. Each one begins where the one before ends.\n"
	"\n"
	"EXAMPLES\n"
	"  muster drill demo.ini\n"
	"  muster drill runs/mine --fault agent-killed,checkpoint-corrupted\n"
	"  salloc -N4 --exclusive --no-kill muster drill job.ini --allow-node-faults\n"
	"\n"
	"EXIT STATUS\n"
	"  0   every drill that ran is right\n"
	"  1   a drill is wrong, or none could run\n"
	"  2   usage or job file\n"
	"  3   the undisturbed run failed\n"
	"  75  it was interrupted\n"
	"\n"
	"FAULTS\n";

struct request {
	struct job job;
	struct drill_options o;
	const char *steps;
	bool json;
	char file[PATH_MAX], agent[PATH_MAX];
	const char **words;
};

static int print_help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help_head);
#define PRINT_COLUMN(field, heading, doc) buf_printf(&text, "  %-21s %s\n", heading, doc);
	DRILL_PHASES(PRINT_COLUMN)
#undef PRINT_COLUMN
	buf_puts(&text, help_tail);
	drill_list(&text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static void print_begin(const char *name)
{
	fprintf(stderr, "muster: drill: %s\n", name);
}

/* The words of the job among the arguments, and the job file. An argument that is a folder is
 * replaced by its job.ini. */
static void sort_arguments(int argc, char **argv, struct request *r)
{
	struct stat st;
	int n = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--fault") || !strcmp(argv[i], "--steps")) {
			i++;
		} else if (argv[i][0] != '-' && strchr(argv[i], '=')) {
			r->words[n++] = argv[i];
		} else if (argv[i][0] != '-' && !*r->file) {
			bool folder = !stat(argv[i], &st) && S_ISDIR(st.st_mode);
			snprintf(r->file, sizeof r->file, "%s%s", argv[i],
				 folder ? "/job.ini" : "");
			argv[i] = r->file;
		}
	}
	r->o.words = r->words;
	r->o.file = r->file;
}

static int read_steps(struct request *r)
{
	enum { LEAST = 12, MOST = 1000000 };
	char *end;
	if (!r->steps)
		return 0;
	errno = 0;
	long long n = strtoll(r->steps, &end, 10);
	if (errno || end == r->steps || *end || n < LEAST || n > MOST)
		return command_misuse("drill", "--steps \"%s\": a whole number from %d to %d",
				      r->steps, LEAST, MOST);
	r->o.steps = n;
	return 0;
}

static int print_results(const struct drill_results *results, bool json)
{
	struct buf text = BUF_INIT;
	if (json) {
		json_t *doc = drill_json(results);
		char *dump = doc ? json_dumps(doc, JSON_INDENT(1)) : NULL;
		buf_printf(&text, "%s\n", dump ? dump : "");
		free(dump);
		json_decref(doc);
	} else {
		drill_print(results, &text);
	}
	int status = buf_failed(&text) ? STATUS_FAILED : command_help(buf_str(&text));
	buf_fini(&text);
	return status ? status : drill_results_right(results) ? STATUS_DONE : STATUS_FAILED;
}

static int drill(struct request *r)
{
	struct drill_results results;
	struct err e = ERR_INIT;
	if (launcher_agent_path(r->agent, sizeof r->agent, &e))
		return command_fail(&e);
	int rc = drill_run(&r->o, &results, &e), status;
	if (!rc)
		status = print_results(&results, r->json);
	else
		status = command_fail(&e);
	drill_results_fini(&results);
	return rc && e.code == ERR_ABORTED ? STATUS_STOPPED : status;
}

int cmd_drill(int argc, char **argv)
{
	static struct request r; /* too large for a small stack */
	const struct command_option options[] = {
		{ "--fault", NULL, &r.o.faults },
		{ "--steps", NULL, &r.steps },
		{ "--allow-node-faults", &r.o.allow_node_faults, NULL },
		{ "--keep", &r.o.keep, NULL },
		{ "--json", &r.json, NULL },
		{ NULL, NULL, NULL },
	};
	if (command_wants_help(argc, argv))
		return print_help();
	r.words = calloc((size_t)argc + 1, sizeof *r.words);
	if (!r.words) {
		struct err e;
		err_set(&e, ERR_NOMEM, "no memory for the job's words");
		return command_fail(&e);
	}
	sort_arguments(argc, argv, &r);
	int status = command_job(argc, argv, options, TO_RUN, &r.job);
	struct err refused = ERR_INIT;
	if (!status && launcher_deployment_check(&r.job, &refused))
		status = command_fail(&refused);
	if (!status && job_has_program(&r.job))
		status = command_misuse("drill",
					"it compares the losses and samples of the built-in "
					"training, and a program (job.program) has none that "
					"muster knows");
	if (!status)
		status = read_steps(&r);
	r.o.job = &r.job;
	r.o.agent = r.agent;
	r.o.begins = print_begin;
	if (!status)
		status = drill(&r);
	free(r.words);
	return status;
}
