#include "agent/program.h"

#include "agent/preflight.h"
#include "agent/program_inner.h"
#include "agent/setup.h"
#include "agent/task/blame.h"
#include "agent/task/lines.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process_id.h"
#include "base/process_stat.h"
#include "plan/spec/layout.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds: for processes that outlive the program, to end by themselves; until the program is executed;
 * for all of the task to be gone when the agent must leave. */
static const double grace_s = 0.5, patience_s = 60, leave_s = 8;
/* Until the supervisor passes on what an agent has told it. */
static const double stop_notice_s = 1;

/* --- the welcome ---------------------------------------------------------------------------- */

static int signal_named(const char *word)
{
	for (int n = 1; n < NSIG; n++)
		if (sigabbrev_np(n) && !strcmp(sigabbrev_np(n), word))
			return n;
	return SIGTERM; /* the key has known words only */
}

/* As in the built-in training: the rank that has the loss. */
static bool sends_metrics(const struct job *job, int rank, int world)
{
	struct layout l = layout_of(job, 1);
	l.dp = world / layout_world(&l);
	const struct coords last = { .pp = l.pp - 1 };
	return rank == layout_rank(&l, last);
}

static int read_welcome(struct program *p, struct err *e)
{
	const struct msg_welcome *w = p->welcome;
	if (w->world < 1 || w->rank < 0 || w->rank >= w->world)
		return err_set(e, ERR_PROTO, "message welcome: rank %d of %d", w->rank, w->world);
	p->job = malloc(sizeof *p->job); /* too large for a small stack */
	if (!p->job)
		return err_set(e, ERR_NOMEM, "no memory for the job");
	if (msg_program_read(w->program, &p->place, e) ||
	    job_parse(w->job, "the supervisor's job", p->job, e))
		return -1;
	struct layout l = layout_of(p->job, 1);
	if (!job_has_program(p->job) || w->world % layout_world(&l))
		return err_set(e, ERR_PROTO,
			       "message welcome: a job without a program, or whose "
			       "degrees do not divide the number of ranks");
	p->signal = signal_named(p->job->program.stop_signal);
	p->progress.metrics = sends_metrics(p->job, w->rank, w->world);
	p->shown.wanted = p->place.shown;
	return 0;
}

/* --- the task's surroundings ------------------------------------------------------------------ */

static json_t *shown_line(const char *text, size_t len)
{
	return json_stringn(text, task_lines_cut(text, len, SHOWN_BYTES));
}

/* On the pump's thread. Lines that the loop has not sent yet are bounded: the last ones stay, because they
 * tell why a task fails. */
static void on_line(void *arg, enum task_stream stream, const char *text, size_t len)
{
	struct program *p = arg;
	struct shown_output *o = &p->shown;
	(void)stream;
	atomic_fetch_add(&p->lines, 1);
	if (!o->wanted)
		return;
	pthread_mutex_lock(&o->lock);
	if (!o->lines)
		o->lines = json_array();
	if (json_array_size(o->lines) >= SHOWN_LINES && !json_array_remove(o->lines, 0))
		o->left_out++;
	if (json_array_append_new(o->lines, shown_line(text, len)))
		o->left_out++;
	pthread_mutex_unlock(&o->lock);
}

/* On the control thread. */
static void on_abort(const char *reason, void *arg)
{
	struct program *p = arg;
	uint64_t one = 1;
	snprintf(p->abort_reason, sizeof p->abort_reason, "%.250s", reason);
	atomic_store(&p->aborted, true);
	if (write(p->wake, &one, sizeof one) < 0) /* a full counter wakes as well */
		return;
}

/* What must hold before the task starts. */
static int prepare(struct program *p, struct err *e)
{
	const struct msg_welcome *w = p->welcome;
	struct preflight device = {
		.cuda = p->job->job.device == DEVICE_CUDA,
		.device = w->device,
		.bus = w->bus,
		.node = w->node,
		.node_ranks = w->node_ranks,
	};
	if (agent_setup_end_predecessors(p->control, w, e))
		return -1;
	agent_control_progress(p->control, 0, "preflight");
	if (agent_preflight(&device, e))
		return -1;
	agent_control_progress(p->control, 0, "meeting");
	return agent_meeting_open(p->control, w->rank, p->place.group_world == 1,
				  p->job->network.interface, &p->meeting, e);
}

