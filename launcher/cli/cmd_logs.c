#include "base/clock.h"
#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_words.h"
#include "launcher/console/collect.h"
#include "launcher/rundir/find.h"
#include "launcher/rundir/logs.h"
#include "launcher/rundir/windows.h"
#include "launcher/status.h"

#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"muster logs — print the logs of all ranks, merged by time\n"
	"\n"
	"SYNOPSIS\n"
	"  muster logs RUN [--rank R] [--node N] [--generation G] [--since T] [--grep RE]\n"
	"                  [--follow] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/. The run may have\n"
	"  ended or go on.\n"
	"\n"
	"  The lines of logs/NODE-RANK.log of all ranks come in the order of their times, and\n"
	"  between them those of the launch (launch-GENERATION.log: what srun and the agents "
	"print\n"
	"  outside their logs, such as the words of a crash; guard.log), with the name of the "
	"file\n"
	"  in front. The times are those of the nodes' clocks.\n"
	"\n"
	"  With log.local the logs stay on the nodes, except for those of rank 0 and of ranks "
	"that\n"
	"  have failed. While the run goes on, --rank and --node collect them: they move to the "
	"run\n"
	"  folder first. After the run, muster logs on a node reads the logs of that node.\n"
	"\n"
	"OPTIONS\n"
	"  --rank R          only these ranks: 3, or 0,4-7\n"
	"  --node N          only ranks on this node\n"
	"  --generation G    only lines from the start of this generation to the next one's\n"
	"  --since T         only lines from this time on: 90s, 10m, 2h or 3d ago; 14:05;\n"
	"                    2027-01-31; \"2027-01-31 14:05\"\n"
	"  --grep RE         only lines that this extended regular expression (as of grep -E)\n"
	"                    matches\n"
	"  --follow          go on with new lines until interrupted\n"
	"  --json            print an object per line: time (seconds since 1970), node and rank,\n"
	"                    or file, and line\n"
	"\n"
	"EXAMPLES\n"
	"  muster logs runs/mine --rank 3 --follow\n"
	"  muster logs mine --since 10m --grep 'warn|error'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, rank, node or generation, or a log cannot be read; the other\n"
	"     logs are printed\n";

struct arguments {
	const char *rank, *node, *generation, *since, *grep;
	bool follow, json;
};

struct printing {
	const struct arguments *a;
	regex_t re;
	bool failed, left_out;
};

/* --- Printing --- */

static void tell_unreadable(void *printing, const struct err *why)
{
	struct printing *p = printing;
	p->left_out = true;
	command_lines("", why->text);
}

static bool print_json(const struct rundir_log_line *l)
{
	json_t *o = json_pack("{s:f}", "time", l->time);
	if (l->node)
		json_object_update_new(o,
				       json_pack("{s:s, s:i}", "node", l->node, "rank", l->rank));
	else
		json_object_set_new(o, "file", json_string(l->file));
	json_t *text = json_string(l->text);
	char *plain = text ? NULL : strdup(l->text);
	for (char *c = plain; c && *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?'; /* not UTF-8 */
	json_object_set_new(o, "line", text ? text : json_string(plain ? plain : ""));
	free(plain);
	char *line = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER);
	int rc = line ? command_print_json_text(line, strlen(line)) : -1;
	free(line);
	json_decref(o);
	return !rc;
}

static bool print_text(const struct rundir_log_line *l)
{
	char *text = strdup(l->text);
	if (!text)
		return false;
	human_plain(text);
	int n = l->node ? printf("%s\n", text) : printf("%s: %s\n", l->file, text);
	free(text);
	return n >= 0;
}

static bool print_line(void *printing, const struct rundir_log_line *l)
{
	struct printing *p = printing;
	if (p->a->grep && regexec(&p->re, l->text, 0, NULL, 0))
		return true;
	p->failed |= !(p->a->json ? print_json(l) : print_text(l));
	return !p->failed;
}

/* --- Choosing --- */

static int compile(const char *text, regex_t *re, struct err *e)
{
	char why[200];
	int rc = regcomp(re, text, REG_EXTENDED | REG_NOSUB);
	if (!rc)
		return 0;
	regerror(rc, re, why, sizeof why);
	return err_set(e, ERR_USAGE, "--grep \"%.100s\": not a regular expression: %s", text, why);
}

