#include "base/process.h"
#include "base/run_paths.h"
#include "launcher/cli/command.h"
#include "launcher/cli/submit_checks.h"
#include "launcher/cli/submit_jobs.h"
#include "launcher/cli/suspect_nodes.h"
#include "launcher/fit.h"
#include "launcher/slurm/admit.h"
#include "launcher/slurm/script.h"
#include "launcher/slurm/slurm.h"
#include "launcher/supervise/supervise.h"
#include "launcher/template.h"
#include "plan/plan.h"
#include "plan/search/search.h"
#include "plan/spec/job/sbatch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help_head[] =
	"muster submit — submit a job to Slurm's queue\n"
	"\n"
	"SYNOPSIS\n"
	"  muster submit [--dry-run] [--chain N] JOB.ini [section.key=value …]\n"
	"  muster submit [--dry-run] [--chain N] [-n TASKS] [JOB.ini] [section.key=value …]\n"
	"                -- PROGRAM ARGUMENT …\n"
	"\n"
	"DESCRIPTION\n"
	"  Checks the job, writes the resolved job to its run folder, and gives sbatch a script\n"
	"  made from templates/sbatch.in. In the allocation the script runs `muster run` on that\n"
	"  job. Prints the job id. Several jobs of one run folder may be queued, and each runs as\n"
	"  it was submitted. Only one can run at a time: a job ends with status 3 if another run\n"
	"  is active in its folder when it starts. With slurm.dependency = singleton it waits.\n"
	"\n"
	"  Before a job is queued, `submit` checks the data, the checkpoint to resume from and "
	"the\n"
	"  CUDA library on this host, and compares the request with the cluster's partitions,\n"
	"  nodes and accounts: a job that Slurm could never start is refused with the reason. It\n"
	"  prints when Slurm expects to start the job. With a template of your own\n"
	"  (MUSTER_TEMPLATES), which may bring files to the nodes, files that are missing here "
	"are\n"
	"  warnings.\n"
	"\n"
	"  [slurm] sets what to request, and other options of sbatch. SBATCH OPTIONS below lists\n"
	"  the keys, and `muster run --help` explains each. slurm.options takes any other option\n"
	"  of sbatch, such as --nice=100. Without gpus_per_node a node gets as many agents as\n"
	"  the degrees need, with whole tensor-parallel groups if they fit. If [launch] cluster\n"
	"  names a machine, such as dgx-h100:16, the plan is checked against it first, on the\n"
	"  most and on the fewest nodes.\n"
	"\n"
	"  nodes = 3-4 requests from 3 to 4 nodes, and the run starts on as many as Slurm has.\n"
	"  If they cannot hold the degrees, the layout changes as restart.shrink says, and the\n"
	"  global batch stays. A range is refused if its minimum can hold no layout that is\n"
	"  permitted. spares = 1 requests one node more, which stays unused until a node is\n"
	"  lost.\n"
	"\n"
	"  If the run can go on without a node (it has spares, or several nodes and\n"
	"  restart.shrink is not keep), the script has --no-kill, and muster itself decides\n"
	"  what to do when a node is lost. Otherwise Slurm ends the job then, and requeues it\n"
	"  if requeue = yes. A requeued job writes on at the end of its log.\n"
	"\n"
	"  On scancel, on a preemption, and signal_before seconds before the time limit, the run\n"
	"  writes a checkpoint and stops. After a preemption or a time limit muster requeues the\n"
	"  job if requeue = yes. Otherwise the same submission continues from there.\n"
	"\n"
	"  A run that is longer than the time limit can also be a chain of jobs. --chain 5 queues\n"
	"  five jobs now. With slurm.chain = yes each job queues the next one after its first\n"
	"  step. A job of a chain starts when those before it have ended, in whatever way, and\n"
	"  continues from the last checkpoint. The jobs that still wait are cancelled when the\n"
	"  run is done, has failed, or is stopped by a person or scancel.\n"
	"\n"
	"  On a host without Slurm's commands, slurm.rest names slurmrestd, Slurm's REST\n"
	"  interface: the options of the script become fields of a request. It needs a token, in\n"
	"  SLURM_JWT or in the file that slurm.rest_token_file names. An option that it cannot\n"
	"  express is refused, and it makes no forecast of the start. `muster queue` shows,\n"
	"  changes and cancels the jobs.\n"
	"\n"
	"OPTIONS\n"
	"  --dry-run    print the script, then what the checks find; write and submit nothing.\n"
	"               The exit status is 3 if the job would be refused\n"
	"  --chain N    queue N jobs of the same run, which follow one another\n"
	"  -n TASKS     of a program: how many tasks\n"
	"\n"
	"SBATCH OPTIONS\n";

