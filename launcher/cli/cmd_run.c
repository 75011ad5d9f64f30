#include "launcher/cli/command.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/net.h"
#include "launcher/agent_path.h"
#include "launcher/cli/fit_nodes.h"
#include "launcher/cli/launch_choose.h"
#include "launcher/cli/like_torchrun.h"
#include "launcher/cli/suspect_nodes.h"
#include "launcher/deployment.h"
#include "launcher/descriptors.h"
#include "launcher/doctor/doctor.h"
#include "launcher/fit.h"
#include "launcher/job_cluster.h"
#include "launcher/slurm/slurm.h"
#include "launcher/status.h"
#include "launcher/supervise/supervise.h"
#include "plan/search/search.h"
#include "plan/show/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEASE_S = 180 };

static const char help_head[] =
	"muster run — train, or run a program of your own\n"
	"\n"
	"SYNOPSIS\n"
	"  muster run [--quiet] JOB.ini [section.key=value …]\n"
	"  muster run [--quiet] [-n TASKS] [JOB.ini] [section.key=value …] -- PROGRAM ARGUMENT …\n"
	"  muster run --like-torchrun ARGUMENT …\n"
	"\n"
	"DESCRIPTION\n"
	"  Plans the job, prints the plan, starts one agent per device, and runs until the last\n"
	"  step is done. Inside a Slurm allocation srun starts the agents on its nodes, otherwise\n"
	"  they run on this host. If an agent dies, the others are stopped, and all restart from\n"
	"  the last checkpoint. [restart] limits how often.\n"
	"\n"
	"  Everything is in the run folder, [job] run_dir/name: job.ini, plan-N.json,\n"
	"  events.jsonl, metrics.jsonl, logs/, ckpt/. The same command continues from the last\n"
	"  valid checkpoint, in any layout. Another [job] name starts a new run.\n"
	"\n"
	"  On Ctrl-C or SIGTERM the agents finish the step, write a checkpoint and exit. A second\n"
	"  Ctrl-C ends them at once. Under nohup SIGHUP is ignored; any other signal that the\n"
	"  parent ignores or blocks is reset. If the output is a pipe or a file, muster prints\n"
	"  plain lines. The run continues if the reader of the pipe exits, or does not read for a\n"
	"  while, as a pager or a terminal after Ctrl-S: what does not fit into a few MB is then\n"
	"  left out. At the end muster waits 10 s for a reader that does not read.\n"
	"\n"
	"  A program of your own, on the command line or as [job] program, is started once for "
	"each\n"
	"  device, with the environment that torchrun, mpirun and JAX give. No shell reads its\n"
	"  words. Without -n and [parallel] there are as many tasks as devices: the GPUs of the\n"
	"  allocation or of this host, or its cores. The run folder is runs/NAME, with the name "
	"of\n"
	"  the script. If a task fails or hangs, all are ended and started again ([restart]).\n"
	"  SIGTERM and Ctrl-C are passed on to the tasks ([program]).\n"
	"\n"
	"OPTIONS\n"
	"  --quiet          do not print the plan\n"
	"  -n TASKS         of a program: how many tasks\n"
	"  --like-torchrun  print the job file for a command line of torchrun, and start nothing\n"
	"\n"
	"EXAMPLES\n"
	"  muster run demo.ini\n"
	"  muster run demo.ini job.name=wide parallel.dp=4 batch.global=64\n"
	"  muster run -n 8 -- python3 train.py --lr 1e-4\n"
	"  muster run restart.max_restarts=3 parallel.tp=4 -- ./train\n"
	"  muster run --like-torchrun --nproc-per-node 8 train.py --lr 1e-4 > train.ini\n"
	"\n"
	"ENVIRONMENT\n"
	"  MUSTER_AUTH=secret  under Slurm: agents and supervisor do without MUNGE credentials,\n"
	"                      for nodes where munged cannot be reached\n"
	"  MUSTER_AGENT=PATH   the muster-agent to start\n"
	"\n"
	"EXIT STATUS\n"
	"  0   done\n"
	"  1   the job failed\n"
	"  2   usage or job file\n"
	"  3   the job cannot start here\n"
	"  4   gave up after restarts\n"
	"  75  stopped on purpose; the same command continues the run\n"
	"\n"
	"JOB FILE\n"
	"  An INI file. Any key can also be given on the command line as section.key=value.\n"
	"\n";

