/*
 * activity — what the processes of a task use: all below one process, and that process itself.
 *
 * The process is the keeper (keeper.h), because it waits for processes whose parents ended before
 * them: their CPU time counts as that of its children. A look costs about 20 µs per thread of the
 * tree, so once per second is cheap for hundreds of processes.
 */
#ifndef MUSTER_AGENT_TASK_ACTIVITY_H
#define MUSTER_AGENT_TASK_ACTIVITY_H

#include <sys/types.h>

struct task_activity {
	double cpu_s; /* of all processes that exist or have existed; never less than at the last look */
	double used_s; /* since the last look; 0 at the first */
};

struct task_watch;

/* root: the process at the top. NULL: no memory. */
struct task_watch *task_activity_open(pid_t root);
void task_activity_close(struct task_watch *w); /* takes NULL */
void task_activity_look(struct task_watch *w, struct task_activity *out);

#endif
