/* ckpt upload: copies a checkpoint of a run to its remote place. The supervisor starts it
 * (launcher/supervise/uploads.h); the list of tools does not show it. */
#include "agent/engine/ckpt/places/upload.h"
#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "plan/spec/job/job.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char page[] =
	"muster ckpt upload — copy the next checkpoint of a run to checkpoint.remote\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt upload RUN --json\n"
	"\n"
	"DESCRIPTION\n"
	"  A run that has checkpoint.remote starts this by itself. It copies the newest "
	"checkpoint\n"
	"  of the run that is to be copied and is not in checkpoint.remote yet, removes those "
	"that\n"
	"  are not kept there, and prints {step, path, bytes, sent, seconds, left}, or {left: 0} "
	"if\n"
	"  there was nothing to copy. It runs at low priority. SIGTERM ends it; the next one\n"
	"  continues the copy.\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the copy failed; it may be tried again\n"
	"  2  usage, or the place belongs to another run\n";

/* linux/ioprio.h has no place in every distribution's headers. */
enum { IOPRIO_WHO_PROCESS = 1, IOPRIO_CLASS_BE = 2, IOPRIO_CLASS_SHIFT = 13, IOPRIO_LOWEST = 7 };

static atomic_bool cancel;

static void on_term(int signal)
{
	(void)signal;
	atomic_store(&cancel, true);
}

/* Training comes first. A kernel that refuses this changes nothing else. */
static void be_humble(void)
{
	setpriority(PRIO_PROCESS, 0, 19);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT | IOPRIO_LOWEST);
}

static json_t *describe(const struct upload_result *r, bool copied)
{
	if (!copied)
		return json_pack("{s:I}", "left", (json_int_t)r->left);
	const struct ckpt_copy_result *c = &r->copy;
	return json_pack("{s:I, s:s, s:I, s:I, s:f, s:I, s:s}", "step", (json_int_t)c->step, "path",
			 c->path, "bytes", (json_int_t)c->bytes, "sent", (json_int_t)c->sent,
			 "seconds", c->seconds, "left", (json_int_t)r->left, "note", r->note);
}

__attribute__((noinline)) static int load_options(const char *run, struct upload_options *o,
						  char dir[RUN_PATH], struct err *e)
{
	static struct job job; /* too large for a small stack, and its paths are borrowed */
	char path[RUN_PATH];
	run_path(path, run, RUN_JOB);
	if (job_load(path, NULL, 0, &job, e))
		return -1;
	if (!job.checkpoint.remote[0])
		return err_set(e, ERR_USAGE, "%s: the run has no checkpoint.remote", run);
	run_path(dir, run, RUN_CKPT);
	*o = (struct upload_options){
		.dir = job.checkpoint.dir[0] ? job.checkpoint.dir : dir,
		.remote = job.checkpoint.remote,
		.owner = run,
		.rules = { .every = job.checkpoint.remote_every,
			   .last = job.job.steps,
			   .keep = job.checkpoint.remote_keep,
			   .keep_every = job.checkpoint.keep_every },
		.bytes_per_s = (int64_t)job.checkpoint.remote_bandwidth,
		.cancel = &cancel,
	};
	return 0;
}

/* From now on the run must not start over because it cannot see its copies. */
static int note_copied(const char *run, const char *remote, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_COPIED);
	return access(path, F_OK) ? file_replace(path, remote, strlen(remote), e) : 0;
}

static int upload(const char *run, bool json)
{
	static char dir[RUN_PATH];
	static struct upload_result result;
	struct upload_options o;
	struct err e = ERR_INIT;
	struct sigaction act = { .sa_handler = on_term };
	(void)json;
	sigaction(SIGTERM, &act, NULL);
	be_humble();
	if (load_options(run, &o, dir, &e))
		return tool_fail(&tool_ckpt_upload, &e);
	int rc = ckpt_upload_one(&o, &result, &e);
	if (rc < 0 || (rc && note_copied(run, o.remote, &e)))
		return tool_fail(&tool_ckpt_upload, &e);
	return tool_print_json(&tool_ckpt_upload, describe(&result, rc == 1));
}

static int upload_main(int argc, char **argv)
{
	return tool_one_word(&tool_ckpt_upload, argc, argv, "RUN", upload);
}

const struct tool tool_ckpt_upload = { "ckpt", "upload", upload_main, NULL, page };