void agent_program_report_task(struct program *p)
{
	struct process_id self;
	struct process_stat stat = { .start = 0 };
	pid_t pid = task_process_pid(p->process);
	if (!pid || p->reported)
		return;
	p->reported = true;
	process_id_self(&self);
	process_stat_read((int)pid, &stat);
	agent_control_send(p->control, MSG_TASK,
			   msg_task_json(&(struct msg_task){ .pid = (int)pid,
							     .start = stat.start,
							     .pid_space = self.pid_space,
							     .boot = self.boot }));
	log_info("rank %d of %d: process %ld runs %s", p->welcome->rank, p->welcome->world,
		 (long)pid, p->job->job.program);
}

/* Without it the run goes on. */
static void watch_health(struct program *p)
{
	struct err e = ERR_INIT;
	const struct watch_options opt = {
		.control = p->control,
		.window_s = p->job->health.slow_window,
		.node = p->welcome->watches_node,
		.gpu = p->job->job.device == DEVICE_CUDA ? p->welcome->bus : "",
		.disk = p->welcome->run,
	};
	if (agent_watch_open(&opt, &p->health, &e))
		log_warn("%s", e.text);
}

/* Nothing is known of the program's own steps yet. */
static void report_ready(struct program *p)
{
	json_t *phases = json_object();
	agent_control_send(p->control, MSG_READY,
			   msg_ready_json(&(struct msg_ready){ .from = "", .phases = phases }));
	json_decref(phases);
	agent_control_progress(p->control, 0, "running");
}

static int start_task(struct program *p, struct err *e)
{
	int ends[TASK_STREAMS] = { -1, -1 }, client = -1;
	const struct task_output_options output = { .line = on_line, .arg = p };
	if (agent_program_environment(p, e) ||
	    task_client_open(&agent_program_handlers, p, &p->client, &client, e))
		return -1;
	int rc = task_output_open(&output, &p->output, ends, e);
	const struct task_start start = {
		.argv = p->argv,
		.env = p->env,
		.out = ends[TASK_OUT],
		.err = ends[TASK_ERR],
		.client = client,
		.mask = (mode_t)p->place.umask & 0777,
		.grace_s = grace_s,
		.patience_s = patience_s,
	};
	p->started_at = p->looked_at = clock_s();
	if (!rc)
		rc = task_process_start(&start, &p->process, e);
	close(client);
	for (int i = 0; i < TASK_STREAMS; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	if (rc)
		return -1;
	p->activity = task_activity_open(task_process_keeper(p->process));
	return p->activity ? 0 : err_set(e, ERR_NOMEM, "no memory to watch the task");
}

/* --- the end ------------------------------------------------------------------------------ */

/* Ends what is left of the task, and its output. */
static int end_task(struct program *p, struct err *e)
{
	struct task_left left = { 0 };
	int rc = task_process_close(p->process, &left, e);
	p->process = NULL;
	if (left.killed)
		log_warn("%d process%s of the task outlived it and had to be killed, the first one "
			 "%s",
			 left.killed, left.killed == 1 ? "" : "es", left.name);
	task_output_finish(p->output);
	return rc;
}

static json_t *split_lines(const char *text)
{
	json_t *list = json_array();
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		json_array_append_new(list, json_stringn(text, strcspn(text, "\n")));
	return list;
}

/* A program whose library ends it by SIGABRT because a peer is gone blames the peer, too. */
static bool blames_peer(int status, const char *tail)
{
	bool failed = WIFEXITED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	return failed && task_blames_peer(tail);
}

/* When Slurm takes the nodes, its SIGTERM reaches the task and the agent at the same time; the request to
 * stop comes from the supervisor a moment later. */
static void await_stop(struct program *p)
{
	struct stop_request request;
	if (!WIFSIGNALED(p->end.status) || WTERMSIG(p->end.status) != SIGTERM)
		return;
	for (double end = clock_s() + stop_notice_s;
	     p->stop == STOP_NOT_ASKED && clock_s() < end;) {
		if (agent_control_stop_asked(p->control, &request))
			p->stop = STOP_TOLD;
		else
			usleep(10 * 1000);
	}
}

static void note_failure(const struct program *p, struct program_failure *failure)
{
	*failure = (struct program_failure){
		.ended = true,
		.status = p->end.status,
		.last_lines = split_lines(task_output_tail(p->output)),
	};
}

/* For a line of the log: "exit status 1", "signal 15". */
static const char *how_word(int status)
{
	return WIFSIGNALED(status) ? "signal" : "exit status";
}

static int how_number(int status)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static int report_end(struct program *p, struct program_failure *failure, struct err *e)
{
	int status = p->end.status;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	await_stop(p);
	if (p->stop != STOP_NOT_ASKED) {
		log_info("the task ended after the request to stop, with %s %d", how_word(status),
			 how_number(status));
		return 0;
	}
	note_failure(p, failure);
	enum err_code code = blames_peer(status, task_output_tail(p->output)) ? ERR_PEER : ERR_TASK;
	if (WIFSIGNALED(status))
		return err_set(e, code, "the task was killed by SIG%s%s",
			       sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status))
							      : "?",
			       WCOREDUMP(status) ? " (core dumped)" : "");
	return err_set(e, code, "the task exited with status %d", WEXITSTATUS(status));
}

