/* inject_agents: faults of the agents, and of the processes that started them. */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/drill/injections.h"

#include <signal.h>
#include <stdio.h>
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

/* kill(1) as a step of the allocation, on the rank's node. */
static int signal_remotely(struct drill_run *r, int rank, pid_t pid, int signal, struct err *e)
{
	char node[128], list[160], number[16], id[24];
	struct buf output = BUF_INIT;
	if (drill_node_of(r, rank, node, sizeof node, e))
		return -1;
	snprintf(list, sizeof list, "--nodelist=%s", node);
	snprintf(number, sizeof number, "-%d", signal);
	snprintf(id, sizeof id, "%ld", (long)pid);
	char *argv[] = { (char[]){ "srun" },
			 (char[]){ "--overlap" },
			 (char[]){ "--nodes=1" },
			 (char[]){ "--ntasks=1" },
			 (char[]){ "--mpi=none" },
			 (char[]){ "--quiet" },
			 list,
			 (char[]){ "kill" },
			 number,
			 id,
			 NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	int rc = launcher_child_run(&c, STEP_SECONDS, &output, e);
	buf_fini(&output);
	return rc;
}

int drill_signal_agent(struct drill_run *r, int rank, int signal, struct err *e)
{
	pid_t pid = drill_story_agent(&r->story, rank);
	if (!pid)
		return err_set(e, ERR_NOTFOUND, "the agent of rank %d has not connected", rank);
	bool here = drill_mark_has(pid, r->mark);
	if (!here && !r->d->slurm)
		return err_set(e, ERR_NOTFOUND, "the agent of rank %d has ended already", rank);
	r->injected = clock_s();
	return here ? drill_process_signal(pid, r->mark, signal, e)
		    : signal_remotely(r, rank, pid, signal, e);
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
	int last = last_rank(r);
	if (drill_node_of(r, last, lost, sizeof lost, e))
		return -1;
	for (int rank = last; rank >= 0; rank--)
		if (drill_node_of(r, rank, node, sizeof node, e) ||
		    (!strcmp(node, lost) && drill_signal_agent(r, rank, SIGKILL, e)))
			return -1;
	return 0;
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

int drill_kill_helper(struct drill_run *r, struct err *e)
{
	pid_t muster = launcher_child_pid(r->child);
	pid_t helper = drill_process_child(muster, r->d->slurm ? "srun" : "muster-pmix");
	if (!helper)
		return err_set(e, ERR_UNSUPPORTED, "muster has no such process here");
	r->injected = clock_s();
	return drill_process_signal(helper, r->mark, SIGKILL, e);
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
