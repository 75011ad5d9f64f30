/* muster status: what a run does now, or how it ended. */
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_time.h"
#include "launcher/cli/run_view.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <stdio.h>

static const char help[] =
	"muster status — show what a run does now, or how it ended\n"
	"\n"
	"SYNOPSIS\n"
	"  muster status RUN [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/.\n"
	"  Shows the state and since when, the generation and restarts, the step and the time\n"
	"  that is left, losses, the speed against the prediction, the last checkpoint and the\n"
	"  next one, ranks and nodes that stand out, warnings, and the time limit of the job;\n"
	"  and for the run and its last generations the goodput, the share of all devices' time\n"
	"  that went into steps that count. The same share of the wall time is the effective\n"
	"  training. Device hours are hours of GPUs, and of ranks on CPUs.\n"
	"  The supervisor of the run answers; if it does not within 0.3 s, its last snapshot is\n"
	"  shown, which is at most some seconds old (state.json in the run folder), and what\n"
	"  has become of it. For a run that waits in Slurm's queue, Slurm is asked. Only the\n"
	"  owner of a run can see it.\n"
	"\n"
	"STATES\n"
	"  queued starting training stopping restarting waiting uploading\n"
	"                  the run goes on\n"
	"  done            all steps are done\n"
	"  stopped         it stopped on purpose\n"
	"  failed          the job failed\n"
	"  gave-up         no restart was left\n"
	"  lost            its supervisor is gone without a word: it was killed, or its host\n"
	"                  is gone\n"
	"\n"
	"OPTIONS\n"
	"  --json  print the object of state.json, with these members added: run, live (the\n"
	"          supervisor has answered), age_s (of the snapshot), note, queue (Slurm's job),\n"
	"          time_spent (wall_s, effective_s, goodput, total_s of all devices,\n"
	"          device_hours and lost_s, of the run, and in its list generations of each)\n"
	"\n"
	"EXAMPLES\n"
	"  muster status demo\n"
	"  muster status runs/demo --json | jq .step\n"
	"  watch muster status demo\n"
	"\n"
	"EXIT STATUS\n"
	"  0   the run goes on, waits in the queue, or is done\n"
	"  1   it failed; or the output cannot be printed\n"
	"  2   usage\n"
	"  3   there is no such run, or its state cannot be read; or it could not start\n"
	"  4   it gave up after restarts\n"
	"  5   it is lost\n"
	"  75  it stopped on purpose\n";

static int print(const struct look *l, bool as_json)
{
	if (!as_json) {
		command_run_print(l, stdout);
		return 0;
	}
	struct rundir_goodput time;
	command_run_time_read(l, &time);
	json_t *o = command_run_json(l);
	if (o)
		json_object_set_new(o, "time_spent", command_run_time_json(&time));
	rundir_goodput_fini(&time);
	return command_print_json(o);
}

int cmd_status(int argc, char **argv)
{
	bool as_json = false;
	const char *word = NULL;
	const struct command_option options[] = { { "--json", &as_json, NULL },
						  { NULL, NULL, NULL } };
	char run[RUN_PATH];
	struct look l;
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_runs(argc, argv, options, &word, 1);
	if (status)
		return status;
	if (rundir_find(word, run, &e) || console_look(run, LOOK_FULL, &l, &e))
		return command_fail(&e);
	status = command_output_end(print(&l, as_json) ? STATUS_FAILED : command_run_exit(&l));
	console_look_fini(&l);
	return status;
}
