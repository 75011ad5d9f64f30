#include "launcher/cmd_plan.h"

#include "launcher/command.h"
#include "launcher/machine.h"
#include "launcher/supervise/supervise.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

static const char help[] =
	"muster plan — show what a job would be: layout, rank map, memory a rank, predicted step time; start nothing\n"
	"\n"
	"SYNOPSIS\n"
	"  muster plan [--cluster SPEC] [--json] JOB.ini [section.key=value …]\n"
	"  muster plan --schedule [--svg FILE] [--measured RUN] [--json] JOB.ini [section.key=value …]\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   the machine to plan for, in place of the job's [launch] cluster: local, slurm, or PRESET:NODES,\n"
	"                   such as dgx-h100:128\n"
	"  --json           the plan as the run folder's plan-<generation>.json holds it; with --schedule the passes with\n"
	"                   their times in seconds\n"
	"  --schedule       draw the pipeline's schedule: a row a rank, time to the right, each pass with the number of its\n"
	"                   micro-batch, simulated with the predicted times; what does not fit the terminal is cut\n"
	"  --svg FILE       draw all of it into FILE as well, for slides; implies --schedule\n"
	"  --measured RUN   draw what the run in this folder measured in its last step beside it, both bubbles with it; the\n"
	"                   simulation has the measured passes' times then. Implies --schedule; JOB.ini is the run's own\n"
	"\n"
	"EXAMPLES\n"
	"  muster plan job.ini parallel.tp=4\n"
	"  muster plan --cluster dgx-h100:128 gpt-175b.ini\n"
	"  muster plan --schedule job.ini parallel.pp=4 parallel.schedule=zb-v\n"
	"  muster plan --measured runs/job runs/job/job.ini --svg job.svg\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 2 usage or job file; 3 the machine cannot hold the job\n";

static int print_json(const struct job *job, const struct cluster *cluster, const struct plan *plan)
{
	json_t *doc = plan_json(job, cluster, plan);
	int bad = !doc || json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(doc);
	putchar('\n');
	return bad || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int print_text(const struct job *job, const struct cluster *cluster, const struct plan *plan)
{
	struct buf text = BUF_INIT;
	plan_print(job, cluster, plan, &text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

int cmd_plan(int argc, char **argv)
{
	bool json = false, schedule = false;
	const char *spec = NULL;
	struct plan_schedule_options drawn = { 0 };
	const struct command_option options[] = {
		{ "--json", &json, NULL }, { "--cluster", NULL, &spec }, { "--schedule", &schedule, NULL }, { "--svg", &schedule, &drawn.svg },
		{ "--measured", &schedule, &drawn.measured }, { NULL, NULL, NULL },
	};
	struct job job;
	struct err e = ERR_INIT;
	struct cluster cluster;
	struct plan plan;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_job(argc, argv, options, TO_PLAN, &job);
	if (status)
		return status;
	if (machine_open(&job, spec ? spec : job.launch.cluster, &cluster, &e))
		return command_fail(&e);
	if (plan_build(&job, &cluster, &plan, &e)) {
		cluster_free(&cluster);
		return command_fail(&e);
	}
	drawn.json = json;
	if (schedule)
		status = cmd_plan_schedule(&job, &plan, &drawn);
	else
		status = json ? print_json(&job, &cluster, &plan) : print_text(&job, &cluster, &plan);
	plan_free(&plan);
	cluster_free(&cluster);
	return status;
}
