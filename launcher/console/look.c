#include "launcher/console/look.h"

#include "base/clock.h"
#include "base/process_id.h"
#include "base/process_stat.h"
#include "launcher/console/line.h"

#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_owner(const char *run, struct err *e)
{
	struct stat st;
	if (stat(run, &st))
		return err_errno(e, ERR_NOTFOUND, "%.300s: cannot read the folder", run);
	if (st.st_uid == geteuid())
		return 0;
	char names[2048];
	struct passwd entry, *owner = NULL;
	getpwuid_r(st.st_uid, &entry, names, sizeof names, &owner);
	return err_set(
		e, ERR_DENIED,
		"%.300s: the run belongs to another user (%s, uid %u); only its owner can see "
		"and control it",
		run, owner ? owner->pw_name : "unknown", (unsigned)st.st_uid);
}

/* The state of this moment. */
static int ask_supervisor(struct look *l, struct err *e)
{
	struct console_line *line;
	struct msg_console_answer a;
	json_t *body;
	double until = clock_s() + LOOK_ANSWER_S;
	if (console_line_open(l->run, LOOK_ANSWER_S, &line, e))
		return -1;
	int rc = console_line_ask(line, &(struct msg_console_ask){ .what = "state" },
				  fmax(until - clock_s(), 0.05), &body, &a, e);
	if (!rc && !a.has_state)
		rc = err_set(e, ERR_PROTO, "%.300s", a.text);
	if (!rc && !rundir_state_check(a.state, &l->state, e)) {
		l->object = json_incref(a.state);
		l->live = true;
		l->id = rundir_state_find(l->state.state);
	}
	json_decref(body);
	console_line_close(line);
	return l->live ? 0 : -1;
}

static void note(struct look *l, bool lost, const char *text)
{
	if (lost)
		l->id = RUNDIR_STATE_LOST;
	snprintf(l->note, sizeof l->note, "%s", text);
}

/* The process that wrote the file was on this host, since this boot. */
static void judge_process(struct look *l, const struct err *why)
{
	char text[400];
	struct process_stat p;
	int pid = l->state.pid;
	bool there = !process_stat_read(pid, &p) &&
		     (!l->state.start || !p.start || p.start == l->state.start) && p.state != 'Z';
	if (!there)
		snprintf(text, sizeof text,
			 "its supervisor, process %d on this host, is gone without a word; it was "
			 "killed, or ended by a fault: see the end of its output",
			 pid);
	else if (p.state == 'T')
		snprintf(
			text, sizeof text,
			"the supervisor does not answer: process %d is stopped (SIGSTOP); continue "
			"it with kill -CONT %d",
			pid, pid);
	else
		snprintf(text, sizeof text, "the supervisor, process %d, does not answer: %.200s",
			 pid, why->text);
	note(l, !there, text);
}

/* What Slurm knows about the job of the supervisor. */
enum job_fate { FATE_UNKNOWN, FATE_RUNS, FATE_WAITS, FATE_ENDED };

static enum job_fate ask_for_job(struct look *l)
{
	struct err e = ERR_INIT;
	if (!l->state.has_job)
		return FATE_UNKNOWN;
	if (console_queue_ask(l->run, l->state.job, &l->job, &e))
		return e.code == ERR_NOTFOUND ? FATE_ENDED : FATE_UNKNOWN;
	l->has_job = true;
	return console_queue_runs(&l->job)    ? FATE_RUNS
	       : console_queue_waits(&l->job) ? FATE_WAITS
					      : FATE_ENDED;
}

/* The supervisor is elsewhere, and cannot be reached from here. */
static void judge_elsewhere(struct look *l, const struct err *why)
{
	const struct rundir_state *s = &l->state;
	char where[400], text[700];
	enum job_fate fate = ask_for_job(l);
	snprintf(where, sizeof where,
		 "the supervisor on %.100s cannot be reached from here (%.250s)", s->host,
		 why->text);
	switch (fate) {
	case FATE_RUNS:
		snprintf(text, sizeof text,
			 "%s, and has written nothing for %.0f s, but its job %.20s runs", where,
			 l->age, s->job);
		break;
	case FATE_WAITS:
		snprintf(text, sizeof text, "its job %.20s begins again", s->job);
		break;
	case FATE_ENDED:
		snprintf(text, sizeof text,
			 "its supervisor on %.100s is gone without a word, and its job %.20s does "
			 "not "
			 "run any more; see the end of logs/slurm-%.20s.out",
			 s->host, s->job, s->job);
		break;
	case FATE_UNKNOWN:
		snprintf(text, sizeof text, "%s, and has written nothing for %.0f s", where,
			 l->age);
		break;
	}
	note(l, fate == FATE_ENDED || (fate == FATE_UNKNOWN && l->age > LOOK_OLD_S), text);
	if (fate == FATE_WAITS)
		l->id = RUNDIR_STATE_QUEUED;
}

