/* request: what the commands that ask a supervisor have in common. */
#include "launcher/cli/request.h"

#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/run_view.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>

/* Seconds: for the connection and the first answer; and for the next one, of which only a lost
 * connection is an end. */
static const double ask_s = 5, follow_s = 1e6;

int command_request_json(json_t *o)
{
	int rc = !o || json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER) ||
		 puts("") < 0 || fflush(stdout);
	json_decref(o);
	return rc ? STATUS_FAILED : STATUS_DONE;
}

void command_request_say(const char *text)
{
	char plain[1200];
	snprintf(plain, sizeof plain, "%s", text);
	human_plain(plain);
	fprintf(stderr, "muster: %s\n", plain);
}

/* The supervisor cannot be asked: what the run does instead. Returns the exit status. */
static int explain(const struct command_request *r, const struct err *why)
{
	struct look l;
	struct err e = ERR_INIT;
	bool stops = strncmp(r->what, "stop", 4) == 0;
	if (console_look(r->run, LOOK_FULL, &l, &e))
		return command_fail(&e);
	int status = STATUS_CANNOT_START;
	char text[1200];
	const char *word = rundir_state_word(l.id);
	if (l.id == RUNDIR_STATE_QUEUED) {
		snprintf(text, sizeof text,
			 "the run waits in Slurm's queue%s%s; muster queue cancel %.300s takes it "
			 "out",
			 l.has_job ? " as job " : "", l.has_job ? l.job.id : "", r->run);
	} else if (l.id == RUNDIR_STATE_LOST) {
		snprintf(text, sizeof text, "the run is lost: %s", l.note);
	} else if (!rundir_state_active(l.id)) {
		snprintf(text, sizeof text, "the run has ended already: %s", word);
		status = stops ? STATUS_DONE : STATUS_CANNOT_START;
	} else {
		snprintf(text, sizeof text, "%.700s%s%.300s%s", *l.note ? l.note : why->text,
			 l.state.has_job && stops ? "; Slurm can tell it: muster queue cancel "
						  : "",
			 l.state.has_job && stops ? r->run : "",
			 l.state.has_job && stops ? " --signal TERM" : "");
	}
	if (r->as_json)
		command_request_json(json_pack("{s:b, s:s, s:o?}", "ok", status == STATUS_DONE,
					       "text", text, "state", command_run_json(&l)));
	else
		command_request_say(text);
	console_look_fini(&l);
	return status;
}

static int ask(const struct command_request *r, struct console_line *line, bool *more,
	       struct err *e)
{
	const struct msg_console_ask m = { .what = r->what,
					   .has_count = r->count > 0,
					   .count = r->count };
	struct msg_console_answer a;
	json_t *body;
	if (console_line_ask(line, &m, ask_s, &body, &a, e))
		return explain(r, e);
	bool ended = r->finish && a.ok && a.has_step;
	int status = a.ok ? STATUS_DONE : STATUS_CANNOT_START;
	*more = a.ok && r->waits && !ended;
	if (ended)
		status = r->finish(r, &a);
	else if (r->as_json && !*more)
		command_request_json(json_pack("{s:b, s:s}", "ok", a.ok, "text", a.text));
	else if (!r->as_json)
		command_request_say(a.text);
	json_decref(body);
	return status;
}

int command_request(const struct command_request *r)
{
	struct console_line *line;
	struct err e = ERR_INIT;
	bool more = false;
	if (console_line_open(r->run, ask_s, &line, &e))
		return explain(r, &e);
	int status = ask(r, line, &more, &e);
	if (more)
		status = r->follow(r, line);
	console_line_close(line);
	return status;
}

int command_request_await(struct console_line *line, json_t **body, struct msg_console_answer *a,
			  struct err *e)
{
	return console_line_await(line, follow_s, body, a, e);
}
