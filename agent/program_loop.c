/* program_loop: waits for the task, and does what is due meanwhile. */
#include "agent/program_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PERIOD_MS = 100 };

/* A task that has used less of a core than this in a look is idle. */
static const double look_s = 0.5, busy_share = 0.02;
/* Between two messages about lines that are not shown: this share of program.silence. */
static const double told_share = 0.1;

/* --- output for the terminal ---------------------------------------------------------------- */

void agent_program_send_shown(struct program *p, bool ended)
{
	struct shown_output *o = &p->shown;
	if (!ended && agent_control_is_busy(p->control)) /* meanwhile the pump leaves lines out */
		return;
	pthread_mutex_lock(&o->lock);
	json_t *lines = o->lines;
	int64_t left_out = o->left_out;
	o->lines = NULL;
	o->left_out = 0;
	pthread_mutex_unlock(&o->lock);
	if (!lines)
		return;
	agent_control_send(
		p->control, MSG_OUTPUT,
		msg_output_json(&(struct msg_output){ .lines = lines, .left_out = left_out }));
	json_decref(lines);
}

/* The supervisor looks for silence (program.silence), and hears of lines that it does not show, too. */
static void tell_of_output(struct program *p, double now)
{
	double silence = p->job->program.silence;
	uint64_t lines = atomic_load(&p->lines);
	if (p->shown.wanted || silence <= 0 || lines == p->lines_told ||
	    now - p->told_at < silence * told_share)
		return;
	json_t *none = json_array();
	agent_control_send(p->control, MSG_OUTPUT,
			   msg_output_json(&(struct msg_output){ .lines = none }));
	json_decref(none);
	p->lines_told = lines;
	p->told_at = now;
}

void agent_program_check_log(struct program *p)
{
	int why = log_failure();
	if (!why || p->log_failed)
		return;
	p->log_failed = true;
	log_warn("the log of the rank cannot be written, and output of the task is missing in it: "
		 "%s%s",
		 strerror(why), process_write_remedy(why));
}

/* --- activity ----------------------------------------------------------------------------- */

/* A program that reports no steps makes progress if it uses its cores or prints something. One that does
 * may use its cores only to wait for another rank. */
static void look_at_task(struct program *p, double now)
{
	struct task_activity a;
	double passed = now - p->looked_at;
	uint64_t lines = atomic_load(&p->lines);
	if (passed < look_s)
		return;
	task_activity_look(p->activity, &a);
	bool prints = lines != p->lines_seen, works = a.used_s > busy_share * passed || prints;
	if (works)
		agent_control_active(p->control);
	if (works && !p->progress.began)
		agent_control_moved(p->control);
	p->lines_seen = lines;
	p->looked_at = now;
}

/* --- requests to stop ----------------------------------------------------------------------- */

static void signal_task(struct program *p)
{
	log_info("the task gets signal %d (%s), and has %g s to end", p->signal,
		 strsignal(p->signal), p->job->program.stop_grace);
	task_process_signal(p->process, p->signal);
	p->stop = STOP_SIGNALLED;
}

static void ask_to_stop(struct program *p, const struct stop_request *r, double now)
{
	struct err e = ERR_INIT;
	if (!p->progress.used || task_client_stop(p->client, r->reason, r->at_step, &e)) {
		signal_task(p);
		return;
	}
	log_info("the program is asked to stop after step %lld: %s", (long long)r->at_step,
		 r->reason);
	p->stop = STOP_TOLD;
	p->stop_until = now + r->reach_s;
}

/* The request, then the signal, then SIGKILL, each after program.stop_grace. The time that the program
 * has to save begins when it has reported the step after which it stops. */
static void stop_task(struct program *p, double now)
{
	struct stop_request r;
	if (!agent_control_stop_asked(p->control, &r))
		return;
	bool reached = p->stop == STOP_TOLD && p->progress.step >= r.at_step;
	if (p->stop != STOP_NOT_ASKED && now < p->stop_until && !reached)
		return;
	if (p->stop == STOP_NOT_ASKED) {
		ask_to_stop(p, &r, now);
	} else if (p->stop == STOP_TOLD) {
		p->stop = STOP_SAVES;
	} else if (p->stop == STOP_SAVES) {
		signal_task(p);
	} else if (p->stop == STOP_SIGNALLED) {
		log_warn("the task did not end within %g s (program.stop_grace) and is killed",
			 p->job->program.stop_grace);
		task_process_kill(p->process);
		p->stop = STOP_KILLED;
	}
	if (p->stop != STOP_TOLD)
		p->stop_until = now + p->job->program.stop_grace;
}

/* --- the loop ----------------------------------------------------------------------------- */

static void wait_for_events(struct program *p)
{
	struct pollfd fds[3] = {
		{ task_process_fd(p->process), POLLIN, 0 },
		{ p->wake, POLLIN, 0 },
		{ p->progress.waits ? -1 : task_client_fd(p->client), task_client_events(p->client),
		  0 },
	};
	poll(fds, 3, PERIOD_MS); /* -1 as a descriptor is left out */
}

int agent_program_loop(struct program *p, struct err *e)
{
	for (;;) {
		if (atomic_load(&p->aborted))
			return err_set(e, ERR_ABORTED, "%s", p->abort_reason);
		agent_program_serve_client(p, false);
		if (p->progress.bad.code) {
			*e = p->progress.bad;
			return -1;
		}
		int ended = task_process_poll(p->process, &p->end, e);
		if (ended) {
			agent_program_serve_client(p, true); /* its last words */
			return ended < 0 ? -1 : 0;
		}
		double now = clock_s();
		agent_program_report_task(p);
		stop_task(p, now);
		look_at_task(p, now);
		agent_program_check_log(p);
		agent_program_send_shown(p, false);
		agent_program_send_saved(p, now, false);
		agent_program_answer_dump(p, now, false);
		tell_of_output(p, now);
		wait_for_events(p);
	}
}
