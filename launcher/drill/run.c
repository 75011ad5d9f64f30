#include "launcher/drill/run.h"

#include "base/agent_env.h"
#include "base/clock.h"
#include "base/file.h"
#include "launcher/drill/injections.h"
#include "launcher/drill/judge.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEFT_MS = 5000, INTERRUPT_MS = 3000, KILLED_MS = 15000, LEFT_MAX = 256 };

int drill_run_open(struct drill *d, const struct injection *injection, const char *name,
		   struct drill_run **out, struct err *e)
{
	struct drill_run *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory for the run", name);
	r->d = d;
	r->injection = injection;
	r->status = -1;
	r->story.ready_step = -1;
	snprintf(r->name, sizeof r->name, "%s", name);
	run_path(r->path, d->scratch.path, name);
	r->shm = drill_shm_names();
	r->job_steps = d->slurm ? drill_steps_count() : 0;
	drill_mark_new(r->mark);
	const struct rundir_reader reader = { drill_story_event, drill_story_metrics, &r->story };
	if (rundir_follow_open(r->path, &reader, &r->follow, e)) {
		free(r);
		return -1;
	}
	*out = r;
	return 0;
}

void drill_run_word(struct drill_run *r, const char *fmt, ...)
{
	va_list ap;
	if (r->n_words == DRILL_WORDS)
		return;
	va_start(ap, fmt);
	vsnprintf(r->words[r->n_words++], DRILL_WORD, fmt, ap);
	va_end(ap);
}

static void on_end(void *arg, int status, const char *output)
{
	struct drill_run *r = arg;
	(void)output;
	r->child = NULL;
	r->ended = true;
	r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A file for what the run prints; it stays with the folder of a run that went wrong. */
static int open_output(const struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	if (file_make_own_dir(r->path, e))
		return -1;
	run_path(path, r->path, "drill.out");
	int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, &why);
	return fd < 0 ? err_set(e, why.code, "%s", why.text) : fd;
}

/* True if one of `own` replaces this entry of the environment. */
static bool is_replaced(const char *entry, char *const *own, int n)
{
	for (int i = 0; i < n; i++) {
		size_t len = strcspn(own[i], "=") + 1;
		if (!strncmp(entry, own[i], len))
			return true;
	}
	return false;
}

/* This process's environment with other entries; they stay borrowed. NULL: no memory. Free the list. */
static char **make_environment(char *const *own, int n)
{
	int count = 0, out = 0;
	while (environ[count])
		count++;
	char **env = calloc((size_t)(count + n + 1), sizeof *env);
	for (int i = 0; env && i < count; i++)
		if (!is_replaced(environ[i], own, n))
			env[out++] = environ[i];
	for (int i = 0; env && i < n; i++)
		env[out++] = own[i];
	return env;
}

/* Starts the command with r->programs first in PATH, in r->cgroup, and with the fault that the agents
 * are to cause. */
static int start_child(struct drill_run *r, struct child_command *c, struct err *e)
{
	enum { FAULT, REST, PATHS, ENTRIES };
	struct buf text[ENTRIES] = { BUF_INIT, BUF_INIT, BUF_INIT };
	char *own[ENTRIES], procs[RUN_PATH], **env = NULL;
	const char *path = getenv("PATH");
	if (!path || !*path)
		path = "/usr/local/bin:/usr/bin:/bin";
	buf_printf(&text[FAULT], AGENT_ENV_DRILL_FAULT "=%s", r->agent_fault);
	buf_printf(&text[REST], DRILL_PATH_VARIABLE "=%s", path);
	buf_printf(&text[PATHS], "PATH=%s%s%s", r->programs, *r->programs ? ":" : "", path);
	bool failed = false;
	for (int i = 0; i < ENTRIES; i++) {
		failed |= buf_failed(&text[i]);
		own[i] = text[i].data;
	}
	if (!failed)
		env = make_environment(own, ENTRIES);
	if (*r->cgroup) {
		run_path(procs, r->cgroup, "cgroup.procs");
		c->cgroup = procs;
	}
	c->env = env;
	r->ended = false;
	int rc = env ? launcher_child_watch(&r->d->loop, c, on_end, r, &r->child, e)
		     : err_set(e, ERR_NOMEM, "%s: no memory to start the run", r->name);
	free(env);
	for (int i = 0; i < ENTRIES; i++)
		buf_fini(&text[i]);
	return rc;
}

