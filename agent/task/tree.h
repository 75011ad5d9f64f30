/*
 * tree — the processes below a process, from /proc.
 *
 * While it is read, processes start and end, so one look may miss some: who wants to end them all
 * looks until there are none. A pid of the list may belong to another process a moment later;
 * task_tree_kill makes sure of it.
 *
 * Sources: proc_pid_task(5), its file `children`; kernels without it have the same in the parents
 * that /proc/PID/stat names. pidfd_open(2).
 */
#ifndef MUSTER_AGENT_TASK_TREE_H
#define MUSTER_AGENT_TASK_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task_tree_node {
	pid_t pid, parent;
};

struct task_tree {
	struct task_tree_node *nodes; /* a process comes after its parent */
	int n, room;
};

/* Lists the processes below `root`, without itself. The list is as long as memory allows. `t` is
 * {0}, or from an earlier call: its memory is used again. */
void task_tree_read(pid_t root, struct task_tree *t);
void task_tree_free(struct task_tree *t);

/* Sends SIGKILL to the process if it still is a child of that parent, and no zombie. Returns whether
 * it was sent. `name`, of PROCESS_NAME bytes (base/process_stat.h), becomes the process's; NULL: it is not
 * needed. */
bool task_tree_kill(const struct task_tree_node *node, char *name);

#endif
