/* inject_agents: faults of the agents, and of the processes that started them. */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/drill/injections.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_SECONDS = 60 };

static int last_rank(const struct drill_run *r)
{
	return r->story.last.world - 1;
}

int drill_node_of(const struct drill_run *r, int rank, char *out, size_t size, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	run_path_hosts(path, r->path, (uint32_t)r->story.generation);
	int rc = file_slurp_own(path, 1 << 24, &text, e);
	const char *at = buf_str(&text);
	for (int i = 0; i < rank && *at; i++)
		at += strcspn(at, "\n") + (strchr(at, '\n') != NULL);
	int len = (int)strcspn(at, "\n");
	if (!rc && (!len || (size_t)len >= size))
		rc = err_set(e, ERR_CORRUPT, "%s: it has no node for rank %d", path, rank);
	if (!rc)
		snprintf(out, size, "%.*s", len, at);
	buf_fini(&text);
	return rc;
}

/* kill(1) as a step of the allocation, on a node. */
static int signal_remotely(const char *node, const pid_t *pids, int n, int signal, struct err *e)
{
	enum { OWN = 9, ID = 24 };
	char list[160], number[16], (*ids)[ID] = calloc((size_t)n, ID);
	char **argv = calloc((size_t)(OWN + n + 1), sizeof *argv);
	struct buf output = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = -1;
	snprintf(list, sizeof list, "--nodelist=%s", node);
	snprintf(number, sizeof number, "-%d", signal);
	if (ids && argv) {
		char *own[OWN] = { "srun",    "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none",
				   "--quiet", list,        "kill",      number };
		memcpy(argv, own, sizeof own);
		for (int i = 0; i < n; i++) {
			snprintf(ids[i], ID, "%ld", (long)pids[i]);
			argv[OWN + i] = ids[i];
		}
		const struct child_command c = { .argv = argv, .out = -1, .tied = true };
		rc = launcher_child_run(&c, STEP_SECONDS, &output, &why);
	}
	if (rc)
		err_set(e, ERR_PEER, "the agents on %s cannot be signalled: %s", node,
			*why.text ? why.text : "no memory");
	free(ids);
	free(argv);
	buf_fini(&output);
	return rc;
}

/* The agents of `ranks`, which are on one node. */
static int signal_agents(struct drill_run *r, const int *ranks, int n, int signal, struct err *e)
{
	pid_t *pids = calloc((size_t)n, sizeof *pids);
	char node[128];
	int here = 0, rc = pids ? 0 : err_set(e, ERR_NOMEM, "no memory for %d agents", n);
	for (int i = 0; i < n && !rc; i++) {
		pids[i] = drill_story_agent(&r->story, ranks[i]);
		here += pids[i] && drill_mark_has(pids[i], r->mark);
		if (!pids[i] || (!here && !r->d->slurm))
			rc = err_set(e, ERR_NOTFOUND,
				     "the agent of rank %d has not connected, or has ended",
				     ranks[i]);
	}
	r->injected = clock_s();
	if (!rc && here < n)
		rc = drill_node_of(r, ranks[0], node, sizeof node, e) ||
				     signal_remotely(node, pids, n, signal, e)
			     ? -1
			     : 0;
	else
		for (int i = 0; i < n && !rc; i++)
			rc = drill_process_signal(pids[i], r->mark, signal, e);
	free(pids);
	return rc;
}

int drill_signal_agent(struct drill_run *r, int rank, int signal, struct err *e)
{
	return signal_agents(r, &rank, 1, signal, e);
}

int drill_kill_agent(struct drill_run *r, struct err *e)
{
	return drill_signal_agent(r, last_rank(r), SIGKILL, e);
}

int drill_signal_last_agent(struct drill_run *r, struct err *e)
{
	return drill_signal_agent(r, last_rank(r), r->injection->signal, e);
}

/* All agents of the last rank's node, as if the node had lost its power. */
int drill_kill_node_agents(struct drill_run *r, struct err *e)
{
	char lost[128], node[128];
	int last = last_rank(r), n = 0, *ranks = calloc((size_t)last + 1, sizeof *ranks), rc = -1;
	if (!ranks)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", last + 1);
	if (drill_node_of(r, last, lost, sizeof lost, e))
		goto out;
	for (int rank = 0; rank <= last; rank++) {
		if (drill_node_of(r, rank, node, sizeof node, e))
			goto out;
		if (!strcmp(node, lost))
			ranks[n++] = rank;
	}
	rc = signal_agents(r, ranks, n, SIGKILL, e);
out:
	free(ranks);
	return rc;
}

int drill_stop_agent(struct drill_run *r, struct err *e)
{
	if (drill_signal_agent(r, last_rank(r), SIGSTOP, e))
		return -1;
	r->stopped = drill_story_agent(&r->story, last_rank(r));
	return 0;
}

void drill_continue_agent(struct drill_run *r)
{
	struct err e;
	if (r->stopped)
		drill_process_signal(r->stopped, r->mark, SIGCONT, &e);
	r->stopped = 0;
}

static int kill_helper(struct drill_run *r, const char *program, struct err *e)
{
	pid_t helper = drill_process_child(launcher_child_pid(r->child), program);
	if (!helper)
		return err_set(e, ERR_UNSUPPORTED, "muster has no process %s here", program);
	r->injected = clock_s();
	return drill_process_signal(helper, r->mark, SIGKILL, e);
}

int drill_kill_srun(struct drill_run *r, struct err *e)
{
	return kill_helper(r, "srun", e);
}

int drill_kill_pmix_server(struct drill_run *r, struct err *e)
{
	return kill_helper(r, "muster-pmix", e);
}

int drill_kill_stepd(struct drill_run *r, struct err *e)
{
	pid_t agent = drill_story_agent(&r->story, last_rank(r));
	pid_t stepd = agent && drill_mark_has(agent, r->mark)
			      ? drill_process_parent(agent, "slurmstepd")
			      : 0;
	if (!stepd)
		return err_set(e, ERR_UNSUPPORTED,
			       "the agent of rank %d is not a child of slurmstepd on this host",
			       last_rank(r));
	r->injected = clock_s();
	/* It belongs to the step of an agent that has the mark, but has no mark itself. */
	return kill(stepd, SIGKILL)
		       ? err_errno(e, ERR_DENIED, "slurmstepd (process %ld)", (long)stepd)
		       : 0;
}
