#include "tests/bench/agents/watch.h"

#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_US = 1000 };

/* Appends what was written since the last look. */
static void read_more(struct watch *w)
{
	char chunk[65536];
	ssize_t n;
	if (w->fd < 0)
		w->fd = open(w->events, O_RDONLY | O_CLOEXEC);
	buf_drop(&w->text, w->taken);
	w->taken = 0;
	while (w->fd >= 0 && (n = read(w->fd, chunk, sizeof chunk)) > 0)
		buf_add(&w->text, chunk, (size_t)n);
}

double watch_number(const struct watch *w, const char *name)
{
	char key[64];
	int len = snprintf(key, sizeof key, "\"%s\":", name);
	const char *found = strstr(w->line, key);
	return found ? strtod(found + len, NULL) : 0;
}

/* Takes whole lines up to the event. */
static bool take_event(struct watch *w, const char *event, double *at)
{
	char want[64];
	int len = snprintf(want, sizeof want, "{\"event\":\"%s\"", event);
	for (;;) {
		const char *line = buf_str(&w->text) + w->taken;
		const char *end = w->taken < w->text.len ? strchr(line, '\n') : NULL;
		if (!end)
			return false;
		w->taken += (size_t)(end - line) + 1;
		if (strncmp(line, want, (size_t)len))
			continue;
		snprintf(w->line, sizeof w->line, "%.*s", (int)(end - line), line);
		*at = watch_number(w, "mono");
		return true;
	}
}

static bool has_ended(struct watch *w, int *status)
{
	if (!w->ended && waitpid(w->pid, status, WNOHANG) == w->pid)
		w->ended = true;
	return w->ended;
}

bool watch_await(struct watch *w, const char *event, double patience, double *at)
{
	int status = 0;
	for (double until = clock_s() + patience; clock_s() < until; usleep(LOOK_US)) {
		read_more(w);
		if (take_event(w, event, at))
			return true;
		if (has_ended(w, &status)) {
			fprintf(stderr, "agents: the supervisor ended before the event %s\n",
				event);
			return false;
		}
	}
	fprintf(stderr, "agents: no event %s within %g s\n", event, patience);
	return false;
}

bool watch_await_end(struct watch *w, int status, double patience, double *at)
{
	int got = 0;
	for (double until = clock_s() + patience; clock_s() < until; usleep(LOOK_US)) {
		if (!has_ended(w, &got))
			continue;
		*at = clock_s();
		if (WIFEXITED(got) && WEXITSTATUS(got) == status)
			return true;
		fprintf(stderr, "agents: the supervisor ended with wait status %d\n", got);
		return false;
	}
	fprintf(stderr, "agents: the supervisor did not end within %g s\n", patience);
	return false;
}

void watch_close(struct watch *w)
{
	int status;
	if (w->pid > 0 && !has_ended(w, &status)) {
		kill(w->pid, SIGKILL);
		waitpid(w->pid, &status, 0);
	}
	if (w->fd >= 0)
		close(w->fd);
	buf_fini(&w->text);
}

double watch_cpu(pid_t pid)
{
	clockid_t clock;
	struct timespec t;
	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double watch_memory(pid_t pid, const char *name)
{
	char path[64], line[256];
	double kib = 0;
	size_t len = strlen(name);
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in))
		if (!strncmp(line, name, len) && line[len] == ':')
			kib = strtod(line + len + 1, NULL);
	if (in)
		fclose(in);
	return 1024 * kib;
}

int watch_descriptors(pid_t pid)
{
	char path[64];
	int n = -2; /* "." and ".." */
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}
