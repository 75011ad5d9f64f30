#include "agent/task/tree.h"

#include "base/process_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

static void add(struct task_tree *t, pid_t pid, pid_t parent)
{
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : 64;
		struct task_tree_node *nodes = reallocarray(t->nodes, (size_t)room, sizeof *nodes);
		if (!nodes)
			return;
		t->nodes = nodes;
		t->room = room;
	}
	t->nodes[t->n++] = (struct task_tree_node){ pid, parent };
}

/* The number that a name of a folder is; 0: it is none. */
static pid_t number_of(const char *name)
{
	char *end;
	long n = strtol(name, &end, 10);
	return *name >= '1' && *name <= '9' && !*end && n <= INT32_MAX ? (pid_t)n : 0;
}

/* The children that one thread started. A process may have thousands. -1: the kernel has no such
 * file, or the thread has ended. */
static int add_started_by(struct task_tree *t, pid_t pid, pid_t thread)
{
	char path[64], text[4096];
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)thread);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	long number = 0;
	ssize_t n;
	while ((n = read(fd, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (text[i] >= '0' && text[i] <= '9' && number < INT32_MAX / 10) {
				number = 10 * number + (text[i] - '0');
				continue;
			}
			if (number)
				add(t, (pid_t)number, pid);
			number = 0;
		}
	close(fd);
	return 0;
}

static void add_children(struct task_tree *t, pid_t pid)
{
	char path[64];
	struct dirent *at;
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	while (d && (at = readdir(d))) {
		pid_t thread = number_of(at->d_name);
		if (thread)
			add_started_by(t, pid, thread);
	}
	if (d)
		closedir(d);
}

/* Every process of the host, with its parent. */
static void read_host(struct task_tree *t)
{
	struct dirent *at;
	struct process_stat s;
	DIR *d = opendir("/proc");
	while (d && (at = readdir(d))) {
		pid_t pid = number_of(at->d_name);
		if (pid && !process_stat_read(pid, &s))
			add(t, pid, s.parent);
	}
	if (d)
		closedir(d);
}

static bool has_children_files(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	return !access(path, R_OK);
}

static void add_children_of_list(struct task_tree *t, const struct task_tree *all, pid_t pid)
{
	for (int i = 0; i < all->n; i++)
		if (all->nodes[i].parent == pid)
			add(t, all->nodes[i].pid, pid);
}

void task_tree_read(pid_t root, struct task_tree *t)
{
	struct task_tree all = { 0 };
	bool files = has_children_files();
	if (!files)
		read_host(&all);
	t->n = 0;
	for (int next = -1; next < t->n; next++) {
		pid_t pid = next < 0 ? root : t->nodes[next].pid;
		if (files)
			add_children(t, pid);
		else
			add_children_of_list(t, &all, pid);
	}
	task_tree_free(&all);
}

void task_tree_free(struct task_tree *t)
{
	free(t->nodes);
	*t = (struct task_tree){ 0 };
}

bool task_tree_kill(const struct task_tree_node *node, char *name)
{
	struct process_stat s;
	int fd = pidfd_open(node->pid, 0);
	if (fd < 0)
		return false;
	/* The descriptor holds the process, so its parent is read after. */
	bool sent = !process_stat_read(node->pid, &s) && s.parent == node->parent &&
		    s.state != 'Z' && !pidfd_send_signal(fd, SIGKILL, NULL, 0);
	close(fd);
	if (sent && name)
		memcpy(name, s.name, PROCESS_NAME);
	return sent;
}
