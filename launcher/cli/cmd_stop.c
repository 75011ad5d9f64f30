/* muster stop and muster checkpoint: ask the supervisor of a run. */
#include "base/clock.h"
#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_view.h"
#include "launcher/console/line.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds: for the connection and the first answer; and for the next one, of which only a lost
 * connection is an end. */
static const double ask_s = 5, follow_s = 1e6;

static const char stop_help[] =
	"muster stop — end a run on purpose\n"
	"\n"
	"SYNOPSIS\n"
	"  muster stop RUN [--now] [--no-wait] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/.\n"
	"  The ranks finish the step that they are in, write a checkpoint and leave, as after\n"
	"  one Ctrl-C; the same command continues the run. muster stop waits until the run has\n"
	"  ended, and prints how. It can be given on any host that sees the run folder and\n"
	"  reaches the supervisor. A run that waits in Slurm's queue is ended by muster queue\n"
	"  cancel RUN.\n"
	"\n"
	"OPTIONS\n"
	"  --now      end the run at once, without a checkpoint, as after two Ctrl-C\n"
	"  --no-wait  return when the supervisor has accepted it\n"
	"  --json     print {\"ok\", \"text\"}, also if it fails, and \"state\", the object of\n"
	"             muster status --json, if it has waited or cannot ask the supervisor\n"
	"\n"
	"EXAMPLES\n"
	"  muster stop demo\n"
	"  muster stop runs/demo --now\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the run stops, or had ended before\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, its supervisor cannot be asked, or it is gone without a word;\n"
	"     or the connection was lost, and the run has not ended\n";

static const char checkpoint_help[] =
	"muster checkpoint — have a running run write a checkpoint now\n"
	"\n"
	"SYNOPSIS\n"
	"  muster checkpoint RUN [--no-wait] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/.\n"
	"  All ranks write a checkpoint after the step that they are in, in the folder of the\n"
	"  checkpoints that all ranks share, and train on. muster checkpoint waits until it is\n"
	"  committed, and prints its folder. A request that comes while one is under way waits\n"
	"  for the same checkpoint. [checkpoint] keep counts it as any other.\n"
	"\n"
	"OPTIONS\n"
	"  --no-wait  return when the supervisor has accepted it\n"
	"  --json     print {\"ok\", \"text\"}, also if it fails, and \"step\" and \"path\" if it\n"
	"             has waited, or \"state\", the object of muster status --json, if it cannot\n"
	"             ask the supervisor\n"
	"\n"
	"EXAMPLES\n"
	"  muster checkpoint demo\n"
	"  muster ckpt show \"$(muster checkpoint demo)\"\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the checkpoint is committed, or accepted with --no-wait\n"
	"  1  it failed, the generation ended before, or the connection was lost; or the output\n"
	"     cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, it does not train now, or its supervisor cannot be asked\n";

struct request {
	const char *command, *what;
	bool waits, as_json;
	char run[RUN_PATH];
};

/* Text for people goes to stderr, because the result on stdout is for programs. */
static void say(const char *text)
{
	command_lines("", text);
}

/* Prints the object, which is stolen; returns the exit status. */
static int print_json(json_t *o, int status)
{
	return command_output_end(command_print_json(o) ? STATUS_FAILED : status);
}

/* Prints what has happened: state is of the run, or NULL, and stolen. Returns the exit status. */
static int print_end(const struct request *r, int status, const char *text, json_t *state)
{
	json_t *words = json_string(text);
	if (r->as_json) /* a name may be no UTF-8 */
		return print_json(json_pack("{s:b, s:o, s:o*}", "ok", status == STATUS_DONE, "text",
					    words ? words : json_null(), "state", state),
				  status);
	json_decref(words);
	json_decref(state);
	say(text);
	return status;
}

static int fail(const struct request *r, const struct err *e)
{
	if (r->as_json)
		print_end(r, STATUS_CANNOT_START, e->text, NULL);
	return command_fail(e);
}

/* The supervisor cannot be asked: what the run does instead. Returns the exit status. */
static int explain(const struct request *r, const struct err *why)
{
	struct look l;
	struct err e = ERR_INIT;
	bool stops = strncmp(r->what, "stop", 4) == 0;
	if (console_look(r->run, LOOK_FULL, &l, &e))
		return fail(r, &e);
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
	status = print_end(r, status, buf_str(&text), r->as_json ? command_run_json(&l) : NULL);
	buf_fini(&text);
	console_look_fini(&l);
	return status;
}

