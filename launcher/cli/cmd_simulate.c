#include "base/clock.h"
#include "base/file.h"
#include "launcher/cli/command.h"
#include "launcher/cli/fit_nodes.h"
#include "launcher/cli/output.h"
#include "launcher/fit.h"
#include "launcher/goodput/report.h"
#include "launcher/job_cluster.h"
#include "launcher/status.h"
#include "launcher/supervise/terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster simulate — predict how a job fares on a cluster whose parts fail\n"
	"\n"
	"SYNOPSIS\n"
	"  muster simulate [--cluster SPEC] [--days DAYS] [--faults LIST] [--costs COSTS]\n"
	"                  [--runs N] [--seed N] [--svg FILE] [--json] JOB.ini\n"
	"                  [section.key=value …]\n"
	"  muster simulate --show-faults LIST\n"
	"\n"
	"DESCRIPTION\n"
	"  Plans the job as `muster plan` does, and simulates many runs of it with faults at\n"
	"  random. Starts nothing. Prints the share of the time in which steps were trained that\n"
	"  count (the effective training time), where the rest goes, what each setting of the job\n"
	"  is worth, which cost matters, the same job under other launchers, and the intervals "
	"and\n"
	"  spare nodes that are best. The guide doc/guide/goodput.md explains the model.\n"
	"\n"
	"  The run has the nodes of its layout, and slurm.spares in addition. Other nodes of the\n"
	"  cluster are not its own.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC      the machine, instead of the job's [launch] cluster: local, slurm, "
	"or\n"
	"                      PRESET:NODES, such as dgx-h100:2056\n"
	"  --days DAYS         the length of a run. Default: until job.steps are done\n"
	"  --faults LIST       what breaks, and how often: llama3 (the default: the 466\n"
	"                      interruptions of Llama 3 405B), rsc1 or rsc2 (two clusters of "
	"Meta),\n"
	"                      or a file\n"
	"  --show-faults LIST  print the list as a file, to change it\n"
	"  --costs COSTS       seconds, in place of those that follow from the job, separated by\n"
	"                      commas: hang=120,person=3600. The names are below\n"
	"  --runs N            runs to simulate for each figure; 100 by default\n"
	"  --seed N            of the first run; the same seed gives the same faults. 1 by "
	"default\n"
	"  --svg FILE          also draw the first run into FILE, for slides: where its time went, "
	"its\n"
	"                      faults, and the other launchers; your umask decides who may read "
	"it\n"
	"  --json              print everything as JSON\n"
	"\n"
	"COSTS\n";

static const char help_end[] =
	"\n"
	"EXAMPLES\n"
	"  muster simulate llama-405b.ini --days 54 --svg llama.svg\n"
	"  muster simulate llama-70b.ini slurm.spares=2 checkpoint.every=50\n"
	"  muster simulate --show-faults llama3 >ours.json\n"
	"  muster simulate --faults ours.json --costs load=300 job.ini\n"
	"\n"
	"EXIT STATUS\n"
	"  0  simulated, even if the answer is that a run would not end\n"
	"  1  the answer or the drawing cannot be written; with --svg also if a run would not "
	"end,\n"
	"     so that there is nothing to draw\n"
	"  2  usage, job file, or list of faults\n"
	"  3  the machine cannot hold the job\n";

static int print_help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help);
	for (int i = 0; i < GOODPUT_COST_COUNT; i++)
		buf_printf(&text, "  %-9s %s\n", goodput_cost_row(i)->name,
			   goodput_cost_row(i)->doc);
	buf_puts(&text, help_end);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* --- Options -------------------------------------------------------------------------------- */

enum { RUNS_MOST = 100000 };
static const double days_most = 36525; /* a hundred years */

struct words {
	const char *cluster, *days, *faults, *costs, *runs, *seed, *svg;
	bool json;
};

static int read_number(const char *option, const char *word, double least, double most, bool whole,
		       double *out, struct err *e)
{
	char *end;
	double x = strtod(word, &end);
	if (end == word || *end || !(x >= least && x <= most) || (whole && x != floor(x)))
		return err_set(e, ERR_USAGE, "%s %.40s: write a %snumber from %g to %g", option,
			       word, whole ? "whole " : "", least, most);
	*out = x;
	return 0;
}

static int set_costs(const char *words, struct goodput_costs *c, struct err *e)
{
	for (const char *at = words; at;) {
		char one[64];
		const char *comma = strchr(at, ',');
		size_t n = comma ? (size_t)(comma - at) : strlen(at);
		snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), at);
		if (at > words && !*at)
			return err_set(e, ERR_USAGE,
				       "--costs %.60s: it ends with a comma; leave that out",
				       words);
		if (goodput_costs_set(c, one, e))
			return -1;
		at = comma ? comma + 1 : NULL;
	}
	return 0;
}

static int read_options(const struct words *w, struct goodput_report *r, struct err *e)
{
	double days = 0, runs = 100, seed = 1;
	if ((w->days && read_number("--days", w->days, 0.001, days_most, false, &days, e)) ||
	    (w->runs && read_number("--runs", w->runs, 1, RUNS_MOST, true, &runs, e)) ||
	    (w->seed && read_number("--seed", w->seed, 0, 1e15, true, &seed, e)))
		return -1;
	r->setup.seconds = 86400 * days;
	r->plan = (struct goodput_plan){ .runs = (int)runs, .seed = (uint64_t)seed };
	return 0;
}

/* --- Progress ------------------------------------------------------------------------------- */

