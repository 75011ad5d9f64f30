#include "agent/task/activity.h"

#include "agent/task/tree.h"
#include "base/process_stat.h"

#include <stdbool.h>
#include <stdlib.h>

struct task_watch {
	pid_t root;
	struct task_tree tree;
	double cpu_s;
	bool looked;
};

struct task_watch *task_activity_open(pid_t root)
{
	struct task_watch *w = calloc(1, sizeof *w);
	if (w)
		*w = (struct task_watch){ .root = root };
	return w;
}

void task_activity_close(struct task_watch *w)
{
	if (!w)
		return;
	task_tree_free(&w->tree);
	free(w);
}

/* CPU time of the process, and of its children that it has waited for. */
static double cpu_of(pid_t pid)
{
	struct process_stat s;
	return process_stat_read(pid, &s) ? 0 : s.cpu_s + s.reaped_s;
}

void task_activity_look(struct task_watch *w, struct task_activity *out)
{
	/* A process that ends between two of these counts neither alone nor in its parent: the next
	 * look has it. */
	struct task_activity a = { .cpu_s = cpu_of(w->root) };
	task_tree_read(w->root, &w->tree);
	for (int i = 0; i < w->tree.n; i++)
		a.cpu_s += cpu_of(w->tree.nodes[i].pid);
	if (a.cpu_s < w->cpu_s)
		a.cpu_s = w->cpu_s;
	a.used_s = w->looked ? a.cpu_s - w->cpu_s : 0;
	w->cpu_s = a.cpu_s;
	w->looked = true;
	*out = a;
}
