#include "launcher/slurm/queue.h"

#include "base/file.h"
#include "launcher/child.h"
#include "launcher/slurm/admit.h"
#include "launcher/slurm/slurm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern char **environ;

#define SUBMIT_S 60.0
#define TEST_S   30.0
#define CANCEL_S 10.0
#define SHOW_S   3.0

enum { ATTEMPTS = 2, SCRIPT_MAX = 1 << 22 };

static bool is_of_this_job(const char *word)
{
	static const char *const names[] = {
		"SLURM_STEP", "SLURM_NTASKS", "SLURM_NPROCS=",        "SLURM_TASKS_PER_NODE=",
		"SLURM_HET_", "SLURM_PACK_",  "SLURM_ARRAY_",         "PMIX_",
		"PMI_",       "SLURM_JOB",    "SLURM_RESTART_COUNT=",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(word, names[i], strlen(names[i])))
			return true;
	return false;
}

char **slurm_queue_environment(void)
{
	size_t n = 0, kept = 0;
	while (environ[n])
		n++;
	char **env = calloc(n + 1, sizeof *env);
	for (size_t i = 0; env && i < n; i++)
		if (!is_of_this_job(environ[i]))
			env[kept++] = environ[i];
	return env;
}

/* `sbatch --parsable` answers "ID" or "ID;CLUSTER". Warnings may come first: the id is the last line. */
static int parse_id(const char *output, char id[LAUNCH_JOB_ID], struct err *e)
{
	const char *text = output;
	for (const char *nl; (nl = strchr(text, '\n')) && nl[1];)
		text = nl + 1;
	size_t n = strspn(text, "0123456789");
	if (n == 0 || n >= LAUNCH_JOB_ID || (text[n] && !strchr("\n;", text[n])))
		return err_set(
			e, ERR_PROTO,
			"sbatch printed \"%.200s\", which is not a job id; is sbatch in PATH "
			"Slurm's?",
			output);
	snprintf(id, LAUNCH_JOB_ID, "%.*s", (int)n, text);
	return 0;
}

int slurm_queue_submit(const char *script, const char *dependency, char id[LAUNCH_JOB_ID],
		       struct err *e)
{
	struct buf option = BUF_INIT;
	buf_printf(&option, "--dependency=%s", dependency ? dependency : "");
	char *argv[] = { "sbatch", "--parsable",
			 dependency ? (char *)(uintptr_t)buf_str(&option) : NULL, NULL };
	char **env = slurm_queue_environment();
	const struct child_command c = { .argv = argv,
					 .env = env,
					 .input = script,
					 .out = -1,
					 .absent = SLURM_ABSENT,
					 .late = "; is Slurm's controller up (scontrol ping)?" };
	struct buf output = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = env && !buf_failed(&option)
			 ? launcher_child_run(&c, SUBMIT_S, &output, &why)
			 : err_set(&why, ERR_NOMEM, "no memory to submit the job");
	if (rc)
		err_set(e, why.code, "%.900s%s", why.text, slurm_queue_remedy(buf_str(&output)));
	else
		rc = parse_id(buf_str(&output), id, e);
	buf_fini(&output);
	buf_fini(&option);
	free(env);
	return rc;
}

bool slurm_queue_waits(const char *id)
{
	char job[64];
	char *argv[] = { "squeue", "--noheader", "--states=PENDING", "--format=%i", job, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	snprintf(job, sizeof job, "--jobs=%s", id);
	/* Slurm sends its SIGTERM to all processes of the batch step, this command among them. */
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct buf output = BUF_INIT;
		struct err e = ERR_INIT;
		int rc = launcher_child_run(&c, SHOW_S, &output, &e);
		bool listed = strstr(buf_str(&output), id) != NULL;
		bool gone = strstr(buf_str(&output), "Invalid job id") != NULL;
		buf_fini(&output);
		if (!rc || gone)
			return listed && !gone;
	}
	return true;
}

int slurm_queue_cancel(const char *const *ids, int n, struct err *e)
{
	enum { BEFORE = 3 };
	char **argv = calloc((size_t)n + BEFORE + 1, sizeof *argv);
	if (!argv)
		return err_set(e, ERR_NOMEM, "no memory to cancel %d jobs", n);
	argv[0] = "scancel";
	argv[1] = "--quiet";
	argv[2] = "--state=PENDING";
	for (int i = 0; i < n; i++)
		argv[BEFORE + i] = (char *)(uintptr_t)ids[i];
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	struct buf output = BUF_INIT;
	int rc = launcher_child_run(&c, CANCEL_S, &output, e);
	buf_fini(&output);
	free(argv);
	return rc;
}

const char *slurm_own_job(void)
{
	return getenv("SLURM_JOB_ID");
}

