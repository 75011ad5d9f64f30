#include "launcher/supervise/uploads.h"

#include "base/human.h"
#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* The pauses after failures double up to this. At the end of the run they are shorter. */
#define PAUSE_FIRST_S 1.0
#define PAUSE_MOST_S  300.0
#define PAUSE_END_S   5.0

/* Exit status of the tool if its words or the owner of the place are wrong. */
enum { STATUS_WRONG = 2 };

static bool is_on(const struct supervisor *s)
{
	return s->o.job->checkpoint.remote[0] != '\0';
}

static bool is_pending(const struct supervisor *s)
{
	return s->uploads.child || s->uploads.next_at > 0;
}

static void report_copy(struct supervisor *s, const json_t *o)
{
	char bytes[HUMAN];
	const struct rundir_upload u = {
		.step = json_integer_value(json_object_get(o, "step")),
		.path = json_string_value(json_object_get(o, "path")),
		.bytes = json_integer_value(json_object_get(o, "bytes")),
		.sent = json_integer_value(json_object_get(o, "sent")),
		.seconds = json_number_value(json_object_get(o, "seconds")),
		.left = s->uploads.left,
	};
	const char *note = json_string_value(json_object_get(o, "note"));
	if (!u.path)
		return;
	rundir_event_uploaded(s->o.run, s->generation, &u);
	if (s->uploads.failures)
		supervise_terminal_event(s->o.term, TONE_GOOD, "upload", "it works again");
	supervise_terminal_event(s->o.term, TONE_GOOD, "upload", "step %lld to %s, %s in %.2f s",
				 (long long)u.step, s->o.job->checkpoint.remote,
				 human_bytes((double)u.bytes, bytes), u.seconds);
	if (note && *note)
		supervise_terminal_event(s->o.term, TONE_WARN, "upload", "older copies remain: %s",
					 note);
}

/* `why` may quote any bytes. The first failure is reported, and those of another kind are not,
 * because they would be many. */
static void note_failure(struct supervisor *s, const char *why)
{
	struct uploads_state *u = &s->uploads;
	char text[1000];
	double most = s->state == SUP_UPLOADING ? PAUSE_END_S : PAUSE_MOST_S;
	double pause = fmin(PAUSE_FIRST_S * exp2(fmin(u->failures, 20)), most);
	u->next_at = u->denied ? 0 : supervise_now(s) + pause;
	if (u->failures++)
		return;
	snprintf(text, sizeof text, "%s", why);
	human_plain(text);
	rundir_event_upload_failed(s->o.run, s->generation, &(struct rundir_why){ .why = text });
	supervise_terminal_event(s->o.term, TONE_WARN, "upload",
				 "checkpoints are not copied to %s: %s; %s",
				 s->o.job->checkpoint.remote, text,
				 u->denied ? "this is not tried again in this run"
					   : "it is tried again, and training goes on");
}

static void on_ended(void *arg, int status, const char *output)
{
	struct supervisor *s = arg;
	struct uploads_state *u = &s->uploads;
	struct err e = ERR_INIT;
	json_t *o = status ? NULL : json_loads(output, JSON_REJECT_DUPLICATES, NULL);
	json_t *left = json_object_get(o, "left");
	u->child = NULL;
	if (!json_is_integer(left)) {
		if (!launcher_child_result("the copy", status, output, &e))
			err_set(&e, ERR_PROTO, "the copy printed no result");
		u->denied = WIFEXITED(status) && WEXITSTATUS(status) == STATUS_WRONG;
		note_failure(s, e.text);
	} else {
		u->left = json_integer_value(left);
		report_copy(s, o);
		u->failures = 0;
		u->next_at = u->left > 0 || u->again ? supervise_now(s) : 0;
	}
	json_decref(o);
	if (!is_pending(s))
		supervise_handle(s, EV_UPLOADED, NULL, NULL);
}

static void start_copy(struct supervisor *s)
{
	struct uploads_state *u = &s->uploads;
	struct err e = ERR_INIT;
	char *argv[] = { (char *)(uintptr_t)s->o.agent,
			 (char[]){ "ckpt" },
			 (char[]){ "upload" },
			 (char[]){ "--json" },
			 (char *)(uintptr_t)rundir_path(s->o.run),
			 NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	u->again = false;
	u->next_at = 0;
	if (!launcher_child_watch(s->o.loop, &c, on_ended, s, &u->child, &e))
		return;
	u->child = NULL;
	note_failure(s, e.text);
}

void supervise_uploads_look(struct supervisor *s)
{
	struct uploads_state *u = &s->uploads;
	if (!is_on(s) || u->denied)
		return;
	if (u->child)
		u->again = true;
	else if (u->next_at <= 0) /* after a failure the pause counts */
		u->next_at = supervise_now(s);
}

void supervise_uploads_tick(struct supervisor *s)
{
	struct uploads_state *u = &s->uploads;
	if (u->next_at > 0 && !u->child && supervise_now(s) >= u->next_at)
		start_copy(s);
}

bool supervise_uploads_wait(struct supervisor *s, int status)
{
	struct uploads_state *u = &s->uploads;
	bool ends = status == STATUS_DONE || status == STATUS_FAILED || status == STATUS_GAVE_UP;
	if (!ends || !is_pending(s) || s->o.job->checkpoint.remote_wait <= 0)
		return false;
	if (u->next_at > 0)
		u->next_at = fmin(u->next_at, supervise_now(s) + PAUSE_END_S);
	supervise_terminal_event(s->o.term, TONE_PLAIN, "upload",
				 "waiting for the copies of checkpoints, for %g s at most",
				 s->o.job->checkpoint.remote_wait);
	return true;
}

static void stop_copy(struct supervisor *s, int signal)
{
	struct uploads_state *u = &s->uploads;
	if (!u->child)
		return;
	launcher_child_signal(u->child, signal);
	launcher_child_forget(u->child);
	u->child = NULL;
}

void supervise_uploads_leave(struct supervisor *s)
{
	struct uploads_state *u = &s->uploads;
	char count[64] = "checkpoints may not be";
	if (!is_on(s))
		return;
	bool left = is_pending(s) || u->denied;
	stop_copy(s, SIGKILL);
	u->next_at = 0;
	if (!left)
		return;
	if (u->left > 0)
		snprintf(count, sizeof count, "%" PRId64 " checkpoint%s not", u->left,
			 u->left == 1 ? " is" : "s are");
	rundir_event_upload_left(s->o.run, s->generation,
				 &(struct rundir_upload_left){ .left = u->left });
	supervise_terminal_event(
		s->o.term, TONE_WARN, "upload",
		"%s copied to %s yet; the same command continues with what is left", count,
		s->o.job->checkpoint.remote);
}

void supervise_uploads_close(struct supervisor *s)
{
	stop_copy(s, SIGKILL);
}
