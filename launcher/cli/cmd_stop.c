/* muster stop and muster checkpoint: ask the supervisor of a run. */
#include "base/clock.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/request.h"
#include "launcher/cli/run_view.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* How the run has ended. On a shared file system it may take a moment until its last state shows. */
static int look_at_end(const struct command_request *r, struct look *l, struct err *e)
{
	const struct timespec pause = { .tv_nsec = 250000000 };
	double until = clock_s() + command_request_ask_s;
	while (!console_look(r->run, LOOK_QUICK, l, e)) {
		if (l->live || !rundir_state_active(l->id) || clock_s() >= until)
			return 0;
		console_look_fini(l);
		nanosleep(&pause, NULL);
	}
	return -1;
}

/* Waits until the supervisor has gone, and prints how the run ended. */
static int follow_stop(const struct command_request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	struct look l;
	json_t *body;
	char text[1200];
	while (!command_request_await(line, &body, &a, &e))
		json_decref(body);
	struct err lost = e;
	if (look_at_end(r, &l, &e))
		return command_request_fail(r, &e);
	bool active = rundir_state_active(l.id), ok = !active && l.id != RUNDIR_STATE_LOST;
	int status = ok ? STATUS_DONE : STATUS_CANNOT_START;
	if (active)
		snprintf(text, sizeof text, "the run has not ended, it is %s: %s",
			 rundir_state_word(l.id), lost.text);
	else
		snprintf(text, sizeof text, "%s", rundir_state_word(l.id));
	if (!r->as_json && active)
		command_request_say(text);
	if (r->as_json) {
		status = command_request_end(r, status, text, command_run_json(&l));
	} else {
		command_run_print(&l, stdout);
		status = command_output_end(status);
	}
	console_look_fini(&l);
	return status;
}

/* The answer that tells of the commit, or of its failure. */
static int print_checkpoint(const struct command_request *r, const struct msg_console_answer *a)
{
	int status = a->ok ? STATUS_DONE : STATUS_FAILED;
	if (r->as_json)
		return command_output_json(json_pack("{s:b, s:s, s:o?, s:s?}", "ok", a->ok, "text",
						     a->text, "step",
						     a->has_step ? json_integer(a->step) : NULL,
						     "path", a->has_path ? a->path : NULL),
					   status);
	command_request_say(a->text);
	if (a->ok && a->has_path)
		puts(a->path);
	return command_output_end(status);
}

static int follow_checkpoint(const struct command_request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	json_t *body;
	if (command_request_await(line, &body, &a, &e)) {
		err_prefix(&e, "the connection ended before the checkpoint was committed");
		return command_request_end(r, STATUS_FAILED, e.text, NULL);
	}
	int status = print_checkpoint(r, &a);
	json_decref(body);
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
	struct command_request r = { .what = "stop", .follow = follow_stop };
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
		return command_request_fail(&r, &e);
	return command_request(&r);
}

int cmd_checkpoint(int argc, char **argv)
{
	bool leave = false, as_json = false;
	const char *word = NULL;
	const struct command_option options[] = { { "--no-wait", &leave, NULL },
						  { "--json", &as_json, NULL },
						  { NULL, NULL, NULL } };
	struct command_request r = { .what = "checkpoint",
				     .follow = follow_checkpoint,
				     .finish = print_checkpoint };
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(checkpoint_help);
	int status = command_runs(argc, argv, options, &word, 1);
	if (status)
		return status;
	r.waits = !leave;
	r.as_json = as_json;
	if (rundir_find(word, r.run, &e))
		return command_request_fail(&r, &e);
	return command_request(&r);
}