/* Limits the lines to those of a generation. */
static int choose_generation(const char *run, const char *text, struct rundir_logs_options *o,
			     struct err *e)
{
	struct rundir_windows w;
	char *end;
	long long number = strtoll(text, &end, 10);
	if (!*text || *end || number < 1)
		return err_set(e, ERR_USAGE, "--generation %.40s: not the number of a generation",
			       text);
	if (rundir_windows_read(run, &w, e))
		return -1;
	const struct rundir_window *found = rundir_windows_find(&w, number);
	int rc = 0;
	if (found) {
		o->from = found->from;
		o->until = found->until;
	} else if (w.n) {
		rc = err_set(e, ERR_NOTFOUND,
			     "%s: the run has no generation %lld; its generations are %lld to %lld",
			     run, number, (long long)w.of[0].generation,
			     (long long)w.of[w.n - 1].generation);
	} else {
		rc = err_set(e, ERR_NOTFOUND, "%s: the run has started no generation yet", run);
	}
	rundir_windows_free(&w);
	return rc;
}

static int choose(const struct arguments *a, const char *run, struct ranges *ranks,
		  struct rundir_logs_options *o, struct err *e)
{
	double since = -INFINITY;
	*o = (struct rundir_logs_options){ .node = a->node, .from = since, .until = INFINITY };
	if (a->rank && ranges_parse(a->rank, ranks, e))
		return err_prefix(e, "--rank");
	if (a->rank)
		o->ranks = ranks;
	if (a->since && command_time_read(a->since, clock_wall_s(), &since, e))
		return err_prefix(e, "--since");
	if (a->generation && choose_generation(run, a->generation, o, e))
		return -1;
	o->from = fmax(o->from, since);
	return 0;
}

/* --- Logs that stay on the nodes --- */

static const double collect_s = 120;

static void tell_waiting(void)
{
	command_lines("", "waiting for the nodes to move the logs to the run folder");
}

/* The logs that the command wants move to the run folder. */
static void collect(const char *run, struct printing *p)
{
	const struct arguments *a = p->a;
	struct err e = ERR_INIT;
	if ((a->rank || a->node) &&
	    console_collect_logs(run, a->rank, a->node, collect_s, tell_waiting, &e))
		tell_unreadable(p, &e);
}

static void tell_elsewhere(const struct rundir_logs *l, const struct arguments *a)
{
	char text[300];
	int n = a->rank || a->node ? 0 : rundir_logs_elsewhere(l);
	snprintf(
		text, sizeof text,
		"the log%s of %d rank%s stay%s on the nodes (log.local): --rank or --node collects "
		"them while the run goes on; later, muster logs reads them on their nodes",
		n == 1 ? "" : "s", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
	if (n)
		command_lines("", text);
}

/* --- The command --- */

static int print_logs(struct rundir_logs *l, struct printing *p, struct err *e)
{
	bool follow = p->a->follow;
	int told = 0;
	if (follow)
		command_follow_begin();
	do {
		if (rundir_logs_read(l, !follow, print_line, p, e))
			return -1;
		p->failed |= fflush(stdout) != 0;
		if (!told++)
			tell_elsewhere(l, p->a);
	} while (follow && !p->failed && command_follow_wait());
	return 0;
}

static int run_logs(const struct arguments *a, const char *word, struct err *e)
{
	static struct ranges ranks;
	char run[RUN_PATH];
	struct rundir_logs_options o;
	struct rundir_logs *l;
	struct printing p = { .a = a };
	if (rundir_find(word, run, e) || choose(a, run, &ranks, &o, e) ||
	    (a->grep && compile(a->grep, &p.re, e)))
		return command_fail(e);
	o.unreadable = tell_unreadable;
	o.unreadable_arg = &p;
	collect(run, &p);
	int rc = rundir_logs_open(run, &o, &l, e);
	if (!rc) {
		rc = print_logs(l, &p, e);
		rundir_logs_close(l);
	}
	if (a->grep)
		regfree(&p.re);
	if (rc)
		return command_fail(e);
	return command_output_end(p.failed     ? STATUS_FAILED
				  : p.left_out ? STATUS_CANNOT_START
					       : STATUS_DONE);
}

int cmd_logs(int argc, char **argv)
{
	struct arguments a = { NULL };
	const char *run;
	struct err e = ERR_INIT;
	const struct command_option options[] = {
		{ "--rank", NULL, &a.rank },
		{ "--node", NULL, &a.node },
		{ "--generation", NULL, &a.generation },
		{ "--since", NULL, &a.since },
		{ "--grep", NULL, &a.grep },
		{ "--follow", &a.follow, NULL },
		{ "--json", &a.json, NULL },
		{ NULL, NULL, NULL },
	};
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_runs(argc, argv, options, &run, 1);
	return status ? status : run_logs(&a, run, &e);
}
