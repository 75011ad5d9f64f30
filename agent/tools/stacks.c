#include "agent/stacks/stacks.h"
#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/messages.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char page[] =
	"muster-agent stacks — find out what an agent does that makes no progress\n"
	"\n"
	"SYNOPSIS\n"
	"  muster-agent stacks EXAMINE\n"
	"\n"
	"DESCRIPTION\n"
	"  The supervisor and the agents of a run start it when a rank hangs. EXAMINE is the JSON\n"
	"  object of the message examine (base/messages.h): a process of this host and a file. It\n"
	"  prints the object of the message examined, and writes the states and the stacks of the\n"
	"  threads to the file. gdb or eu-stack (elfutils) finds the stacks, if installed.\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the file is written\n"
	"  1  it cannot be written\n"
	"  2  usage\n";

enum { SECONDS_MAX = 3600 };

static int write_report(const char *path, struct buf *report, struct err *e)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
	if (buf_failed(report))
		return err_set(e, ERR_NOMEM, "%s: no memory for the report", path);
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

/* The finding is printed first: the file system of the report may be what the process hangs in. */
static int take(const struct msg_examine *m, struct err *e)
{
	struct process_id who = { .pid = m->pid, .start = m->start, .pid_space = m->pid_space };
	struct buf report = BUF_INIT;
	struct stuck found;
	snprintf(who.boot, sizeof who.boot, "%s", m->boot);
	buf_printf(&report, "rank %d, ", m->rank);
	stacks_take(&who, m->seconds, &found, &report);
	const struct msg_examined answer = {
		.rank = m->rank, .kind = stacks_kind_word(found.kind), .text = found.text
	};
	if (tool_print_json(&tool_stacks, msg_examined_json(&answer)))
		err_set(e, ERR_IO, "the answer cannot be printed");
	int rc = write_report(m->file, &report, e);
	buf_fini(&report);
	return rc;
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
				  "find out what an agent does that makes no progress", page };