/* The file says that a supervisor is at work, but none has answered. */
static void judge_silence(struct look *l, const struct err *why)
{
	struct process_id self;
	char host[256] = "", text[300];
	process_id_self(&self);
	gethostname(host, sizeof host - 1);
	bool here = !strcmp(host, l->state.host), same_boot = !strcmp(self.boot, l->state.boot);
	if (*self.boot && same_boot && self.pid_space == l->state.pid_space) {
		judge_process(l, why);
	} else if (here && *self.boot && *l->state.boot && !same_boot) {
		snprintf(text, sizeof text,
			 "its supervisor, process %d, is gone: this host was restarted since",
			 l->state.pid);
		note(l, true, text);
	} else {
		judge_elsewhere(l, why);
	}
}

/* It ended. Whether another job continues it, or it is in the queue again. */
static void look_for_next_job(struct look *l, enum look_depth depth)
{
	bool newer = console_queue_submitted(l->run) > l->state.time;
	bool stopped = l->id == RUNDIR_STATE_STOPPED || l->id == RUNDIR_STATE_LOST;
	if (!newer && !(depth == LOOK_FULL && stopped && l->state.has_job))
		return;
	if (console_queue_ask(l->run, newer ? NULL : l->state.job, &l->job, NULL))
		return;
	l->has_job = true;
	if (console_queue_waits(&l->job))
		l->id = RUNDIR_STATE_QUEUED;
}

/* The run has no state.json: it has not begun. */
static int look_in_queue(struct look *l, struct err *e)
{
	struct err why = ERR_INIT;
	char text[500];
	if (console_queue_submitted(l->run) <= 0)
		return err_set(e, ERR_NOTFOUND,
			       "%.300s: the folder has no state.json; the run has not begun, or an "
			       "older muster ran it, and its events.jsonl says how it ended",
			       l->run);
	int rc = console_queue_ask(l->run, NULL, &l->job, &why);
	l->has_job = !rc;
	l->id = RUNDIR_STATE_QUEUED;
	if (rc && why.code != ERR_NOTFOUND) {
		snprintf(text, sizeof text, "it was submitted; Slurm cannot be asked: %.400s",
			 why.text);
		note(l, false, text);
	} else if (rc || !(console_queue_waits(&l->job) || console_queue_runs(&l->job))) {
		snprintf(text, sizeof text,
			 "its job has ended before the run has begun%s%.200s; see logs/ in its "
			 "folder",
			 rc ? "" : ": ", rc ? "" : l->job.state);
		note(l, true, text);
	} else if (console_queue_runs(&l->job)) {
		l->id = RUNDIR_STATE_STARTING;
	}
	return 0;
}

int console_look(const char *run, enum look_depth depth, struct look *out, struct err *e)
{
	struct err why = ERR_INIT, bad = ERR_INIT;
	*out = (struct look){ .id = RUNDIR_STATE_COUNT };
	snprintf(out->run, sizeof out->run, "%s", run);
	if (check_owner(run, e))
		return -1;
	if (!ask_supervisor(out, &why))
		return 0;
	if (rundir_state_load(run, &out->object, &out->state, &bad))
		return bad.code == ERR_NOTFOUND ? look_in_queue(out, e)
						: err_set(e, bad.code, "%s", bad.text);
	out->id = rundir_state_find(out->state.state);
	out->age = fmax(clock_wall_s() - out->state.time, 0);
	if (rundir_state_active(out->id))
		judge_silence(out, &why);
	if (!rundir_state_active(out->id) && out->id != RUNDIR_STATE_QUEUED)
		look_for_next_job(out, depth);
	return 0;
}

void console_look_fini(struct look *l)
{
	json_decref(l->object);
	l->object = NULL;
}