static int print_help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help_head);
	job_help(&text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* The parts of a run, opened in this order and closed in the reverse one. */
struct run_parts {
	struct job job; /* as it was asked for */
	const struct launch_ops *ops;
	char agent[PATH_MAX];
	struct cluster machines; /* with the spares */
	json_t *spares;          /* their names */
	struct deployment *first;
	char *needs; /* of a node that runs it; NULL: unknown */
	struct suspect_nodes suspects;
	struct rundir *dir;
	struct terminal *term;
	int listener;
	char address[NET_ADDR_MAX];
};

static void run_close(struct run_parts *r)
{
	supervise_terminal_close(r->term);
	rundir_close(r->dir);
	free(r->needs);
	command_suspects_close(&r->suspects);
	launcher_deployment_free(r->first);
	json_decref(r->spares);
	topo_cluster_free(&r->machines);
}

/* Prints the keys that the job left to muster, because nothing shows them until the run folder
 * exists. */
static void print_chosen_keys(const struct job *job)
{
	struct buf words = BUF_INIT;
	struct search_config chosen = search_config_of(job, (int)job->parallel.dp);
	search_config_print(&chosen, &words);
	fprintf(stderr, "muster: chose %s\n", buf_str(&words));
	buf_fini(&words);
}

/* Plans the first generation on the nodes that are not spare. */
static int make_plan(struct run_parts *r, struct err *e)
{
	struct cluster used = { 0 };
	if (launcher_deployment_check(&r->job, e) ||
	    launcher_job_cluster_open(&r->job, r->ops->cluster, &r->machines, e) ||
	    topo_cluster_without(&r->machines, NULL, 0, &used, e))
		return -1;
	command_suspects_open(&r->job, r->ops == &launch_slurm, &r->machines, &r->suspects);
	command_suspects_last(&r->suspects, &used);
	if (launcher_spares_keep(&r->job, &used, &r->spares, e)) {
		topo_cluster_free(&used);
		return -1;
	}
	if (command_fit_nodes(&r->job, &used, r->spares, &r->first, e))
		return -1;
	r->needs = doctor_needs_of_plan(&r->first->job, &r->first->plan, r->first->cluster.n_nodes);
	if (r->job.open)
		print_chosen_keys(&r->first->job);
	return 0;
}

static int open_control(struct run_parts *r, struct err *e)
{
	char host[NET_ADDR_MAX];
	return r->ops->control_host(&r->job, host, e) ||
			       net_listen(host, &r->listener, r->address, e)
		       ? -1
		       : 0;
}

/* When the host of a run dies, a file server frees the run folder's lock only after the lease of
 * that host has expired, 90 s with NFS version 4. A job that was requeued waits for it. */
static int open_run_folder(struct run_parts *r, struct err *e)
{
	const char *starts = getenv("SLURM_RESTART_COUNT");
	double until = clock_s() + (starts && atoi(starts) > 0 ? LEASE_S : 0);
	for (bool waiting = false;; sleep(1)) {
		struct err why = ERR_INIT;
		if (!rundir_open(r->job.job.run_dir, r->job.job.name, &r->dir, &why)) {
			rundir_set_keep(r->dir, (int64_t)(r->job.metrics.keep * (1LL << 30)));
			return 0;
		}
		if (why.code != ERR_ABORTED || clock_s() >= until)
			return err_set(
				e, why.code, "%s%s", why.text,
				why.code == ERR_ABORTED && getenv("SLURM_ARRAY_TASK_ID")
					? "; the tasks of a job array need names of their own: "
					  "job.name=NAME-$SLURM_ARRAY_TASK_ID"
					: "");
		if (!waiting)
			fprintf(stderr,
				"muster: waiting up to %d s for the lock of this job's former "
				"start: %s\n",
				LEASE_S, why.text);
		waiting = true;
	}
}

static int run_open(struct run_parts *r, struct err *e)
{
	struct terminal_options look = { .every = r->job.log.every, .steps = job_steps(&r->job) };
	r->ops = command_launcher(r->job.launch.launcher);
	supervise_terminal_detect(STDOUT_FILENO, &look);
	if (launcher_agent_path(r->agent, sizeof r->agent, e) || make_plan(r, e) ||
	    launcher_descriptors_allow(launcher_deployment_most_ranks(r->first, &r->machines),
				       r->ops->word == LAUNCHER_LOCAL ? 0 : r->machines.n_nodes,
				       e) ||
	    launcher_address_space_allows(&r->first->job, &r->first->plan, e) ||
	    open_run_folder(r, e) || rundir_save_job(r->dir, r->first->job_text, e))
		return -1;
	return supervise_terminal_open(&look, &r->term, e) || open_control(r, e) ? -1 : 0;
}

static void show_plan(struct run_parts *r)
{
	struct buf text = BUF_INIT;
	show_plan_text(&r->first->job, &r->first->cluster, &r->first->plan, &text);
	launcher_spares_print(r->spares, &text);
	supervise_terminal_text(r->term, buf_str(&text));
	buf_fini(&text);
}

static struct supervise_limits limits_of(const struct job *job)
{
	struct supervise_limits l = SUPERVISE_LIMITS;
	l.silent = job->restart.silent_timeout;
	l.start = job->restart.start_timeout;
	l.drain = job->restart.drain_timeout;
	l.handshake = job->restart.handshake_timeout;
	if (job_has_program(job)) { /* interpreters take their time to end, and so do dumps */
		l.settle = 2;
		l.trace = 4;
	}
	return l;
}

static int run_loop(struct run_parts *r)
{
	uv_loop_t loop;
	if (uv_loop_init(&loop)) {
		struct err e;
		err_set(&e, ERR_NOMEM,
			"cannot create an event loop; ulimit -n prints the limit of open files");
		close(r->listener);
		return command_fail(&e);
	}
	const struct supervise_options o = {
		.loop = &loop,
		.job = &r->job,
		.machines = &r->machines,
		.first = r->first,
		.ops = r->ops,
		.agent = r->agent,
		.needs = r->needs,
		.run = r->dir,
		.term = r->term,
		.suspects = r->suspects.kept ? &r->suspects.place : NULL,
		.cluster = r->suspects.cluster,
		.suspected = r->suspects.suspected,
		.listener = r->listener,
		.address = r->address,
		.limits = limits_of(&r->job),
		.now = clock_s,
	};
	int status = supervise_run(&o);
	uv_loop_close(&loop);
	return status;
}

/* The index of the word among muster's own; 0: it is not there. */
static int find_like_torchrun(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--like-torchrun"))
			return i;
	return 0;
}

int cmd_run(int argc, char **argv)
{
	bool quiet = false;
	const char *tasks = NULL;
	const struct command_option options[] = { { "--quiet", &quiet, NULL },
						  { "-n", NULL, &tasks },
						  { NULL, NULL, NULL } };
	static struct run_parts r; /* too large for a small stack */
	struct err e = ERR_INIT;
	int like = find_like_torchrun(argc, argv);
	if (like == 1)
		return command_like_torchrun(argc - 1, argv + 1);
	if (like)
		return command_misuse("run", "--like-torchrun must be the first word; what follows "
					     "it is a command line of torchrun");
	if (command_wants_help(argc, argv))
		return print_help();
	int status = command_run_job(argc, argv, options, &tasks, &r.job);
	if (status)
		return status;
	if (command_launcher(r.job.launch.launcher) == &launch_slurm && slurm_enter_allocation(&e))
		return slurm_speaks() ? command_fail(&e) : STATUS_CANNOT_START;
	if (run_open(&r, &e)) {
		status = command_fail(&e);
	} else {
		if (!quiet)
			show_plan(&r);
		status = run_loop(&r);
	}
	run_close(&r);
	return status;
}
