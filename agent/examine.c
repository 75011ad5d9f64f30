#include "agent/examine.h"

#include "base/clock.h"
#include "base/process_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The tool knows its answer within the seconds of the message, but writes the report before it
 * prints it. */
static const double report_s = 0.7;

/* 0, or an errno. */
static int spawn_tool(const char *word, int out, pid_t *pid)
{
	const char *const argv[] = { "muster-agent", "stacks", word, NULL };
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	int rc = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	if (!rc)
		rc = process_spawn_self(argv, &files, false, pid);
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

static struct examination *find_free(struct examinations *x)
{
	for (int i = 0; i < EXAMINE_MAX; i++)
		if (!x->list[i].pid)
			return &x->list[i];
	return NULL;
}

int agent_examine_start(struct examinations *x, const json_t *body, struct err *e)
{
	struct msg_examine m;
	struct examination *at = find_free(x);
	int fds[2];
	if (msg_examine_read(body, &m, e))
		return -1;
	if (!at) /* the supervisor asks for fewer */
		return err_set(e, ERR_PROTO, "message examine: more than %d are under way",
			       EXAMINE_MAX);
	char *word = json_dumps(body, JSON_COMPACT);
	if (!word || pipe2(fds, O_CLOEXEC | O_NONBLOCK)) {
		free(word);
		return 0; /* the supervisor waits for no answer longer than it said */
	}
	pid_t pid = 0;
	int rc = spawn_tool(word, fds[1], &pid);
	close(fds[1]);
	free(word);
	if (rc) {
		close(fds[0]);
		return 0;
	}
	if (m.pid == (int)getpid())
		prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0);
	*at = (struct examination){
		.pid = pid, .fd = fds[0], .rank = m.rank, .until = clock_s() + m.seconds + report_s
	};
	return 0;
}

int agent_examine_poll(const struct examinations *x, struct pollfd out[EXAMINE_MAX])
{
	int n = 0;
	for (int i = 0; i < EXAMINE_MAX; i++)
		if (x->list[i].pid)
			out[n++] = (struct pollfd){ .fd = x->list[i].fd, .events = POLLIN };
	return n;
}

/* Reads what there is. False: the tool has ended, or its time is over. */
static bool read_more(struct examination *at)
{
	for (;;) {
		ssize_t n = read(at->fd, at->output + at->len, sizeof at->output - at->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) /* a full buffer too: no answer is so long */
			return n < 0 && errno == EAGAIN && clock_s() < at->until;
		at->len += (size_t)n;
	}
}

/* The object of the first line, which is removed; NULL: there is no further one. */
static json_t *take_line(struct examination *at, bool *last)
{
	const char *end = memchr(at->output, '\n', at->len);
	struct msg_examined m = { .last = true };
	if (!end)
		return NULL;
	size_t n = (size_t)(end - at->output);
	json_t *o = json_loadb(at->output, n, JSON_REJECT_DUPLICATES, NULL);
	at->len -= n + 1;
	memmove(at->output, end + 1, at->len);
	if (o && msg_examined_read(o, &m, NULL)) {
		json_decref(o);
		o = NULL;
	}
	*last = m.last;
	return o;
}

static void finish(struct examination *at)
{
	close(at->fd);
	kill(at->pid, SIGKILL);
	/* One that is stuck in the kernel stays until the agent ends. */
	for (int i = 0; i < 2 && waitpid(at->pid, NULL, WNOHANG) == 0; i++)
		poll(NULL, 0, 10);
	prctl(PR_SET_PTRACER, 0, 0, 0, 0);
	at->pid = 0;
}

json_t *agent_examine_next(struct examinations *x)
{
	for (int i = 0; i < EXAMINE_MAX; i++) {
		struct examination *at = &x->list[i];
		if (!at->pid)
			continue;
		bool more = read_more(at), last = false;
		json_t *o = take_line(at, &last);
		if (o && !last)
			return o;
		if (!o && more)
			continue;
		finish(at);
		return o ? o
			 : msg_examined_json(&(struct msg_examined){
				   .rank = at->rank, .kind = "unknown", .text = "", .last = true });
	}
	return NULL;
}

void agent_examine_end(struct examinations *x)
{
	for (int i = 0; i < EXAMINE_MAX; i++)
		if (x->list[i].pid)
			finish(&x->list[i]);
}
