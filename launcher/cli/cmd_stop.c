/* muster stop and muster checkpoint: ask the supervisor of a run. */
#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/run_view.h"
#include "launcher/console/line.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <stdio.h>
#include <string.h>

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

struct request {
	const char *command, *what;
	bool waits, as_json;
	char run[RUN_PATH];
};

static int print_json(json_t *o /* stolen */)
{
	int rc = !o || json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER) ||
		 puts("") < 0 || fflush(stdout);
	json_decref(o);
	return rc ? STATUS_FAILED : STATUS_DONE;
}

/* Text for people goes to stderr if the result on stdout is for programs. */
static void say(const char *text)
{
	char plain[1200];
	snprintf(plain, sizeof plain, "%s", text);
	human_plain(plain);
	fprintf(stderr, "muster: %s\n", plain);
}

/* The supervisor cannot be asked: what the run does instead. Returns the exit status. */
static int explain(const struct request *r, const struct err *why)
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
		print_json(json_pack("{s:b, s:s, s:o?}", "ok", status == STATUS_DONE, "text", text,
				     "state", command_run_json(&l)));
	else
		say(text);
	console_look_fini(&l);
	return status;
}

/* Waits until the supervisor has gone, and prints how the run ended. */
static int follow_stop(const struct request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	struct look l;
	json_t *body;
	while (!console_line_await(line, follow_s, &body, &a, &e))
		json_decref(body);
	if (console_look(r->run, LOOK_QUICK, &l, &e))
		return command_fail(&e);
	if (r->as_json) {
		json_t *state = command_run_json(&l);
		int rc = print_json(json_pack("{s:b, s:s, s:o?}", "ok", 1, "text",
					      rundir_state_word(l.id), "state", state));
		console_look_fini(&l);
		return rc;
	}
	command_run_print(&l, stdout);
	console_look_fini(&l);
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

/* The answer that tells of the commit, or of its failure. */
static int print_checkpoint(const struct request *r, const struct msg_console_answer *a)
{
	int status;
	if (r->as_json) {
		status = print_json(json_pack("{s:b, s:s, s:o?, s:s?}", "ok", a->ok, "text",
					      a->text, "step",
					      a->has_step ? json_integer(a->step) : NULL, "path",
					      a->has_path ? a->path : NULL));
		return a->ok ? status : STATUS_FAILED;
	}
	say(a->text);
	if (a->ok && a->has_path)
		puts(a->path);
	return !a->ok || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int follow_checkpoint(const struct request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	json_t *body;
	if (console_line_await(line, follow_s, &body, &a, &e)) {
		err_prefix(&e, "the run ended before the checkpoint was committed");
		command_fail(&e);
		return STATUS_FAILED;
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
	else if (r->as_json && !*more)
		print_json(json_pack("{s:b, s:s}", "ok", a.ok, "text", a.text));
	else if (!r->as_json)
		say(a.text);
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
	if (rundir_find(word, r.run, &e))
		return command_fail(&e);
	r.what = now ? "stop-now" : "stop";
	r.waits = !leave;
	r.as_json = as_json;
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
	if (rundir_find(word, r.run, &e))
		return command_fail(&e);
	r.waits = !leave;
	r.as_json = as_json;
	return perform(&r, follow_checkpoint);
}