/* How the run has ended. On a shared file system it may take a moment until its last state shows. */
static int look_at_end(const struct request *r, struct look *l, struct err *e)
{
	const struct timespec pause = { .tv_nsec = 250000000 };
	double until = clock_s() + ask_s;
	while (!console_look(r->run, LOOK_QUICK, l, e)) {
		if (l->live || !rundir_state_active(l->id) || clock_s() >= until)
			return 0;
		console_look_fini(l);
		nanosleep(&pause, NULL);
	}
	return -1;
}

/* Waits until the supervisor has gone, and prints how the run ended. */
static int follow_stop(const struct request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	struct look l;
	json_t *body;
	char text[1200];
	while (!console_line_await(line, follow_s, &body, &a, &e))
		json_decref(body);
	struct err lost = e;
	if (look_at_end(r, &l, &e))
		return fail(r, &e);
	bool active = rundir_state_active(l.id), ok = !active && l.id != RUNDIR_STATE_LOST;
	int status = ok ? STATUS_DONE : STATUS_CANNOT_START;
	if (active)
		snprintf(text, sizeof text, "the run has not ended, it is %s: %s",
			 rundir_state_word(l.id), lost.text);
	else
		snprintf(text, sizeof text, "%s", rundir_state_word(l.id));
	if (!r->as_json && active)
		say(text);
	if (r->as_json) {
		status = print_end(r, status, text, command_run_json(&l));
	} else {
		command_run_print(&l, stdout);
		status = command_output_end(status);
	}
	console_look_fini(&l);
	return status;
}

/* The answer that tells of the commit, or of its failure. */
static int print_checkpoint(const struct request *r, const struct msg_console_answer *a)
{
	int status = a->ok ? STATUS_DONE : STATUS_FAILED;
	if (r->as_json)
		return print_json(json_pack("{s:b, s:s, s:o?, s:s?}", "ok", a->ok, "text", a->text,
					    "step", a->has_step ? json_integer(a->step) : NULL,
					    "path", a->has_path ? a->path : NULL),
				  status);
	say(a->text);
	if (a->ok && a->has_path)
		puts(a->path);
	return command_output_end(status);
}

static int follow_checkpoint(const struct request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	json_t *body;
	if (console_line_await(line, follow_s, &body, &a, &e)) {
		err_prefix(&e, "the connection ended before the checkpoint was committed");
		return print_end(r, STATUS_FAILED, e.text, NULL);
	}
	int status = print_checkpoint(r, &a);
	json_decref(body);
	return status;
}

static int ask(const struct request *r, struct console_line *line, bool *more, struct err *e)
{
	struct msg_console_answer a;
	json_t *body;
	if (console_line_ask(line, &(struct msg_console_ask){ .what = r->what }, ask_s, &body, &a,
			     e))
		return explain(r, e);
	bool saved = a.ok && a.has_step; /* the checkpoint is there already */
	int status = a.ok ? STATUS_DONE : STATUS_CANNOT_START;
	*more = a.ok && r->waits && !saved;
	if (saved)
		status = print_checkpoint(r, &a);
	else if (!r->as_json || !*more)
		status = print_end(r, status, a.text, NULL);
	json_decref(body);
	return status;
}

static int perform(const struct request *r,
		   int (*follow)(const struct request *r, struct console_line *line))
{
	struct console_line *line;
	struct err e = ERR_INIT;
	bool more = false;
	if (console_line_open(r->run, ask_s, &line, &e))
		return explain(r, &e);
	int status = ask(r, line, &more, &e);
	if (more)
		status = follow(r, line);
	console_line_close(line);
	return status;
}

int cmd_stop(int argc, char **argv)
{
	bool now = false, leave = false, as_json = false;
	const char *word = NULL;
	const struct command_option options[] = { { "--now", &now, NULL },
						  { "--no-wait", &leave, NULL },
						  { "--json", &as_json, NULL },
						  { NULL, NULL, NULL } };
	struct request r = { .what = "stop" };
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(stop_help);
	int status = command_runs(argc, argv, options, &word, 1);
	if (status)
		return status;
	r.what = now ? "stop-now" : "stop";
	r.waits = !leave;
	r.as_json = as_json;
	if (rundir_find(word, r.run, &e))
		return fail(&r, &e);
	return perform(&r, follow_stop);
}

int cmd_checkpoint(int argc, char **argv)
{
	bool leave = false, as_json = false;
	const char *word = NULL;
	const struct command_option options[] = { { "--no-wait", &leave, NULL },
						  { "--json", &as_json, NULL },
						  { NULL, NULL, NULL } };
	struct request r = { .what = "checkpoint" };
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(checkpoint_help);
	int status = command_runs(argc, argv, options, &word, 1);
	if (status)
		return status;
	r.waits = !leave;
	r.as_json = as_json;
	if (rundir_find(word, r.run, &e))
		return fail(&r, &e);
	return perform(&r, follow_checkpoint);
}
