/* request: what the commands that ask a supervisor have in common. */
#include "launcher/cli/request.h"

#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_view.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>

const double command_request_ask_s = 5;
/* Seconds for the answers after the first one, of which only a lost connection is an end. */
static const double follow_s = 1e6;

void command_request_say(const char *text)
{
	command_lines("", text);
}

int command_request_end(const struct command_request *r, int status, const char *text,
			json_t *state)
{
	json_t *words = json_string(text);
	if (r->as_json) /* a name may be no UTF-8 */
		return command_output_json(json_pack("{s:b, s:o, s:o*}", "ok",
						     status == STATUS_DONE, "text",
						     words ? words : json_null(), "state", state),
					   status);
	json_decref(words);
	json_decref(state);
	command_request_say(text);
	return status;
}

int command_request_fail(const struct command_request *r, const struct err *e)
{
	if (r->as_json)
		command_request_end(r, STATUS_CANNOT_START, e->text, NULL);
	return command_fail(e);
}

/* The supervisor cannot be asked: what the run does instead. Returns the exit status. */
static int explain(const struct command_request *r, const struct err *why)
{
	struct look l;
	struct err e = ERR_INIT;
	bool stops = strncmp(r->what, "stop", 4) == 0;
	if (console_look(r->run, LOOK_FULL, &l, &e))
		return command_request_fail(r, &e);
	int status = STATUS_CANNOT_START;
	struct buf text = BUF_INIT;
	if (l.id == RUNDIR_STATE_QUEUED) {
		buf_printf(&text, "the run waits in Slurm's queue%s%s; muster queue cancel ",
			   l.has_job ? " as job " : "", l.has_job ? l.job.id : "");
		human_shell_word(r->run, &text);
		buf_puts(&text, " takes it out");
	} else if (l.id == RUNDIR_STATE_LOST) {
		buf_printf(&text, "the run is lost: %s", l.note);
	} else if (!rundir_state_active(l.id)) {
		buf_printf(&text, "the run has ended already: %s", rundir_state_word(l.id));
		status = stops ? STATUS_DONE : STATUS_CANNOT_START;
	} else {
		buf_puts(&text, *l.note ? l.note : why->text);
		if (l.state.has_job && stops) {
			buf_puts(&text, "; Slurm can tell it: muster queue cancel ");
			human_shell_word(r->run, &text);
			buf_puts(&text, " --signal TERM");
		}
	}
	status = command_request_end(r, status, buf_str(&text),
				     r->as_json ? command_run_json(&l) : NULL);
	buf_fini(&text);
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
	if (console_line_ask(line, &m, command_request_ask_s, &body, &a, e))
		return explain(r, e);
	bool ended = r->finish && a.ok && a.has_step;
	int status = a.ok ? STATUS_DONE : STATUS_CANNOT_START;
	*more = a.ok && r->waits && !ended;
	if (ended)
		status = r->finish(r, &a);
	else if (!r->as_json || !*more)
		status = command_request_end(r, status, a.text, NULL);
	json_decref(body);
	return status;
}

int command_request(const struct command_request *r)
{
	struct console_line *line;
	struct err e = ERR_INIT;
	bool more = false;
	if (console_line_open(r->run, command_request_ask_s, &line, &e))
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
