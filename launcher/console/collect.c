#include "launcher/console/collect.h"

#include "base/run_paths.h"
#include "launcher/console/line.h"

#include <sys/stat.h>

/* Seconds for the connection and for the first answer. */
static const double ask_s = 5;

static int await_end(struct console_line *line, double seconds, struct err *e)
{
	struct msg_console_answer a;
	json_t *body;
	if (console_line_await(line, seconds, &body, &a, e))
		return -1;
	int rc = a.ok ? 0 : err_set(e, ERR_IO, "%s", a.text);
	json_decref(body);
	return rc;
}

static int ask(struct console_line *line, const struct msg_console_ask *m, double seconds,
	       struct err *e)
{
	struct msg_console_answer a;
	json_t *body;
	if (console_line_ask(line, m, ask_s, &body, &a, e))
		return -1;
	bool more = a.ok && a.more;
	int rc = a.ok ? 0 : err_set(e, ERR_IO, "%s", a.text);
	json_decref(body);
	return more ? await_end(line, seconds, e) : rc;
}

static bool stay_on_nodes(const char *run)
{
	char path[RUN_PATH];
	struct stat st;
	run_path(path, run, RUN_LOGS_ID);
	return !lstat(path, &st);
}

int console_collect_logs(const char *run, const char *ranks, const char *node, double seconds,
			 struct err *e)
{
	const struct msg_console_ask m = { .what = "logs",
					   .has_ranks = ranks != NULL,
					   .ranks = ranks,
					   .has_node = node != NULL,
					   .node = node };
	struct console_line *line;
	struct err nobody = ERR_INIT;
	if (!stay_on_nodes(run) || console_line_open(run, ask_s, &line, &nobody))
		return 0;
	int rc = ask(line, &m, seconds, e);
	console_line_close(line);
	return rc;
}