/* A line on a terminal for people who wait longer than a second. */
static const double waits_s = 1, shows_s = 0.1;

struct progress {
	double next; /* time of the next line */
	bool shown;
};

static void show_progress(const struct goodput_watch *w)
{
	struct progress *p = w->arg;
	double now = clock_s();
	if (now < p->next)
		return;
	p->next = now + shows_s;
	p->shown = true;
	fprintf(stderr, "\rsimulating: %3.0f %%", 100.0 * (double)w->done / (double)w->all);
}

static int make_report(struct goodput_report *r, struct err *e)
{
	struct progress p = { .next = clock_s() + waits_s };
	struct goodput_watch watch = { .show = show_progress, .arg = &p };
	struct terminal_options t = { 0 };
	supervise_terminal_detect(STDERR_FILENO, &t);
	r->plan.watch = t.live ? &watch : NULL;
	int rc = goodput_report_make(r, e);
	r->plan.watch = NULL;
	if (p.shown)
		fputs("\r\033[K", stderr); /* the answer begins on an empty line */
	return rc;
}

/* --- The simulation ------------------------------------------------------------------------- */

static int simulate(const struct words *w, const struct deployment *d,
		    const struct goodput_faults *faults, struct goodput_report *r, struct err *e)
{
	goodput_setup_of(d, faults, &r->setup);
	r->devices = d->plan.world;
	return read_options(w, r, e) || set_costs(w->costs, &r->setup.costs, e) || make_report(r, e)
		       ? -1
		       : 0;
}

static int write_svg(const struct goodput_report *r, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	if (!goodput_report_svg(r, &text, e))
		return command_write_drawing(&text, path, e);
	buf_fini(&text);
	return err_prefix(e, "%s", path);
}

static int print_report(const struct goodput_report *r, bool json)
{
	struct buf text = BUF_INIT;
	if (json)
		return command_output_json(goodput_report_json(r), STATUS_DONE);
	goodput_report_print(r, &text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Without the drawing there is still the report. */
static int print_and_draw(const struct goodput_report *r, const struct words *w)
{
	struct err e = ERR_INIT;
	int status = print_report(r, w->json);
	if (!w->svg || !write_svg(r, w->svg, &e))
		return status;
	command_fail(&e);
	return STATUS_FAILED;
}

/* Takes over the cluster. */
static int simulate_on(const struct words *w, const struct job *job, struct cluster *cluster,
		       const char *spec, const struct goodput_faults *faults)
{
	struct err e = ERR_INIT;
	struct goodput_report *r = calloc(1, sizeof *r);
	struct deployment *d = NULL;
	json_t *spares = NULL;
	int status = STATUS_DONE;
	if (!r) {
		err_set(&e, ERR_NOMEM, "no memory for the answer");
		topo_cluster_free(cluster);
	} else if (launcher_spares_keep(job, cluster, &spares, &e)) {
		topo_cluster_free(cluster);
	} else if (!command_fit_nodes(job, cluster, spares, &d, &e)) {
		r->job = job->job.name;
		r->cluster = spec;
		if (!simulate(w, d, faults, r, &e))
			status = print_and_draw(r, w);
	}
	if (e.code != ERR_NONE)
		status = command_fail(&e);
	launcher_deployment_free(d);
	json_decref(spares);
	if (r)
		goodput_report_close(r);
	free(r);
	return status;
}

static int show_faults(const char *word)
{
	static struct goodput_faults faults;
	struct err e = ERR_INIT;
	return goodput_faults_open(word, &faults, &e)
		       ? command_fail(&e)
		       : command_output_json(goodput_faults_json(&faults), STATUS_DONE);
}

int cmd_simulate(int argc, char **argv)
{
	struct words w = { .faults = "llama3" };
	const struct command_option options[] = {
		{ "--cluster", NULL, &w.cluster },
		{ "--days", NULL, &w.days },
		{ "--faults", NULL, &w.faults },
		{ "--costs", NULL, &w.costs },
		{ "--runs", NULL, &w.runs },
		{ "--seed", NULL, &w.seed },
		{ "--svg", NULL, &w.svg },
		{ "--json", &w.json, NULL },
		{ NULL, NULL, NULL },
	};
	static struct job job; /* too large for a small stack */
	static struct goodput_faults faults;
	struct cluster cluster;
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return print_help();
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--show-faults"))
			return argc == 3 && i == 1
				       ? show_faults(argv[2])
				       : command_misuse(argv[0], "--show-faults LIST stands alone");
	int status = command_job(argc, argv, options, TO_PLAN, &job);
	if (status)
		return status;
	if (job_has_program(&job))
		return command_misuse(argv[0],
				      "muster knows neither the steps nor the checkpoints of a "
				      "program (job.program); simulate a job of its own that "
				      "is as large");
	if (w.svg && !*w.svg)
		return command_misuse(argv[0], "the name after --svg is empty; name a file");
	/* Before a simulation that may take minutes. */
	if (w.svg && file_replace_check(w.svg, &e)) {
		command_fail(&e);
		return STATUS_FAILED;
	}
	if (goodput_faults_open(w.faults, &faults, &e))
		return command_fail(&e);
	const char *spec = w.cluster ? w.cluster : job.launch.cluster;
	if (launcher_job_cluster_open(&job, spec, &cluster, &e)) {
		if (w.cluster)
			err_prefix(&e, "--cluster");
		return command_fail(&e);
	}
	return simulate_on(&w, &job, &cluster, spec, &faults);
}