static const char help_tail[] =
	"\n"
	"FILES\n"
	"  RUN/submit-N.ini        the submitted job, which is the job that runs; N counts the\n"
	"                          submissions\n"
	"  RUN/submit-N.sbatch     the batch script of the submission\n"
	"  RUN/submissions.jsonl   the queued jobs of the run, a line each\n"
	"  RUN/logs/slurm-ID.out   the output of `muster run`\n"
	"  sbatch.in               the template: in $MUSTER_TEMPLATES, or in\n"
	"                          PREFIX/share/muster/templates\n"
	"\n"
	"EXAMPLES\n"
	"  muster submit job.ini slurm.nodes=4 slurm.time=2:00:00\n"
	"  muster submit job.ini slurm.nodes=3-4 slurm.spares=1\n"
	"  muster submit --chain 5 job.ini slurm.time=12:00:00\n"
	"  muster submit job.ini slurm.mem=200G slurm.mail_type=END,FAIL slurm.options=--nice=100\n"
	"  muster submit --dry-run job.ini\n"
	"  muster submit job.device=cuda slurm.nodes=4 slurm.gpus_per_node=8 -- python3 train.py\n"
	"  muster submit job.ini slurm.rest=https://login.example.org:6820\n"
	"\n"
	"EXIT STATUS\n"
	"  0  submitted; the job's own exit status is that of `muster run`\n"
	"  1  the job id cannot be printed\n"
	"  2  usage or job file\n"
	"  3  the job cannot be submitted\n";

struct submission {
	struct job job;
	char run_dir[PATH_MAX + JOB_TEXT]; /* absolute */
	struct script_size size;           /* what the script requests */
	uint32_t number;                   /* number of this submission */
	int jobs;                          /* to queue */
	char file[RUN_PATH];               /* the job as submitted */
	char muster[PATH_MAX];             /* this program */
	struct slurm_controller *controller;
	struct site site;      /* empty: Slurm has not said what it has */
	struct err site_error; /* why not */
};

/* Makes a path absolute that need not exist. */
static int make_absolute(const char *path, char out[PATH_MAX], struct err *e)
{
	char here[PATH_MAX] = "";
	if (*path != '/' && !getcwd(here, sizeof here))
		return err_errno(e, ERR_IO, "cannot read the path of the current folder");
	int n = snprintf(out, PATH_MAX, "%s%s%s", here, *here ? "/" : "", path);
	return n < PATH_MAX
		       ? 0
		       : err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
}

/* Plans on the fewest nodes that the run may start with. Takes over the cluster. */
static int check_fewest(const struct job *job, struct cluster *c, struct err *e)
{
	struct deployment *d = NULL;
	struct buf said = BUF_INIT;
	int min = (int)job->slurm.nodes.min;
	if (job->slurm.nodes.min == job->slurm.nodes.max || min >= c->n_nodes) {
		topo_cluster_free(c);
		return 0;
	}
	int rc = launcher_nodes_first(c, min, e);
	if (rc)
		topo_cluster_free(c);
	else if (launcher_fit_build(job, c, false, &d, &said, e))
		rc = err_prefix(e, "on the fewest of [slurm] nodes, %d", min);
	launcher_deployment_free(d);
	buf_fini(&said);
	return rc;
}

/* If the job names a machine, plans on it and sets the keys that the job leaves to muster. The
 * allocation is not known yet. */
static int check_plan(struct job *job, struct err *e)
{
	static const char *const unknown[] = { "", "auto", "local", "slurm" };
	if (launcher_deployment_check(job, e))
		return -1;
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		if (!strcmp(job->launch.cluster, unknown[i]))
			return 0;
	struct cluster cluster;
	struct plan plan;
	json_t *spares = NULL;
	if (topo_cluster_open(job->launch.cluster, 0, &cluster, e))
		return err_prefix(e, "[launch] cluster");
	int rc = launcher_spares_keep(job, &cluster, &spares, e) ||
				 search_resolve(job, &cluster, e) ||
				 plan_build(job, &cluster, &plan, e)
			 ? -1
			 : 0;
	json_decref(spares);
	if (rc) {
		topo_cluster_free(&cluster);
		return -1;
	}
	plan_free(&plan);
	return check_fewest(job, &cluster, e);
}

