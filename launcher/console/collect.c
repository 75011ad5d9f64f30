#include "launcher/console/collect.h"

#include "base/file.h"
#include "base/numbers.h"
#include "base/run_paths.h"
#include "launcher/console/line.h"

/* Seconds for the connection and for the first answer, and until `waiting` is called. */
static const double ask_s = 5, patience_s = 1;

static int await_end(struct console_line *line, double seconds, void (*waiting)(void),
		     struct err *e)
{
	struct msg_console_answer a;
	struct err slow = ERR_INIT;
	json_t *body;
	double first = min_double(patience_s, seconds);
	int rc = console_line_await(line, first, &body, &a, &slow);
	if (rc && slow.code == ERR_TIMEOUT && seconds > first) {
		if (waiting)
			waiting();
		rc = console_line_await(line, seconds - first, &body, &a, &slow);
	}
	if (rc)
		return err_set(e, slow.code, "%s", slow.text);
	rc = a.ok ? 0 : err_set(e, ERR_IO, "%s", a.text);
	json_decref(body);
	return rc;
}

static int ask(struct console_line *line, const struct msg_console_ask *m, double seconds,
	       void (*waiting)(void), struct err *e)
{
	struct msg_console_answer a;
	json_t *body;
	if (console_line_ask(line, m, ask_s, &body, &a, e))
		return -1;
	bool more = a.ok && a.more;
	int rc = a.ok ? 0 : err_set(e, ERR_IO, "%s", a.text);
	json_decref(body);
	return more ? await_end(line, seconds, waiting, e) : rc;
}

static bool stay_on_nodes(const char *run)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_LOGS_ID);
	return file_exists(path);
}

int console_collect_logs(const char *run, const char *ranks, const char *node, double seconds,
			 void (*waiting)(void), struct err *e)
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
	int rc = ask(line, &m, seconds, waiting, e);
	console_line_close(line);
	return rc;
}
