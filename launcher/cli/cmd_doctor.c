#include "launcher/cli/command.h"
#include "launcher/doctor/doctor.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "plan/spec/job/job.h"
#include "topo/discover/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help_head[] =
	"muster doctor — what this machine lacks, and what mends it\n"
	"\n"
	"SYNOPSIS\n"
	"  muster doctor [--quiet] [--json] [JOB.ini [section.key=value …]]\n"
	"\n"
	"DESCRIPTION\n"
	"  Looks at this host, or at every node of the allocation that this runs in, for what "
	"muster needs: a line for each\n"
	"  thing, ok, warn or fail, what was found, and what mends it. With a job file also for "
	"what that job needs: enough\n"
	"  sound GPUs with room for its ranks, memory, data, folders. Starts and changes nothing. "
	"Where something hangs it takes\n"
	"  a minute at most, in an allocation three.\n"
	"\n"
	"OPTIONS\n"
	"  --quiet          only what is not ok\n"
	"  --json           for programs: the nodes, of each the findings, {level, check, object, "
	"found, remedy}, and facts: of\n"
	"                   each GPU memory, errors, clocks, links, programs, in bytes, watts and "
	"degrees; null is not told\n"
	"  --report NEEDS   this node's lines in the step that asks an allocation\n"
	"\n"
	"EXAMPLES\n"
	"  muster doctor\n"
	"  muster doctor templates/jobs/demo.ini data.path=corpus\n"
	"  salloc -N4 --exclusive muster doctor job.ini\n"
	"\n"
	"EXIT STATUS\n"
	"  0 nothing fails, there may be warnings; 1 cannot write the answer; 2 usage or job file; "
	"3 something fails\n"
	"\n"
	"CHECKS\n";

static int help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help_head);
	for (const struct check *c = doctor_checks; c->name; c++)
		buf_printf(&text, "  %-11s %s\n", c->name, c->about);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int report(const char *needs)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	int status = doctor_report(needs, &text, &e) ? command_fail(&e)
						     : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int show(const struct doctor_node *nodes, int n, bool json, bool quiet)
{
	struct terminal_options t = { 0 };
	struct buf text = BUF_INIT;
	if (json) {
		json_t *doc = doctor_json(nodes, n);
		char *dump = doc ? json_dumps(doc, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
		buf_printf(&text, "%s\n", dump ? dump : "");
		free(dump);
		json_decref(doc);
	} else {
		supervise_terminal_detect(STDOUT_FILENO, &t);
		doctor_page(nodes, n, t.colour, quiet, supervise_terminal_columns(STDOUT_FILENO),
			    &text);
	}
	int status = buf_failed(&text) ? STATUS_FAILED : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Every node is asked; where that fails, this one alone is looked at. What concerns all of them
 * stands with the first. Returns how many were looked at. */
static int look(const struct needs *n, const struct hostlist *names, struct doctor_node *nodes)
{
	struct err e = ERR_INIT;
	bool asked = n->slurm && !doctor_ask(n, names, nodes, &e);
	if (!asked)
		topo_nodes_own_name(nodes[0].name);
	if (n->slurm && !asked) {
		nodes[0].found.check = "nodes";
		doctor_found_bad(&nodes[0].found, FINDING_FAIL, "nodes",
				 "srun hostname must work in this allocation",
				 "could not be asked: %s", e.text);
	}
	doctor_run(doctor_checks, n, asked ? DOCTOR_ONCE : DOCTOR_ALL, &nodes[0].found);
	return asked ? names->n : 1;
}

static int examine(const struct needs *n, bool json, bool quiet)
{
	struct hostlist names = { .n = 0 };
	struct err e = ERR_INIT;
	if (n->slurm && topo_nodes_of_allocation(&names, &e))
		return command_fail(&e);
	int count = names.n ? names.n : 1;
	struct doctor_node *nodes = calloc((size_t)count, sizeof *nodes);
	if (!nodes) {
		topo_hostlist_free(&names);
		err_set(&e, ERR_NOMEM, "no memory for %d nodes", count);
		return command_fail(&e);
	}
	count = look(n, &names, nodes);
	int status = show(nodes, count, json, quiet);
	for (int i = 0; i < count; i++) {
		if (!status && doctor_findings_worst(&nodes[i].found) == FINDING_FAIL)
			status = STATUS_CANNOT_START;
		doctor_findings_fini(&nodes[i].found);
	}
	free(nodes);
	topo_hostlist_free(&names);
	return status;
}

static bool has_words(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			return true;
	return false;
}

/* The job file among them, which command_job has found there. */
static const char *job_file(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-' && !strchr(argv[i], '='))
			return argv[i];
	return "";
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false, quiet = false;
	const struct command_option options[] = { { "--json", &json, NULL },
						  { "--quiet", &quiet, NULL },
						  { NULL, NULL, NULL } };
	struct needs n = { .slurm = getenv("SLURM_JOB_ID") != NULL };
	struct job job;
	if (command_wants_help(argc, argv))
		return help();
	if (argc == 3 && !strcmp(argv[1], "--report"))
		return report(argv[2]);
	if (has_words(argc, argv)) {
		int status = command_job(argc, argv, options, TO_PLAN, &job);
		if (status)
			return status;
		doctor_needs_of_job(&job, job_file(argc, argv), &n);
	} else {
		int status = command_options(argc, argv, options);
		if (status)
			return status;
	}
	return examine(&n, json, quiet);
}
