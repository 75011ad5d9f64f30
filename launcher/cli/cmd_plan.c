#include "launcher/cli/cmd_plan.h"

#include "base/file.h"
#include "launcher/cli/command.h"
#include "launcher/cli/fit_nodes.h"
#include "launcher/cli/output.h"
#include "launcher/deployment.h"
#include "launcher/fit.h"
#include "launcher/job_cluster.h"
#include "launcher/supervise/supervise.h"
#include "plan/plan.h"
#include "plan/show/plan.h"

#include <stdio.h>

static const char help[] =
	"muster plan — show a job's layout, rank map, memory per rank and predicted step time\n"
	"\n"
	"SYNOPSIS\n"
	"  muster plan [--cluster SPEC] [--json] JOB.ini [section.key=value …]\n"
	"  muster plan --auto [--cluster SPEC] [--json] JOB.ini [section.key=value …]\n"
	"  muster plan --gpus 64..4096 [--cluster SPEC] [--svg FILE] [--json] JOB.ini\n"
	"              [section.key=value …]\n"
	"  muster plan --schedule [--svg FILE] [--measured RUN] [--json] JOB.ini\n"
	"              [section.key=value …]\n"
	"\n"
	"DESCRIPTION\n"
	"  Plans the job as `muster run` would, and starts nothing. plan.engine names another\n"
	"  program whose steps and memory are predicted instead, such as fsdp-compiled; muster\n"
	"  does not run it.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   the machine to plan for, instead of the job's [launch] cluster:\n"
	"                   local, slurm, or PRESET:NODES, such as dgx-h100:128\n"
	"  --auto           find the fastest layout that fits: degrees, schedule, micro-batch,\n"
	"                   ZeRO, recomputation, offloading, sequence parallelism. Keys after\n"
	"                   JOB.ini stay as given; the same keys in the file do not. In a file,\n"
	"                   [parallel] auto = yes does this and keeps the keys of the file; so\n"
	"                   does the value auto of a single key. Prints the best layout, how\n"
	"                   much slower the next ones are, which are faster but do not fit,\n"
	"                   memory against time, and the lines for the job file. On nodes of\n"
	"                   several kinds it also finds which kinds to use, and gives slower\n"
	"                   devices less work (launch.speeds) where that pays\n"
	"  --gpus RANGE     run --auto for each size of the cluster, here from 64 to 4096\n"
	"                   devices, doubling, with the same global batch; with --svg FILE draw\n"
	"                   it, too\n"
	"  --json           print the plan as in the run folder's plan-<generation>.json; with\n"
	"                   --schedule the passes and their times in seconds\n"
	"  --schedule       draw the pipeline's schedule: one row per rank, time to the right,\n"
	"                   each pass with the number of its micro-batch, simulated with the\n"
	"                   predicted times. The drawing is cut at the width of the terminal\n"
	"  --svg FILE       also write the whole drawing to FILE, for slides; passes that are too\n"
	"                   narrow to see are merged. Your umask decides who may read the file.\n"
	"                   Implies --schedule, except with --gpus\n"
	"  --measured RUN   also draw what the run in this folder measured in its last step, with\n"
	"                   both bubbles. The simulation then uses the measured times of the\n"
	"                   passes. Implies --schedule. JOB.ini must be the run's own\n"
	"\n"
	"PLACEMENT\n"
	"  The plan shows which device each rank gets, and why: the seconds per step that ranks\n"
	"  wait for transfers with this map, with Slurm's --distribution=block, and with the\n"
	"  worst map that was tried. For each kind of group it then shows its ranks, their\n"
	"  nodes, the links between them (the slowest inside a node; rails: NICs of the same\n"
	"  position; leaf, spine: the level of switches), a rank's bandwidth while all ranks\n"
	"  send, and the seconds of a step's transfers. The last column is the part that ranks\n"
	"  wait for; the rest overlaps with computation. These times are rougher than those of\n"
	"  the step, which are below them. What the description of the machines lacks, and what\n"
	"  is assumed in its place, is listed next.\n"
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
	"  0  planned\n"
	"  1  the answer cannot be written\n"
	"  2  usage or job file\n"
	"  3  the machine cannot hold the job\n";

static int print_text(const struct deployment *d, const json_t *spares)
{
	struct buf text = BUF_INIT;
	show_plan_text(&d->job, &d->cluster, &d->plan, &text);
	launcher_spares_print(spares, &text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Takes over the cluster. */
static int show_plan(const struct job *job, struct cluster *cluster, json_t *spares, bool schedule,
		     const struct plan_schedule_options *drawn)
{
	struct deployment *d;
	struct err e = ERR_INIT;
	if (command_fit_nodes(job, cluster, spares, &d, &e))
		return command_fail(&e);
	int status = schedule      ? cmd_plan_schedule(&d->job, &d->plan, drawn)
		     : drawn->json ? command_output_json(json_incref(d->plan_doc), STATUS_DONE)
				   : print_text(d, spares);
	launcher_deployment_free(d);
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
	static struct job job; /* too large for a small stack */
	struct err e = ERR_INIT;
	struct cluster cluster;
	json_t *spares = NULL;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_job(argc, argv, options, TO_PLAN, &job);
	if (status)
		return status;
	schedule |= drawn.svg && !range;
	if (schedule && (automatic || range))
		return command_misuse(argv[0], "--schedule draws one plan; leave out --auto and "
					       "--gpus, or --schedule, --svg and --measured");
	/* A measured run is muster's own. */
	if (drawn.measured && launcher_deployment_check(&job, &e))
		return command_fail(&e);
	if (job_has_program(&job) && (schedule || automatic || range))
		return command_misuse(argv[0], "muster knows neither the steps nor the memory of a "
					       "program (job.program); leave out --schedule, "
					       "--svg, --measured, --auto and --gpus");
	if (drawn.svg && file_replace_check(drawn.svg, &e))
		return command_fail(&e);
	bool option = spec != NULL;
	spec = spec ? spec : job.launch.cluster;
	if (range)
		return cmd_plan_scaling(&job, spec, range, drawn.svg, drawn.json);
	if (launcher_job_cluster_open(&job, spec, &cluster, &e)) {
		if (option)
			err_prefix(&e, "--cluster");
		return command_fail(&e);
	}
	if (launcher_spares_keep(&job, &cluster, &spares, &e)) {
		topo_cluster_free(&cluster);
		return command_fail(&e);
	}
	if (job.open && !schedule) {
		status = cmd_plan_auto(&job, &cluster, spares, drawn.json);
		topo_cluster_free(&cluster);
	} else {
		status = show_plan(&job, &cluster, spares, schedule, &drawn);
	}
	json_decref(spares);
	return status;
}
