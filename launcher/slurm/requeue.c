/*
 * requeue: puts the job that this process runs in back into the queue, without some nodes.
 *
 * Slurm refuses to change a running job, and `scontrol requeue` ends the batch script, which is
 * this process. But the job is already pending then, and changes are accepted, while Slurm waits
 * for the end of the script: it sends SIGTERM, and SIGKILL only after KillWait (30 s by default).
 * So the changes are made in that time, by the process that is being ended:
 *
 *     scontrol requeue J                              accepted: the job will start again
 *     scontrol update jobid=J ExcNodeList=… NumNodes=MIN-MAX … StartTime=now+START_DELAY_S
 *
 * The job is never held. If this process dies in between, or the update is refused, the job starts
 * again with its old options; the next start then finds out itself which nodes are bad.
 *
 * NumTasks and NumCPUs fit MIN nodes, because Slurm holds a job (Reason=BadConstraints) whose nodes
 * without the excluded ones could never satisfy its request. Slurm 22.05 then allocates MIN nodes,
 * also if more are free. For the same reason nothing is excluded if the partition would have fewer
 * than MIN nodes left.
 *
 * Without a start time in the future Slurm delays a requeued job by the life of its credential,
 * 121 s. The old processes must have ended by then, so the time is not "now".
 *
 * SIGTERM reaches every process of the batch step, so it also kills the first scontrol that runs
 * after the requeue. A command that a signal ended is run again.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "launcher/child.h"
#include "launcher/slurm/job_record.h"
#include "launcher/slurm/slurm.h"
#include "topo/hostlist.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_S 10.0
#define UPDATE_S  10.0 /* less than KillWait */
enum { START_DELAY_S = 15, AGAIN_US = 200000 };

static int run_scontrol(char *const *argv, double timeout_s, struct buf *output, struct err *e)
{
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	return launcher_child_run(&c, timeout_s, output, e);
}

static int show_job(const char *job, struct job_record *out, struct err *e)
{
	char *argv[] = { "scontrol", "--oneliner", "show", "job", (char *)(uintptr_t)job, NULL };
	struct buf text = BUF_INIT;
	int rc = run_scontrol(argv, COMMAND_S, &text, e);
	if (!rc)
		rc = slurm_job_record_parse(buf_str(&text), job, out, e);
	buf_fini(&text);
	return rc;
}

/* 0: unknown. */
static int count_partition(const char *partition)
{
	char *argv[] = {
		"scontrol", "--oneliner", "show", "partition", (char *)(uintptr_t)partition, NULL
	};
	struct buf text = BUF_INIT;
	int n = run_scontrol(argv, COMMAND_S, &text, NULL) ? 0
							   : slurm_partition_nodes(buf_str(&text));
	buf_fini(&text);
	return n;
}

static bool excludes(const struct hostlist *h, const char *name)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->names[i], name))
			return true;
	return false;
}

/* Writes "ExcNodeList=…": the nodes that the job excludes already, and `exclude`. Writes nothing if
 * there are none, or if too few nodes would be left; *refused says why. */
static int list_excluded(const struct job_record *r, const char *exclude, int min_nodes,
			 struct buf *out, struct err *refused, struct err *e)
{
	struct hostlist more = { .n = 0 };
	if (!*exclude)
		return 0;
	int n = r->excluded.n, all = count_partition(r->partition);
	if (topo_hostlist_expand(exclude, &more, e))
		return -1;
	buf_puts(out, "ExcNodeList=");
	for (int i = 0; i < r->excluded.n; i++)
		buf_printf(out, "%s,", r->excluded.names[i]);
	for (int i = 0; i < more.n; i++)
		n += !excludes(&r->excluded, more.names[i]);
	buf_puts(out, exclude);
	if (all && all - n < min_nodes) {
		buf_clear(out);
		err_set(refused, ERR_NOFIT,
			"%s is not excluded: partition %s has %d nodes, and fewer than %d would be "
			"left",
			exclude, r->partition, all, min_nodes);
	}
	topo_hostlist_free(&more);
	return 0;
}

