#include "launcher/cli/cmd_plan.h"

#include "launcher/cli/command.h"
#include "launcher/job_cluster.h"
#include "launcher/supervise/supervise.h"
#include "plan/plan.h"
#include "plan/show/plan.h"

#include <stdio.h>

static const char help[] =
	"muster plan — show what a job would be: layout, rank map, memory a rank, predicted step "
	"time; start nothing\n"
	"\n"
	"SYNOPSIS\n"
	"  muster plan [--cluster SPEC] [--json] JOB.ini [section.key=value …]\n"
	"  muster plan --auto [--cluster SPEC] [--json] JOB.ini [section.key=value …]\n"
	"  muster plan --gpus 64..4096 [--cluster SPEC] [--svg FILE] [--json] JOB.ini "
	"[section.key=value …]\n"
	"  muster plan --schedule [--svg FILE] [--measured RUN] [--json] JOB.ini "
	"[section.key=value …]\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   the machine to plan for, in place of the job's [launch] cluster: "
	"local, slurm, or PRESET:NODES,\n"
	"                   such as dgx-h100:128\n"
	"  --auto           find the fastest layout that fits: degrees, schedule, micro-batch, "
	"ZeRO, recomputation, offloading,\n"
	"                   sequence parallelism. What the words after JOB.ini give stays, what "
	"the file gives does not; a file\n"
	"                   says the same for good by [parallel] auto = yes, which keeps what it "
	"gives, or by a key's value\n"
	"                   auto. Prints the best, what the runners-up would lose, what is faster "
	"but too large, memory\n"
	"                   against time, and the lines for the job file\n"
	"  --gpus RANGE     do as --auto for each size of the cluster from 64 devices to 4096, "
	"doubling, with the same global batch;\n"
	"                   with --svg FILE draw it too\n"
	"  --json           the plan as the run folder's plan-<generation>.json holds it; with "
	"--schedule the passes with\n"
	"                   their times in seconds\n"
	"  --schedule       draw the pipeline's schedule: a row a rank, time to the right, each "
	"pass with the number of its\n"
	"                   micro-batch, simulated with the predicted times; what does not fit the "
	"terminal is cut\n"
	"  --svg FILE       draw all of it into FILE as well, for slides; implies --schedule, but "
	"for --gpus\n"
	"  --measured RUN   draw what the run in this folder measured in its last step beside it, "
	"both bubbles with it; the\n"
	"                   simulation has the measured passes' times then. Implies --schedule; "
	"JOB.ini is the run's own\n"
	"\n"
	"PLACEMENT\n"
	"  Which device each rank gets, and why: what ranks wait for transfers in a step with this "
	"map, with Slurm's\n"
	"  --distribution=block, and with the worst that was tried. Below that, of each kind of "
	"group: its ranks, the nodes they\n"
	"  lie on, the links between them (the slowest inside a node; rails: adapters of the same "
	"place; leaf, spine: the level of\n"
	"  switches), a rank's bandwidth while all of them send, seconds of a step's transfers, "
	"and what of these is waited for,\n"
	"  as the rest goes on behind computation. Of predicted times these are the rough ones; "
	"the step's are below them\n"
	"\n"
	"EXAMPLES\n"
	"  muster plan job.ini parallel.tp=4\n"
	"  muster plan --cluster dgx-h100:128 175b.ini\n"
	"  muster plan --auto --cluster dgx-h100:64 175b.ini parallel.tp=8\n"
	"  muster plan --gpus 64..4096 --svg scaling.svg --cluster dgx-h100 175b.ini\n"
	"  muster plan --schedule job.ini parallel.pp=4 parallel.schedule=zb-v\n"
	"  muster plan --measured runs/job runs/job/job.ini --svg job.svg\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 2 usage or job file; 3 the machine cannot hold the job\n";

static int print_json(const struct job *job, const struct cluster *cluster, const struct plan *plan)
{
	json_t *doc = show_plan_json(job, cluster, plan);
	int bad = !doc || json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(doc);
	putchar('\n');
	return bad || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int print_text(const struct job *job, const struct cluster *cluster, const struct plan *plan)
{
	struct buf text = BUF_INIT;
	show_plan_text(job, cluster, plan, &text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int show_plan(const struct job *job, const struct cluster *cluster, bool schedule,
		     const struct plan_schedule_options *drawn)
{
	struct plan plan;
	struct err e = ERR_INIT;
	int status;
	if (plan_build(job, cluster, &plan, &e))
		return command_fail(&e);
	if (schedule)
		status = cmd_plan_schedule(job, &plan, drawn);
	else
		status = drawn->json ? print_json(job, cluster, &plan)
				     : print_text(job, cluster, &plan);
	plan_free(&plan);
	return status;
}

int cmd_plan(int argc, char **argv)
{
	bool schedule = false, automatic = false;
	const char *spec = NULL, *range = NULL;
	struct plan_schedule_options drawn = { 0 };
	const struct command_option options[] = {
		{ "--json", &drawn.json, NULL },
		{ "--cluster", NULL, &spec },
		{ "--schedule", &schedule, NULL },
		{ "--svg", NULL, &drawn.svg },
		{ "--measured", &schedule, &drawn.measured },
		{ "--auto", &automatic, NULL },
		{ "--gpus", NULL, &range },
		{ NULL, NULL, NULL },
	};
	struct job job;
	struct err e = ERR_INIT;
	struct cluster cluster;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_job(argc, argv, options, TO_PLAN, &job);
	if (status)
		return status;
	schedule |= drawn.svg && !range;
	if (schedule && (automatic || range))
		return command_misuse(argv[0], "--schedule draws one plan; leave out --auto and "
					       "--gpus, or --schedule, --svg and --measured");
	spec = spec ? spec : job.launch.cluster;
	if (range)
		return cmd_plan_scaling(&job, spec, range, drawn.svg, drawn.json);
	if (launcher_job_cluster_open(&job, spec, &cluster, &e))
		return command_fail(&e);
	if (job.open && schedule && search_resolve(&job, &cluster, &e))
		status = command_fail(&e);
	else
		status = job.open ? cmd_plan_auto(&job, &cluster, drawn.json)
				  : show_plan(&job, &cluster, schedule, &drawn);
	topo_cluster_free(&cluster);
	return status;
}