static int open_submission(struct submission *s, struct err *e)
{
	char parent[PATH_MAX];
	if (check_plan(&s->job, e))
		return -1;
	if (s->job.open && slurm_script_gpus(&s->job) <= 0)
		return err_set(
			e, ERR_USAGE,
			"the job leaves keys of [parallel] to muster (auto), so the number of "
			"agents is unknown; set slurm.nodes and slurm.gpus_per_node, or set "
			"[launch] cluster to the kind of machine, such as dgx-h100:16");
	s->job.launch.launcher = LAUNCHER_SLURM;
	if (make_absolute(s->job.job.run_dir, parent, e))
		return -1;
	if (strlen(parent) >= sizeof s->job.job.run_dir)
		return err_set(e, ERR_USAGE,
			       "[job] run_dir: the path %.200s… is too long; choose a shorter one",
			       parent);
	strcpy(s->job.job.run_dir, parent);
	snprintf(s->run_dir, sizeof s->run_dir, "%s/%s", parent, s->job.job.name);
	s->number = rundir_next_submission(s->run_dir);
	run_path_submission(s->file, s->run_dir, s->number);
	ssize_t len = readlink("/proc/self/exe", s->muster, sizeof s->muster - 1);
	if (len < 0)
		return err_errno(e, ERR_NOTFOUND,
				 "cannot read the path of this program from /proc/self/exe; is "
				 "/proc mounted?");
	s->muster[len] = '\0';
	return 0;
}

static int build_script(struct submission *s, struct buf *out, struct err *e)
{
	struct buf text = BUF_INIT, options = BUF_INIT, command = BUF_INIT;
	char mask[8];
	snprintf(mask, sizeof mask, "%04o", (unsigned)process_inherited_umask() & 0777);
	int rc = launcher_template_read("sbatch.in", &text, e);
	if (!rc)
		rc = slurm_script_size(&s->job, &s->size, e);
	if (!rc)
		rc = slurm_script_options(&s->job, &s->size, s->run_dir, &options, e);
	if (!rc) {
		slurm_script_quote(s->muster, &command);
		buf_puts(&command, " run ");
		slurm_script_quote(s->file, &command);
		const struct template_value values[] = {
			{ "options", buf_str(&options) },
			{ "umask", mask },
			{ "command", buf_str(&command) },
			{ NULL, NULL },
		};
		rc = launcher_template_render(buf_str(&text), values, out, e);
	}
	buf_fini(&command);
	buf_fini(&options);
	buf_fini(&text);
	return rc;
}

/* The run folder must exist before the job starts, because Slurm opens the log in it. */
static int prepare_run(const struct submission *s, const char *script, struct err *e)
{
	struct buf text = BUF_INIT;
	job_write(&s->job, &text);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "no memory for the job")
				   : rundir_save_submission(s->job.job.run_dir, s->job.job.name,
							    s->number, buf_str(&text), script, e);
	buf_fini(&text);
	return rc;
}

/* Refuses what can be known before the job is queued. *absent: without Slurm's commands only the files
 * are checked; NULL: these are needed. */
static int check_submission(const struct submission *s, bool *absent, struct err *e)
{
	const struct err *why = &s->site_error;
	struct buf warnings = BUF_INIT;
	int rc = command_submit_files(&s->job, &s->size, &warnings, e);
	if (!rc && why->code == ERR_NOTFOUND && absent) {
		*absent = true;
		buf_printf(&warnings, "the request was not compared with a cluster: %s\n",
			   why->text);
	} else if (!rc && why->code) {
		rc = err_set(e, why->code, "%s", why->text);
	} else if (!rc) {
		rc = slurm_admit(&s->job, &s->size, &s->site, &warnings, e);
	}
	if (!rc)
		command_lines("warning: ", buf_str(&warnings));
	buf_fini(&warnings);
	return rc;
}

/* When the first job is expected to start, in lines. The test does not count dependencies. */
static void expect_start(const struct job *job, struct slurm_controller *controller,
			 const char *script, struct buf *out)
{
	if (*job->slurm.dependency)
		buf_printf(out, "Slurm starts the job after its dependency, %s\n",
			   job->slurm.dependency);
	else
		slurm_controller_start(controller, script, out);
}

/* Prints the script, then what a submission would meet. */
static int print_script(const struct submission *s, const char *script, struct err *e)
{
	struct buf start = BUF_INIT;
	bool absent = false;
	int status = command_help(script);
	if (status)
		return status;
	int rc = check_submission(s, &absent, e);
	if (!rc && !absent)
		expect_start(&s->job, s->controller, script, &start);
	command_lines("", buf_str(&start));
	buf_fini(&start);
	return rc ? command_fail(e) : STATUS_DONE;
}