struct queueing {
	struct child *sbatch;
	void (*done)(void *arg, const char *id, const char *why);
	void *arg;
};

static void on_submitted(void *arg, int status, const char *output)
{
	struct queueing *q = arg;
	char id[LAUNCH_JOB_ID];
	struct err e = ERR_INIT;
	bool queued = !launcher_child_result("sbatch", status, output, &e) &&
		      !parse_id(output, id, &e);
	q->done(q->arg, queued ? id : NULL, e.text);
	free(q);
}

int slurm_queue_next(uv_loop_t *loop, const char *script,
		     void (*done)(void *arg, const char *id, const char *why), void *arg,
		     struct queueing **out, struct err *e)
{
	char *argv[] = { "sbatch", "--parsable", "--dependency=singleton",
			 (char *)(uintptr_t)script, NULL };
	char **env = slurm_queue_environment();
	struct queueing *q = env ? calloc(1, sizeof *q) : NULL;
	const struct child_command c = {
		.argv = argv, .env = env, .out = -1, .tied = true, .absent = SLURM_ABSENT
	};
	int rc = q ? 0 : err_set(e, ERR_NOMEM, "no memory to submit a job");
	if (!rc) {
		*q = (struct queueing){ .done = done, .arg = arg };
		rc = launcher_child_watch(loop, &c, on_submitted, q, &q->sbatch, e);
	}
	free(env);
	if (rc)
		free(q);
	else
		*out = q;
	return rc;
}

int slurm_queue_submit_again(const char *script, char id[LAUNCH_JOB_ID], struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp_own(script, SCRIPT_MAX, &text, e) ||
				 slurm_queue_submit(buf_str(&text), "singleton", id, e)
			 ? -1
			 : 0;
	buf_fini(&text);
	return rc;
}

void slurm_queue_next_end(struct queueing *q)
{
	launcher_child_signal(q->sbatch, SIGKILL);
	launcher_child_forget(q->sbatch);
	free(q);
}

int slurm_comment(uv_loop_t *loop, const char *text,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e)
{
	char job[64], comment[512];
	char *argv[] = { "scontrol", "update", job, comment, NULL };
	const struct child_command c = {
		.argv = argv, .out = -1, .tied = true, .absent = SLURM_ABSENT
	};
	snprintf(job, sizeof job, "JobId=%s", slurm_own_job());
	snprintf(comment, sizeof comment, "Comment=%s", text);
	return launcher_child_watch(loop, &c, ended, arg, out, e);
}

void slurm_queue_start(const char *script, struct buf *out)
{
	char *argv[] = { "sbatch", "--test-only", NULL };
	char **env = slurm_queue_environment();
	const struct child_command c = { .argv = argv, .env = env, .input = script, .out = -1 };
	struct buf output = BUF_INIT;
	struct err e = ERR_INIT;
	int rc = launcher_child_run(&c, TEST_S, &output, &e);
	if (!rc || (e.code != ERR_TIMEOUT && e.code != ERR_NOTFOUND))
		slurm_admit_wait(buf_str(&output), time(NULL), out);
	buf_fini(&output);
	free(env);
}

/* clang-format off */
static const struct {
	const char *text, *remedy;
} remedies[] = {
	{ "configuration source", "; this host belongs to no Slurm cluster: submit from one that does, or set SLURM_CONF" },
	{ "Unable to contact",    "; Slurm's controller does not answer: submit again when `scontrol ping` says that it is UP" },
	{ "icense",               "; check [slurm] licenses: `scontrol show licenses` lists them" },
	{ "nvalid account",       "; check [slurm] account, partition and qos: `sacctmgr show associations user=$USER` lists yours" },
	{ "nvalid qos",           "; check [slurm] qos: `sacctmgr show associations user=$USER format=account,qos` lists yours" },
	{ "eservation",           "; check [slurm] reservation: `scontrol show reservation` lists them" },
	{ "nvalid node name",     "; check [slurm] nodelist and exclude: `sinfo -N` lists the nodes" },
	{ "ependency",            "; check [slurm] dependency: `squeue --me` lists your jobs" },
	{ "eneric resource",      "; check [slurm] gres: `sinfo -o '%N %G'` lists what the nodes have" },
	{ "feature",              "; check [slurm] constraint: `sinfo -o '%N %f'` lists the nodes' features" },
	{ "partition",            "; check [slurm] partition: `sinfo -s` lists them" },
	{ "unrecognized option",  "; [slurm] options has an option that this sbatch does not know" },
	{ "node configuration",   "; no set of nodes has all that is requested together: check the keys of [slurm], options among them" },
};
/* clang-format on */

const char *slurm_queue_remedy(const char *text)
{
	for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
		if (strstr(text, remedies[i].text))
			return remedies[i].remedy;
	return "";
}
