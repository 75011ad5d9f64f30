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
 * it was sent. `name`, of TASK_NAME bytes and not NULL, becomes the process's. */
enum { TASK_NAME = 16 };
bool task_tree_kill(const struct task_tree_node *node, char *name);

struct task_stat {
	char name[TASK_NAME]; /* of its program, cut by the kernel */
	char state;           /* such as 'R', 'S', 'D', 'T' or 'Z' */
	pid_t parent;
	double cpu_s;    /* of its threads, those that have ended too */
	double reaped_s; /* of its children that it has waited for, and theirs */
	double rss;      /* bytes */
};

/* The text of /proc/PID/stat. -1: it is malformed. */
int task_stat_parse(const char *text, struct task_stat *out);
/* -1: there is no such process. */
int task_stat_read(pid_t pid, struct task_stat *out);

#endif
