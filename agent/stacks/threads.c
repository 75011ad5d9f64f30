#include "agent/stacks/threads.h"

#include "base/human.h"
#include "base/process_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void stacks_proc_text(int pid, int tid, const char *file, char *out, int size)
{
	char path[96];
	if (tid)
		snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, file);
	else
		snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	process_text_read(path, out, (size_t)size);
	for (size_t len = strlen(out); len > 0 && out[len - 1] == '\n'; len--)
		out[len - 1] = '\0';
}

static void read_link(int pid, int fd, char out[THREAD_LINK])
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
	ssize_t n = fd < 0 ? -1 : readlink(path, out, THREAD_LINK - 1);
	out[n > 0 ? n : 0] = '\0';
	human_plain(out);
}

static void read_thread(int pid, int tid, struct thread *t)
{
	char text[2048];
	struct process_stat stat;
	*t = (struct thread){ .tid = tid, .state = '?', .share = -1 };
	stacks_proc_text(pid, tid, "stat", text, sizeof text);
	if (!process_stat_parse(text, &stat)) {
		t->state = stat.state;
		snprintf(t->name, sizeof t->name, "%.*s", THREAD_NAME - 1, stat.name);
		human_plain(t->name);
	}
	stacks_proc_text(pid, tid, "wchan", text, sizeof text);
	if (strcmp(text, "0"))
		snprintf(t->wchan, sizeof t->wchan, "%.*s", THREAD_WORD - 1, text);
	stacks_proc_text(pid, tid, "syscall", text, sizeof text);
	stacks_call_parse(text, &t->call);
	read_link(pid, t->call.fd, t->link);
	stacks_proc_text(pid, tid, "schedstat", text, sizeof text);
	t->ran_ns = strtoll(text, NULL, 10);
}

void stacks_threads_read(int pid, struct threads *out)
{
	char path[64];
	out->n = out->more = 0;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	for (struct dirent *at; d && (at = readdir(d));) {
		int tid = atoi(at->d_name);
		if (tid < 1)
			continue;
		if (out->n == THREADS_MAX) {
			out->more++;
			continue;
		}
		read_thread(pid, tid, &out->list[out->n++]);
		if (tid == pid && out->n > 1) {
			struct thread first = out->list[0];
			out->list[0] = out->list[out->n - 1];
			out->list[out->n - 1] = first;
		}
	}
	if (d)
		closedir(d);
}

void stacks_threads_compare(const struct threads *before, struct threads *now, double seconds)
{
	for (int i = 0; i < now->n; i++)
		for (int k = 0; k < before->n && seconds > 0; k++)
			if (before->list[k].tid == now->list[i].tid)
				now->list[i].share =
					1e-9 *
					(double)(now->list[i].ran_ns - before->list[k].ran_ns) /
					seconds;
}

int stacks_child_of(int pid)
{
	struct thread t;
	char text[64], *end;
	read_thread(pid, pid, &t);
	bool waits = !strcmp(t.call.name, "wait4") || !strcmp(t.call.name, "waitid");
	if (t.state != 'S' || !waits)
		return 0;
	stacks_proc_text(pid, pid, "children", text, sizeof text);
	long child = strtol(text, &end, 10);
	return end[strspn(end, " ")] || child < 1 || child > INT32_MAX ? 0 : (int)child;
}

int stacks_tracer_of(int pid)
{
	char text[4096];
	stacks_proc_text(pid, 0, "status", text, sizeof text);
	const char *at = strstr(text, "\nTracerPid:");
	return at ? atoi(at + strlen("\nTracerPid:")) : 0;
}