int drill_run_start(struct drill_run *r, struct err *e)
{
	enum { OWN = 8 };
	const struct drill_options *o = r->d->o;
	char muster[PATH_MAX];
	int n = 0, n_words = 0, rc = -1, out = open_output(r, e);
	if (out < 0)
		return -1;
	while (o->words[n_words])
		n_words++;
	char **argv = calloc((size_t)(n_words + r->n_words + OWN), sizeof *argv);
	ssize_t len = readlink("/proc/self/exe", muster, sizeof muster - 1);
	muster[len > 0 ? len : 0] = '\0';
	if (argv && len > 0) {
		argv[n++] = muster;
		argv[n++] = (char[]){ "run" };
		argv[n++] = (char[]){ "--quiet" };
		argv[n++] = (char *)(uintptr_t)o->file;
		for (int i = 0; i < n_words; i++)
			argv[n++] = (char *)(uintptr_t)o->words[i];
		for (int i = 0; i < r->n_words; i++)
			argv[n++] = r->words[i];
		struct child_command c = { .argv = argv, .out = out, .tied = true };
		rc = start_child(r, &c, e);
	} else {
		err_set(e, ERR_NOMEM, "%s: no memory to start the run", r->name);
	}
	free(argv);
	close(out);
	return rc;
}

int drill_run_wait(struct drill_run *r, bool (*until)(const struct drill_run *r), double seconds,
		   const char *what, struct err *e)
{
	double end = clock_s() + seconds;
	for (;;) {
		if (rundir_follow_read(r->follow, e))
			return -1;
		if (until && until(r))
			return 0;
		if (r->d->interrupted)
			return err_set(e, ERR_ABORTED, "interrupted: %s",
				       strsignal(r->d->interrupted));
		if (until && r->ended)
			return err_set(e, ERR_PEER, "the run ended before %s (exit status %d)",
				       what, r->status);
		if (clock_s() >= end)
			return until ? err_set(e, ERR_TIMEOUT, "%s did not come within %.0f s",
					       what, seconds)
				     : 0;
		uv_run(&r->d->loop, UV_RUN_ONCE);
	}
}

static bool has_ended(const struct drill_run *r)
{
	return r->ended;
}

int drill_run_finish(struct drill_run *r, double seconds, struct err *e)
{
	/* The condition holds before the last lines were read. */
	return drill_run_wait(r, has_ended, seconds, "the end of the run", e) ||
			       rundir_follow_read(r->follow, e)
		       ? -1
		       : 0;
}

/* Runs the loop until the child has ended, without regard to signals. */
static void wait_for_child(struct drill_run *r, int ms)
{
	for (double end = clock_s() + ms * 1e-3; r->child && clock_s() < end;)
		uv_run(&r->d->loop, UV_RUN_ONCE);
}

int drill_run_left(const struct drill_run *r, pid_t *pids, int most)
{
	int n;
	for (double end = clock_s() + LEFT_MS * 1e-3;
	     (n = drill_mark_list(r->mark, pids, most)) && clock_s() < end;)
		usleep(20000);
	return n;
}

/* The second SIGINT ends the run at once; SIGKILL follows if that does not help. Agents on other
 * nodes end when their connection to muster is closed. */
static void end_child(struct drill_run *r)
{
	pid_t left[LEFT_MAX];
	struct err e;
	launcher_child_signal(r->child, SIGINT);
	wait_for_child(r, 100);
	if (r->child)
		launcher_child_signal(r->child, SIGINT);
	wait_for_child(r, INTERRUPT_MS);
	if (r->child)
		launcher_child_signal(r->child, SIGKILL);
	wait_for_child(r, KILLED_MS);
	int n = drill_run_left(r, left, LEFT_MAX);
	for (int i = 0; i < n; i++)
		drill_process_signal(left[i], r->mark, SIGKILL, &e);
}

void drill_run_close(struct drill_run *r)
{
	if (r->injection && r->injection->undo)
		r->injection->undo(r);
	if (r->child)
		end_child(r);
	if (r->injection && r->injection->undo)
		r->injection->undo(r); /* a cgroup can be removed now */
	rundir_follow_close(r->follow);
	drill_story_fini(&r->story);
	free(r);
}
