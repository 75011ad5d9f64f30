#include "tests/bench/agents/agents.h"

#include "base/clock.h"
#include "launcher/status.h"
#include "tests/bench/agents/watch.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Seconds: for an event; of training after one, before the next; in which training is measured. */
static const double patience_s = 180, settle_s = 3, measure_s = 10;

struct run {
	int n;
	char dir[AGENTS_PATH / 2];
	struct watch w;
	double mark, cpu; /* time of the last event, and the CPU seconds at that time */
};

static void path_of(const struct run *r, const char *name, char out[AGENTS_PATH])
{
	snprintf(out, AGENTS_PATH, "%s/%s", r->dir, name);
}

/* The number in a small file; 0: it is not there. */
static double read_number(const struct run *r, const char *name)
{
	char path[AGENTS_PATH];
	double value = 0;
	path_of(r, name, path);
	FILE *in = fopen(path, "re");
	if (in && fscanf(in, "%lf", &value) != 1)
		value = 0;
	if (in)
		fclose(in);
	return value;
}

static bool start_process(struct run *r)
{
	char commands[AGENTS_PATH], out[AGENTS_PATH], number[16];
	if (!tmpdir_make(r->dir, sizeof r->dir)) {
		perror("agents: mkdtemp");
		return false;
	}
	path_of(r, AGENTS_COMMANDS, commands);
	path_of(r, "out", out);
	snprintf(number, sizeof number, "%d", r->n);
	snprintf(r->w.events, sizeof r->w.events, "%s/run/events.jsonl", r->dir);
	if (mkfifo(commands, 0600)) {
		perror("agents: mkfifo");
		return false;
	}
	r->w.pid = fork();
	if (r->w.pid)
		return r->w.pid > 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int to = open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(to, STDOUT_FILENO);
	dup2(to, STDERR_FILENO);
	execl("/proc/self/exe", "agents", "supervise", number, r->dir, (char *)NULL);
	_exit(127);
}

/* Waits for an event. *seconds and *cpu: since the last one. */
static bool await(struct run *r, const char *event, double *seconds, double *cpu)
{
	double at;
	if (!watch_await(&r->w, event, patience_s, &at))
		return false;
	double used = watch_cpu(r->w.pid);
	*seconds = at - r->mark;
	*cpu = used - r->cpu;
	r->mark = at;
	r->cpu = used;
	return true;
}

static bool measure_start(struct run *r, struct agents_figures *f)
{
	double cpu;
	r->mark = clock_s();
	if (!await(r, "generation-start", &f->plan, &cpu))
		return false;
	double memory = watch_memory(r->w.pid, "VmRSS");
	if (!await(r, "ready", &f->start, &f->start_cpu))
		return false;
	f->start_cpu_stand_in = watch_cpu((pid_t)read_number(r, AGENTS_STAND_IN));
	f->start_bytes = watch_memory(r->w.pid, "VmRSS") - memory;
	f->descriptors = watch_descriptors(r->w.pid);
	return true;
}

/* The messages that were sent until *at. */
static double read_sent(const struct run *r, double *at)
{
	char path[AGENTS_PATH];
	double sent = 0;
	path_of(r, AGENTS_SENT, path);
	FILE *in = fopen(path, "re");
	if (in && fscanf(in, "%lf %lf", &sent, at) != 2)
		sent = *at = 0;
	if (in)
		fclose(in);
	return sent;
}

static void measure_training(struct run *r, struct agents_figures *f)
{
	double from = 0, to = 0;
	usleep((useconds_t)(1e6 * settle_s));
	double at = clock_s(), cpu = watch_cpu(r->w.pid), sent = read_sent(r, &from);
	usleep((useconds_t)(1e6 * measure_s));
	f->steady_cpu = (watch_cpu(r->w.pid) - cpu) / (clock_s() - at);
	sent = read_sent(r, &to) - sent;
	f->steady_messages = to > from ? sent / (to - from) : 0;
}

static bool send_command(const struct run *r, const char *word, int rank)
{
	char path[AGENTS_PATH], line[64];
	path_of(r, AGENTS_COMMANDS, path);
	int len = snprintf(line, sizeof line, "%s %d\n", word, rank);
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	bool sent = fd >= 0 && write(fd, line, (size_t)len) == len;
	if (fd >= 0)
		close(fd);
	return sent;
}

/* A rank of the first stand-in is lost. */
static bool measure_loss(struct run *r, const char *word, int rank, struct agents_loss *out)
{
	double seconds, cpu;
	if (!send_command(r, word, rank) || !await(r, "rank-lost", &seconds, &cpu))
		return false;
	out->seen = r->mark - read_number(r, AGENTS_CLOSED);
	if (!await(r, "regrouped", &out->back, &out->cpu))
		return false;
	out->replaced = r->n - watch_number(&r->w, "kept");
	if (!await(r, "ready", &seconds, &cpu))
		return false;
	out->back += seconds;
	out->cpu += cpu;
	return true;
}

static bool measure_stop(struct run *r, struct agents_figures *f)
{
	char out[AGENTS_PATH];
	struct stat st = { 0 };
	double cpu = watch_cpu(r->w.pid), from = clock_s(), at, seconds;
	f->peak_bytes = watch_memory(r->w.pid, "VmHWM");
	kill(r->w.pid, SIGTERM);
	r->cpu = cpu;
	if (!await(r, "stopped", &seconds, &f->stop_cpu) ||
	    !watch_await_end(&r->w, STATUS_STOPPED, patience_s, &at))
		return false;
	f->stop = at - from;
	path_of(r, "run/events.jsonl", out);
	f->events_bytes = stat(out, &st) ? 0 : (double)st.st_size;
	return true;
}

static bool measure_all(struct run *r, struct agents_figures *f)
{
	int killed = r->n / 2 + 1, silent = killed + AGENTS_NODE, down = silent + AGENTS_NODE;
	if (!measure_start(r, f))
		return false;
	measure_training(r, f);
	if (!measure_loss(r, "close", killed, &f->kill))
		return false;
	usleep((useconds_t)(1e6 * settle_s));
	if (!measure_loss(r, "mute", silent, &f->silent))
		return false;
	usleep((useconds_t)(1e6 * settle_s));
	if (!measure_loss(r, "down", down, &f->node))
		return false;
	usleep((useconds_t)(1e6 * settle_s));
	return measure_stop(r, f);
}

/* Prints what the supervisor said. */
static void show_output(const struct run *r)
{
	char path[AGENTS_PATH], line[1024];
	path_of(r, "out", path);
	FILE *in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in))
		fputs(line, stderr);
	if (in)
		fclose(in);
}

bool agents_run(int n, struct agents_figures *out)
{
	struct run r = { .n = n, .w = { .fd = -1 } };
	char remove[AGENTS_PATH];
	*out = (struct agents_figures){ 0 };
	bool ok = start_process(&r) && measure_all(&r, out);
	watch_close(&r.w);
	if (!ok)
		show_output(&r);
	snprintf(remove, sizeof remove, "rm -rf '%s'", r.dir);
	if (*r.dir && system(remove))
		fprintf(stderr, "agents: cannot remove %s\n", r.dir);
	return ok;
}
