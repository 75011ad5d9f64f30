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
	"muster doctor — report what this machine lacks, and the command that fixes it\n"
	"\n"
	"SYNOPSIS\n"
	"  muster doctor [--quiet] [--json] [JOB.ini [section.key=value …]]\n"
	"\n"
	"DESCRIPTION\n"
	"  Checks this host, or every node of the allocation that it runs in, for what muster\n"
	"  needs. Each check prints a line: ok, warn or fail, what was found, and the remedy.\n"
	"  With a job file it also checks what that job needs: enough healthy GPUs with room for\n"
	"  its ranks, memory, data, folders. It starts and changes nothing. If something hangs,\n"
	"  it takes at most one minute, in an allocation three.\n"
	"\n"
	"OPTIONS\n"
	"  --quiet          print only what is not ok\n"
	"  --json           print JSON: the nodes, each with its findings, {level, check, object,\n"
	"                   found, remedy}, and facts: memory, errors, clocks, links and\n"
	"                   programs of each GPU, in bytes, watts and degrees; null is unknown\n"
	"  --report NEEDS   print this node's part; the step that checks an allocation uses it\n"
	"  --node NEEDS     print one line about this host; muster run checks nodes by it\n"
	"\n"
	"EXAMPLES\n"
	"  muster doctor\n"
	"  muster doctor templates/jobs/demo.ini data.path=corpus\n"
	"  salloc -N4 --exclusive muster doctor job.ini\n"
	"\n"
	"EXIT STATUS\n"
	"  0  no check fails; there may be warnings\n"
	"  1  the answer cannot be written\n"
	"  2  usage or job file\n"
	"  3  a check fails\n"
	"\n"
	"CHECKS\n";

static int print_help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help_head);
	for (const struct check *c = doctor_checks; c->name; c++)
		buf_printf(&text, "  %-11s %s\n", c->name, c->about);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Prints what a node was asked for. */
static int print_node_report(const char *needs,
			     int (*report)(const char *needs, struct buf *out, struct err *e))
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	int status = report(needs, &text, &e) ? command_fail(&e) : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int print_findings(const struct doctor_node *nodes, int n, bool json, bool quiet)
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
		doctor_print(nodes, n, t.colour, quiet, supervise_terminal_columns(STDOUT_FILENO),
			     &text);
	}
	int status = buf_failed(&text) ? STATUS_FAILED : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Checks every node; if that fails, only this one. Findings about all nodes are listed with the
 * first. Returns the number of nodes checked. */
static int check_nodes(const struct needs *n, const struct hostlist *names,
		       struct doctor_node *nodes)
{
	struct err e = ERR_INIT;
	bool asked = n->slurm && !doctor_check_nodes(n, names, nodes, &e);
	if (!asked)
		topo_nodes_own_name(nodes[0].name);
	if (n->slurm && !asked) {
		nodes[0].found.check = "nodes";
		doctor_found_bad(&nodes[0].found, FINDING_FAIL, "nodes",
				 "check that srun hostname works in this allocation",
				 "they cannot be checked: %s", e.text);
	}
	doctor_run(doctor_checks, n, asked ? DOCTOR_ONCE : DOCTOR_ALL, &nodes[0].found);
	return asked ? names->n : 1;
}

static int check_and_print(const struct needs *n, bool json, bool quiet)
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
	count = check_nodes(n, &names, nodes);
	int status = print_findings(nodes, count, json, quiet);
	for (int i = 0; i < count; i++) {
		if (!status && doctor_findings_worst(&nodes[i].found) == FINDING_FAIL)
			status = STATUS_CANNOT_START;
		doctor_findings_fini(&nodes[i].found);
	}
	free(nodes);
	topo_hostlist_free(&names);
	return status;
}

static bool has_arguments(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			return true;
	return false;
}

/* The job file among the words; command_job() has already found one. */
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
	static struct job job; /* too large for a small stack */
	if (command_wants_help(argc, argv))
		return print_help();
	if (argc == 3 && !strcmp(argv[1], "--report"))
		return print_node_report(argv[2], doctor_report_node);
	if (argc == 3 && !strcmp(argv[1], "--node"))
		return print_node_report(argv[2], doctor_check_own_node);
	if (has_arguments(argc, argv)) {
		int status = command_job(argc, argv, options, TO_PLAN, &job);
		if (status)
			return status;
		doctor_needs_of_job(&job, job_file(argc, argv), &n);
	} else {
		int status = command_options(argc, argv, options);
		if (status)
			return status;
	}
	return check_and_print(&n, json, quiet);
}
