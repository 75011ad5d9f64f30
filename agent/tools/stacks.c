#include "agent/stacks/stacks.h"
#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/messages.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char page[] =
	"muster-agent stacks — find out what a process does that makes no progress\n"
	"\n"
	"SYNOPSIS\n"
	"  muster-agent stacks EXAMINE\n"
	"\n"
	"DESCRIPTION\n"
	"  The supervisor and the agents of a run start it when a rank hangs. EXAMINE is the JSON\n"
	"  object of the message examine (base/messages.h): a process of this host and a file. It\n"
	"  prints objects of the message examined, and writes the states and the stacks of the\n"
	"  threads to the file. gdb or eu-stack (elfutils) finds the stacks, if installed; py-spy\n"
	"  finds those of a Python program. Of a shell that waits for its only child, the child "
	"is\n"
	"  examined.\n"
	"\n"
	"EXIT STATUS\n"
	"  0  an answer was printed\n"
	"  1  it cannot be printed\n"
	"  2  usage\n";

enum { SECONDS_MAX = 3600, WRITE_MS = 500, LOOK_MS = 5 };

static int write_report(const char *path, const struct buf *report, struct err *e)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
	int fd = file_make_dirs(dir, e)
			 ? -1
			 : file_open(path, O_WRONLY | O_CREAT | O_TRUNC, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = file_write_full(fd, report->data, report->len);
	if (rc)
		err_errno(e, ERR_IO, "%s: cannot write the stacks", path);
	return close(fd) || rc ? -1 : 0;
}

/* Another process writes it, because the file system may be what the agent hangs in. */
static void save_report(const char *path, const struct buf *report)
{
	struct err e = ERR_INIT;
	int status = 0;
	pid_t child = fork();
	if (!child) {
		close(STDOUT_FILENO);
		if (write_report(path, report, &e))
			tool_fail(&tool_stacks, &e);
		_exit(0);
	}
	for (int ms = 0; child > 0 && ms < WRITE_MS && !waitpid(child, &status, WNOHANG);
	     ms += LOOK_MS)
		poll(NULL, 0, LOOK_MS);
}

struct taking {
	const struct msg_examine *m;
	bool failed;
};

static void print_answer(struct taking *t, const struct stuck *found, bool last)
{
	const struct msg_examined answer = { .rank = t->m->rank,
					     .kind = stacks_kind_word(found->kind),
					     .text = found->text,
					     .last = last };
	json_t *o = msg_examined_json(&answer);
	char *line = o ? json_dumps(o, JSON_COMPACT) : NULL;
	t->failed |= !line || printf("%s\n", line) < 0 || fflush(stdout);
	free(line);
	json_decref(o);
}

/* The first answer must not wait for a file system. After the last one the agent ends this process,
 * and the supervisor reads the report. */
static void on_known(void *arg, const struct stuck *found, struct buf *body, bool last)
{
	struct taking *t = arg;
	struct buf report = BUF_INIT;
	buf_printf(&report, "rank %d, %s", t->m->rank, buf_str(body));
	if (!last)
		print_answer(t, found, last);
	if (!buf_failed(&report))
		save_report(t->m->file, &report);
	if (last)
		print_answer(t, found, last);
	buf_fini(&report);
}

static int take(const struct msg_examine *m, struct err *e)
{
	struct process_id who = { .pid = m->pid, .start = m->start, .pid_space = m->pid_space };
	struct taking t = { .m = m };
	snprintf(who.boot, sizeof who.boot, "%s", m->boot);
	stacks_take(&who, m->seconds, on_known, &t);
	return t.failed ? err_set(e, ERR_IO, "the answer cannot be printed") : 0;
}

static int stacks_main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	struct msg_examine m;
	if (argc == 2 && !strcmp(argv[1], "--help"))
		return tool_option(&tool_stacks, TOOL_HELP, argv);
	if (argc != 2)
		return tool_usage(&tool_stacks, "one object is needed");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	json_t *o = json_loads(argv[1], JSON_REJECT_DUPLICATES, NULL);
	int status = TOOL_OK;
	if (!o || msg_examine_read(o, &m, &e))
		status = tool_usage(&tool_stacks, "%s", o ? e.text : "the word is no JSON object");
	else if (m.pid < 1 || *m.file != '/' || strlen(m.file) >= PATH_MAX ||
		 !(m.seconds > 0 && m.seconds <= SECONDS_MAX))
		status = tool_usage(&tool_stacks, "a value is out of range");
	else if (take(&m, &e))
		status = tool_fail(&tool_stacks, &e);
	json_decref(o);
	return status;
}

const struct tool tool_stacks = { "stacks", NULL, stacks_main,
				  "find out what a process does that makes no progress", page };