/* Whether the answer to a submission was lost: the job may be in the queue, and needs its files. */
static bool may_be_queued(const struct err *e)
{
	static const char *const lost[] = { "timed out", "receive failure", "Zero Bytes" };
	for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
		if (strcasestr(e->text, lost[i]))
			return true;
	return e->code == ERR_TIMEOUT || e->code == ERR_NET || e->code == ERR_PROTO ||
	       e->code == ERR_IO;
}

static int submit_script(const struct submission *s, const char *script, struct err *e)
{
	char log[RUN_PATH], first[LAUNCH_JOB_ID] = "";
	struct buf start = BUF_INIT;
	bool existed = !access(s->run_dir, F_OK);
	int queued = 0;
	const struct submit_jobs jobs = { .controller = s->controller,
					  .script = script,
					  .run_dir = s->run_dir,
					  .dependency = s->job.slurm.dependency,
					  .number = s->number,
					  .n = s->jobs,
					  .chained = s->jobs > 1 || s->job.slurm.chain };
	umask(077); /* Slurm passes it to the job and its log; the script sets the user's */
	if (check_submission(s, NULL, e))
		return command_fail(e);
	expect_start(&s->job, s->controller, script, &start);
	bool prepared = !prepare_run(s, script, e);
	int rc = prepared ? command_submit_jobs(&jobs, first, &queued, e) : -1;
	bool lost = rc && prepared && may_be_queued(e);
	if (!queued && !lost)
		/* The number may be another submission's if the run is not prepared. */
		rundir_drop_submission(s->run_dir, prepared ? s->number : 0, !existed);
	if (queued)
		command_lines("", buf_str(&start));
	buf_fini(&start);
	if (lost && !strstr(e->text, "may be in the queue"))
		fprintf(stderr,
			"muster: warning: the job may be in the queue all the same, so its files "
			"stay "
			"in %s; squeue --me shows it\n",
			s->run_dir);
	if (rc)
		return command_fail(e);
	run_path_slurm_log(log, s->run_dir, first);
	fprintf(stderr, "muster: submitted; the output of the %sjob goes to %s\n",
		queued > 1 ? "first " : "", log);
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

/* The keys of the job that are options of sbatch, from the table. */
static void list_options(struct buf *out)
{
	for (int i = 0; i < job_n_sbatch; i++) {
		const struct job_sbatch *row = &job_sbatch_table[i];
		if (row->kind == SBATCH_BARRED)
			continue;
		char name[64];
		job_key_name(row->key, name, sizeof name);
		buf_printf(out, "  %-22s --%s\n", name, row->option);
	}
}

static int print_help(void)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, help_head);
	list_options(&text);
	buf_puts(&text, help_tail);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

/* Asks Slurm what it has, and leaves out nodes of the list of suspects if the job says so. */
static int ask_site(struct submission *s, struct err *e)
{
	struct buf warnings = BUF_INIT;
	if (slurm_controller_site(s->controller, &s->site, &s->site_error))
		return 0;
	int rc = command_suspects_exclude(&s->job, &s->site, &warnings, e);
	if (!rc)
		command_lines("warning: ", buf_str(&warnings));
	buf_fini(&warnings);
	return rc;
}

static int submit(struct submission *s, bool dry, struct err *e)
{
	struct buf script = BUF_INIT;
	int status;
	if (slurm_controller_open(&s->job, &s->controller, e))
		return command_fail(e);
	if (ask_site(s, e) || build_script(s, &script, e))
		status = command_fail(e);
	else
		status = dry ? print_script(s, buf_str(&script), e)
			     : submit_script(s, buf_str(&script), e);
	buf_fini(&script);
	slurm_site_free(&s->site);
	slurm_controller_close(s->controller);
	return status;
}

int cmd_submit(int argc, char **argv)
{
	bool dry = false;
	const char *chain = NULL, *tasks = NULL;
	const struct command_option options[] = { { "--dry-run", &dry, NULL },
						  { "--chain", NULL, &chain },
						  { "-n", NULL, &tasks },
						  { NULL, NULL, NULL } };
	struct err e = ERR_INIT;
	static struct submission s; /* too large for a small stack */
	if (command_wants_help(argc, argv))
		return print_help();
	int status = command_run_job(argc, argv, options, &tasks, &s.job);
	if (status)
		return status;
	if (command_submit_chain(chain, s.job.slurm.chain, s.job.slurm.dependency, &s.jobs, &e) ||
	    open_submission(&s, &e))
		return command_fail(&e);
	return submit(&s, dry, &e);
}
