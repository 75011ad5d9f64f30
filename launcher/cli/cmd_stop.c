/* muster stop and muster checkpoint: ask the supervisor of a run. */
#include "launcher/cli/command.h"
#include "launcher/cli/request.h"
#include "launcher/cli/run_view.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>

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
	"  --json     print {\"ok\", \"text\"}, and \"state\", the object of muster status\n"
	"             --json, if it has waited or cannot ask the supervisor\n"
	"\n"
	"EXAMPLES\n"
	"  muster stop demo\n"
	"  muster stop runs/demo --now\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the run stops, or had ended before\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, or its supervisor cannot be asked\n";

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
	"  --json     print {\"ok\", \"text\"}, and \"step\" and \"path\" if it has waited, or\n"
	"             \"state\", the object of muster status --json, if it cannot ask the\n"
	"             supervisor\n"
	"\n"
	"EXAMPLES\n"
	"  muster checkpoint demo\n"
	"  muster ckpt show \"$(muster checkpoint demo)\"\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the checkpoint is committed, or accepted with --no-wait\n"
	"  1  it failed, or the generation ended before; or the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, it does not train now, or its supervisor cannot be asked\n";

/* Waits until the supervisor has gone, and prints how the run ended. */
static int follow_stop(const struct command_request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	struct look l;
	json_t *body;
	while (!command_request_await(line, &body, &a, &e))
		json_decref(body);
	if (console_look(r->run, LOOK_QUICK, &l, &e))
		return command_fail(&e);
	if (r->as_json) {
		json_t *state = command_run_json(&l);
		int rc = command_request_json(json_pack("{s:b, s:s, s:o?}", "ok", 1, "text",
							rundir_state_word(l.id), "state", state));
		console_look_fini(&l);
		return rc;
	}
	command_run_print(&l, stdout);
	console_look_fini(&l);
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

/* The answer that tells of the commit, or of its failure. */
static int print_checkpoint(const struct command_request *r, const struct msg_console_answer *a)
{
	int status;
	if (r->as_json) {
		status = command_request_json(json_pack("{s:b, s:s, s:o?, s:s?}", "ok", a->ok,
							"text", a->text, "step",
							a->has_step ? json_integer(a->step) : NULL,
							"path", a->has_path ? a->path : NULL));
		return a->ok ? status : STATUS_FAILED;
	}
	command_request_say(a->text);
	if (a->ok && a->has_path)
		puts(a->path);
	return !a->ok || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int follow_checkpoint(const struct command_request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	json_t *body;
	if (command_request_await(line, &body, &a, &e)) {
		err_prefix(&e, "the run ended before the checkpoint was committed");
		command_fail(&e);
		return STATUS_FAILED;
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
	if (rundir_find(word, r.run, &e))
		return command_fail(&e);
	r.what = now ? "stop-now" : "stop";
	r.waits = !leave;
	r.as_json = as_json;
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
	if (rundir_find(word, r.run, &e))
		return command_fail(&e);
	r.waits = !leave;
	r.as_json = as_json;
	return command_request(&r);
}