/* How many tasks a node gets: as requested, otherwise as this job's first node got. 0: unknown. */
static int tasks_per_node(const struct job_record *r)
{
	const char *counts = getenv("SLURM_TASKS_PER_NODE");
	long n = r->tasks_per_node;
	if (!n && counts)
		n = strtol(counts, NULL, 10);
	return n > 0 && n < 1000000 ? (int)n : 0;
}

/* Repeats the update until it is accepted or UPDATE_S have passed. */
static int update_job(const char *job, const struct job_record *r, char *excluded, int min_nodes,
		      int max_nodes, struct err *e)
{
	enum { WORDS = 4, WORD = 96 };
	char id[WORD], start[WORD], nodes[WORD], tasks[WORD], cpus[WORD];
	char *argv[12] = { "scontrol", "update", id, start };
	int n = WORDS, per = tasks_per_node(r), rc;
	snprintf(id, sizeof id, "JobId=%s", job);
	snprintf(start, sizeof start, "StartTime=now+%d", START_DELAY_S);
	if (*excluded)
		argv[n++] = excluded;
	if (min_nodes > 0) {
		snprintf(nodes, sizeof nodes, "NumNodes=%d-%d", min_nodes, max_nodes);
		argv[n++] = nodes;
	}
	if (min_nodes > 0 && per) {
		long long all = (long long)min_nodes * per;
		snprintf(tasks, sizeof tasks, "NumTasks=%lld", all);
		snprintf(cpus, sizeof cpus, "NumCPUs=%lld", all * r->cpus_per_task);
		argv[n++] = tasks;
		argv[n++] = cpus;
	}
	for (double until = clock_s() + UPDATE_S;; usleep(AGAIN_US)) {
		struct buf output = BUF_INIT;
		struct err why = ERR_INIT;
		rc = run_scontrol(argv, UPDATE_S, &output, &why);
		buf_fini(&output);
		if (rc && clock_s() < until)
			continue;
		return rc ? err_set(e, why.code, "%s", why.text) : 0;
	}
}

/* Whether the controller has accepted the requeue although scontrol failed: it was killed, or the
 * answer came too late. */
static bool is_requeued(const char *job)
{
	struct job_record r;
	if (show_job(job, &r, NULL))
		return false;
	bool running = slurm_job_state_is_running(r.state);
	slurm_job_record_free(&r);
	return !running;
}

static int requeue_job(const char *job, struct err *e)
{
	char *argv[] = { "scontrol", "requeue", (char *)(uintptr_t)job, NULL };
	struct buf output = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = run_scontrol(argv, COMMAND_S, &output, &why);
	buf_fini(&output);
	if (!rc || is_requeued(job))
		return 0;
	return err_set(e, why.code, "%s", why.text);
}

int slurm_requeue(const char *exclude, int min_nodes, int max_nodes, struct err *e)
{
	const char *job = getenv("SLURM_JOB_ID");
	struct job_record r;
	struct buf excluded = BUF_INIT;
	struct err refused = ERR_INIT;
	if (!job)
		return err_set(e, ERR_NOTFOUND,
			       "this process runs in no Slurm job, so there is "
			       "none to requeue");
	if (show_job(job, &r, e))
		return -1;
	int rc = -1;
	/* Slurm would requeue even a job that a person has cancelled a moment ago. */
	if (!slurm_job_state_is_running(r.state))
		err_set(e, ERR_ABORTED, "job %s is being ended already (%s)", job, r.state);
	else if (!r.can_requeue)
		err_set(e, ERR_UNSUPPORTED,
			"job %s cannot be requeued: it is no batch job, or Requeue=0; submit it "
			"with sbatch --requeue",
			job);
	else if (!list_excluded(&r, exclude, min_nodes, &excluded, &refused, e) &&
		 !requeue_job(job, e))
		rc = 0;
	if (!rc && update_job(job, &r, (char *)(uintptr_t)buf_str(&excluded), min_nodes, max_nodes,
			      &refused))
		err_prefix(&refused, "job %s is requeued with its old options", job);
	if (!rc && *refused.text)
		err_set(e, refused.code, "%s", refused.text);
	buf_fini(&excluded);
	slurm_job_record_free(&r);
	return rc;
}