static void report_finished(struct program *p)
{
	json_t *phases = json_object();
	agent_control_send(
		p->control, MSG_FINISHED,
		msg_finished_json(&(struct msg_finished){ .step = p->progress.step,
							  .peak_bytes = (int64_t)p->end.rss,
							  .phases = phases }));
	json_decref(phases);
}

/* --- one generation ----------------------------------------------------------------------------- */

static int open_program(struct program *p, const struct generation_start *start, struct err *e)
{
	*p = (struct program){ .control = start->control,
			       .welcome = start->welcome,
			       .meeting = MEETING_INIT,
			       .progress.saved_step = -1,
			       .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
	pthread_mutex_init(&p->shown.lock, NULL);
	if (p->wake < 0)
		return err_errno(e, ERR_NOMEM, "no descriptors; raise `ulimit -n`");
	if (read_welcome(p, e))
		return -1;
	return agent_rank_log_open(p->welcome, p->job, p->control, &p->log, e);
}

static void close_program(struct program *p)
{
	struct err ignored = ERR_INIT;
	agent_watch_close(p->health);
	if (task_process_close(p->process, NULL, &ignored))
		log_error("%s", ignored.text);
	agent_control_on_abort(p->control, NULL, NULL);
	agent_control_on_dump(p->control, NULL, NULL);
	task_output_close(p->output);
	task_activity_close(p->activity);
	task_client_close(p->client);
	agent_meeting_close(&p->meeting);
	agent_rank_log_close(p->log);
	free(p->argv);
	free(p->env);
	free(p->job);
	json_decref(p->shown.lines);
	pthread_mutex_destroy(&p->shown.lock);
	if (p->wake >= 0)
		close(p->wake);
	free(p);
}

static bool has_failed(const struct program *p)
{
	bool well = WIFEXITED(p->end.status) && !WEXITSTATUS(p->end.status);
	return !well && p->stop == STOP_NOT_ASKED;
}

/* The report comes when nothing of the task is left. Until then nobody knows whether SIGTERM was Slurm's, and the
 * end a stop (await_stop). */
static void announce_failure(struct program *p)
{
	agent_control_send(p->control, MSG_TASK_FAILED, msg_task_failed_json(NULL));
	log_info("the task has ended with %s %d; what it has left gets %g s to end",
		 how_word(p->end.status), how_number(p->end.status), grace_s);
}

static int run_task(struct program *p, struct program_failure *failure, struct err *e)
{
	struct err stuck = ERR_INIT;
	agent_setup_bind(p->welcome);
	agent_control_allow_to_leave(p->control, leave_s);
	agent_control_on_abort(p->control, on_abort, p);
	if (prepare(p, e))
		return -1;
	agent_control_progress(p->control, 0, "starting");
	if (start_task(p, e))
		return -1;
	agent_program_report_task(p);
	report_ready(p);
	watch_health(p);
	agent_control_on_dump(p->control, agent_program_dump, p);
	int rc = agent_program_loop(p, e);
	agent_control_on_dump(p->control, NULL, NULL);
	agent_program_answer_dump(p, clock_s(), true);
	if (!rc && has_failed(p))
		announce_failure(p);
	if (end_task(p, &stuck) && !rc)
		rc = err_set(e, stuck.code, "%s", stuck.text);
	agent_program_check_log(p);
	agent_program_send_shown(p, true);
	agent_program_send_saved(p, clock_s(), true);
	if (!rc)
		rc = report_end(p, failure, e);
	else if (e->code == ERR_TASK) /* the task ended with its keeper */
		note_failure(p, failure);
	if (!rc)
		report_finished(p);
	return rc;
}

int agent_program_run(const struct generation_start *start, struct program_failure *failure,
		      struct err *e)
{
	struct program *p = malloc(sizeof *p);
	*failure = (struct program_failure){ 0 };
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory to run a program");
	int rc = open_program(p, start, e) ? -1 : run_task(p, failure, e);
	if (rc) {
		failure->log = p->log;
		p->log = NULL;
	}
	close_program(p);
	return rc;
}
