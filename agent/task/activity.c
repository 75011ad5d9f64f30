#include "agent/task/activity.h"

#include "agent/task/tree.h"
#include "base/process_stat.h"

#include <stdbool.h>
#include <stdlib.h>

struct task_watch {
	pid_t root, main;
	struct task_tree tree;
	double cpu_s;
	bool looked;
};

struct task_watch *task_activity_open(pid_t root, pid_t main)
{
	struct task_watch *w = calloc(1, sizeof *w);
	if (w)
		*w = (struct task_watch){ .root = root, .main = main };
	return w;
}

void task_activity_close(struct task_watch *w)
{
	if (!w)
		return;
	task_tree_free(&w->tree);
	free(w);
}

static void add_process(const struct task_watch *w, pid_t pid, struct task_activity *a)
{
	struct process_stat s;
	if (process_stat_read(pid, &s))
		return;
	a->cpu_s += s.cpu_s + s.reaped_s;
	a->rss += s.rss;
	a->processes += s.state != 'Z';
	if (pid == w->main)
		a->state = s.state;
}

void task_activity_look(struct task_watch *w, struct task_activity *out)
{
	struct task_activity a = { 0 };
	struct process_stat root;
	/* A process that ends between two of these counts neither alone nor in its parent: the next
	 * look has it. */
	if (!process_stat_read(w->root, &root))
		a.cpu_s = root.cpu_s + root.reaped_s;
	task_tree_read(w->root, &w->tree);
	for (int i = 0; i < w->tree.n; i++)
		add_process(w, w->tree.nodes[i].pid, &a);
	if (a.cpu_s < w->cpu_s)
		a.cpu_s = w->cpu_s;
	a.used_s = w->looked ? a.cpu_s - w->cpu_s : 0;
	w->cpu_s = a.cpu_s;
	w->looked = true;
	*out = a;
}
