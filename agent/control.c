#include "agent/control_inner.h"

#include "base/clock.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
	BACKLOG_BUSY = 64 << 10
}; /* queued bytes: with more, others than this process should wait */

static const double leave_s = 0.3, flush_s = 1.0; /* leave_s: of an agent that trains */
/* Seconds between two looks for what the supervisor's host has acknowledged. */
static const double contact_look_s = 0.02;

static void signals_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGUSR1);
}

void agent_control_block_signals(void)
{
	sigset_t set;
	signals_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

void agent_control_wake(struct control *c)
{
	uint64_t one = 1;
	/* A full counter wakes the thread as well. */
	if (write(c->wake_fd, &one, sizeof one) < 0)
		return;
}

static void drain_wake(struct control *c)
{
	uint64_t n;
	if (read(c->wake_fd, &n, sizeof n) < 0)
		return;
}

void agent_control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg), void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_abort = fn;
	c->on_abort_arg = arg;
	if ((c->leaving || c->regroups) && fn)
		fn(c->reason, arg);
	pthread_mutex_unlock(&c->lock);
}

void agent_control_on_collect(struct control *c, void (*fn)(int rank, const char *node, void *arg),
			      void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_collect = fn;
	c->on_collect_arg = arg;
	pthread_mutex_unlock(&c->lock);
}

void agent_control_on_dump(struct control *c, int (*fn)(void *arg, struct err *e), void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_dump = fn;
	c->on_dump_arg = arg;
	pthread_mutex_unlock(&c->lock);
}

static void send_examined(struct control *c)
{
	for (json_t *answer; (answer = agent_examine_next(&c->examinations));)
		agent_control_send(c, MSG_EXAMINED, answer);
}

static void report_signals(struct control *c)
{
	struct signalfd_siginfo s;
	while (read(c->signal_fd, &s, sizeof s) == sizeof s)
		agent_control_send(
			c, MSG_SIGNAL,
			msg_signal_json(&(struct msg_signal){ .number = (int)s.ssi_signo }));
}

size_t agent_control_backlog(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	size_t queued = agent_connection_backlog(c->connection);
	pthread_mutex_unlock(&c->lock);
	return queued;
}

bool agent_control_is_busy(struct control *c)
{
	return agent_control_backlog(c) > BACKLOG_BUSY;
}

/* Waits for the socket, a signal or a wake-up until `until`. */
static void wait_for_event(struct control *c, double until)
{
	struct pollfd p[3 + EXAMINE_MAX] = {
		{ agent_connection_fd(c->connection),
		  (short)(POLLIN | (agent_control_backlog(c) ? POLLOUT : 0)), 0 },
		{ c->wake_fd, POLLIN, 0 },
		{ c->signal_fd, POLLIN, 0 },
	};
	nfds_t n = 3 + (nfds_t)agent_examine_poll(&c->examinations, p + 3);
	double left = until - clock_s();
	poll(p, n, left > 0 ? (int)(left * 1000) + 1 : 0);
	drain_wake(c);
}

/* Sends what is queued, then waits until the supervisor closes. If this end closed first, a message
 * of the supervisor could make the kernel drop data that the supervisor has not read. */
static void flush_and_close(struct control *c)
{
	double end = clock_s() + flush_s;
	struct err e = ERR_INIT;
	bool shut = false;
	while (clock_s() < end && !agent_control_exchange_messages(c, &e)) {
		if (!shut && !agent_control_backlog(c)) {
			agent_connection_shut(c->connection);
			shut = true;
		}
		wait_for_event(c, end);
	}
}

/* Ends the process unless its main thread does so first. Returns if the agent has finished and
 * agent_control_close() was called. */
static void await_exit(struct control *c)
{
	double end = clock_s() + atomic_load(&c->leave_s);
	bool finished = atomic_load(&c->finished);
	for (double left; (left = end - clock_s()) > 0;) {
		if (finished && atomic_load(&c->closing))
			return;
		struct pollfd p = { c->wake_fd, POLLIN, 0 };
		poll(&p, finished, (int)(left * 1000) + 1);
		drain_wake(c);
	}
	_exit(finished ? 0 : 1);
}

/* An acknowledgement does not wake this thread. So the thread looks for one often while somebody waits for it. */
static double next_event(const struct control *c)
{
	bool awaited = atomic_load(&c->awaits_contact) > 0;
	return awaited ? fmin(c->next_look, clock_s() + contact_look_s) : c->next_look;
}

static void *control_main(void *arg)
{
	struct control *c = arg;
	struct err e = ERR_INIT;
	pthread_setname_np(pthread_self(), "control");
	for (;;) {
		if (atomic_load(&c->closing)) {
			agent_examine_end(&c->examinations);
			agent_control_end_reports(c);
			flush_and_close(c);
			return NULL;
		}
		report_signals(c);
		send_examined(c);
		agent_control_report(c);
		if (agent_control_exchange_messages(c, &e))
			break;
		wait_for_event(c, next_event(c));
		agent_pace_woke(&c->pace, clock_s() - c->next_look);
	}
	agent_control_end_reports(c);
	/* The supervisor may close after it has received "finished". */
	if (!atomic_load(&c->finished))
		agent_control_start_leaving(c, e.text);
	await_exit(c);
	return NULL;
}

static int open_descriptors(struct control *c, struct err *e)
{
	sigset_t set;
	signals_set(&set);
	c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	c->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (c->wake_fd < 0 || c->signal_fd < 0)
		return err_errno(e, ERR_NOMEM,
				 "control channel: no descriptors; raise `ulimit -n`");
	return 0;
}

static void control_free(struct control *c)
{
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	if (c->signal_fd >= 0)
		close(c->signal_fd);
	agent_control_end_reports(c);
	agent_connection_close(c->connection);
	json_decref(c->welcome_body);
	json_decref(c->next);
	json_decref(c->endpoints);
	pthread_cond_destroy(&c->news);
	pthread_mutex_destroy(&c->lock);
	agent_times_fini(&c->times);
	agent_reports_fini(&c->reports);
	free(c);
}

/* Waits use the monotonic clock. */
static void news_init(struct control *c)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->news, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int agent_control_open(const struct control_options *opt, struct control **out,
		       const struct msg_welcome **welcome, struct err *e)
{
	struct control *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "control channel: no memory for its state");
	c->wake_fd = c->signal_fd = -1;
	c->endpoints = json_array();
	pthread_mutex_init(&c->lock, NULL);
	news_init(c);
	agent_times_init(&c->times, opt->world, clock_s());
	agent_reports_init(&c->reports);
	atomic_store(&c->phase, "start");
	atomic_store(&c->leave_s, leave_s);
	if (!c->endpoints) {
		err_set(e, ERR_NOMEM, "control channel: no memory for its state");
		goto fail;
	}
	if (open_descriptors(c, e) || agent_connection_open(opt, &c->connection, e) ||
	    agent_connection_await_welcome(c->connection, &c->welcome_body, e) ||
	    msg_welcome_read(c->welcome_body, &c->welcome, e))
		goto fail;
	if (agent_control_begin_reports(c, &c->welcome, e))
		goto fail;
	if (pthread_create(&c->thread, NULL, control_main, c)) {
		err_set(e, ERR_NOMEM, "control channel: no thread; raise `ulimit -u`");
		goto fail;
	}
	*out = c;
	*welcome = &c->welcome;
	return 0;
fail:
	control_free(c);
	return -1;
}

void agent_control_wipe_secret(struct control *c)
{
	/* jansson has no call that changes a string's bytes. */
	char *secret = (char *)(uintptr_t)c->welcome.group_secret;
	explicit_bzero(secret, strlen(secret));
	json_object_del(c->welcome_body, "group_secret");
	c->welcome.group_secret = NULL;
}

void agent_control_close(struct control *c)
{
	if (!c)
		return;
	atomic_store(&c->closing, true);
	agent_control_wake(c);
	pthread_mutex_lock(&c->lock);
	bool leaving = c->leaving;
	pthread_mutex_unlock(&c->lock);
	if (leaving)
		return;
	pthread_join(c->thread, NULL);
	control_free(c);
}

const char *agent_control_local_address(const struct control *c)
{
	return agent_connection_local_address(c->connection);
}

/* The lock is held. */
static void send_waiting(struct control *c, int report)
{
	int64_t number;
	json_t *body = agent_reports_waiting(&c->reports, report, &number);
	if (!body)
		return;
	agent_connection_send(c->connection, msg_report_type(report), body, NULL);
	agent_reports_settle(&c->reports, report, number);
	json_decref(body);
}

/* Sends what the supervisor must know before it gets a message of this type. The lock is held. */
static void send_before(struct control *c, enum msg_type type)
{
	bool ends = type == MSG_FINISHED || type == MSG_IDLE || type == MSG_FAILED;
	json_t *where = type == MSG_FAILED ? agent_control_progress_json(c) : NULL;
	json_t *times = ends ? agent_times_next(&c->times, clock_s(), 0) : NULL;
	if (where)
		agent_connection_send(c->connection, MSG_PROGRESS, where, NULL);
	if (times)
		agent_connection_send(c->connection, MSG_TIMES, times, NULL);
	json_decref(where);
	json_decref(times);
	for (int i = 0; ends && i < REPORTS_COUNT; i++)
		send_waiting(c, i);
}

void agent_control_send(struct control *c, enum msg_type type, json_t *body)
{
	/* There was no memory for the body. The supervisor would refuse an empty message, and
	 * report that instead of the cause. */
	if (!body && (type == MSG_LOG || type == MSG_FAILED))
		return;
	if (type == MSG_FINISHED)
		atomic_store(&c->finished, true);
	/* If the channel fails here, the control thread sees the same error and acts on it. */
	pthread_mutex_lock(&c->lock);
	send_before(c, type);
	agent_connection_send(c->connection, type, body, NULL);
	pthread_mutex_unlock(&c->lock);
	if (type == MSG_READY)
		agent_times_begin(&c->times, clock_s());
	json_decref(body);
	agent_control_wake(c);
}

void agent_control_report_later(struct control *c, enum msg_type type, json_t *body)
{
	if (body)
		agent_reports_keep(&c->reports, msg_report_index(type), body);
}

void agent_control_report_at_once(struct control *c, enum msg_type type, json_t *body)
{
	if (!body)
		return;
	agent_reports_overtake(&c->reports, msg_report_index(type), body);
	agent_control_send(c, type, body);
}

void agent_control_progress(struct control *c, int64_t step, const char *phase)
{
	atomic_store_explicit(&c->step, step, memory_order_relaxed);
	atomic_store_explicit(&c->phase, phase, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->count, 1, memory_order_relaxed);
}

void agent_control_moved(struct control *c)
{
	atomic_fetch_add_explicit(&c->count, 1, memory_order_relaxed);
}

void agent_control_active(struct control *c)
{
	atomic_fetch_add_explicit(&c->active, 1, memory_order_relaxed);
}

void agent_control_worked(struct control *c, double seconds)
{
	agent_pace_worked(&c->pace, seconds);
}

void agent_control_times(struct control *c, const struct train_times *times, bool at_once)
{
	agent_times_set(&c->times, times);
	json_t *now = at_once ? agent_times_next(&c->times, clock_s(), c->progress_s) : NULL;
	if (now)
		agent_control_send(c, MSG_TIMES, now);
}

int agent_control_trainer(struct control *c)
{
	return atomic_load(&c->pace.trainer);
}

int64_t agent_control_step(struct control *c)
{
	return atomic_load(&c->step);
}

bool agent_control_stopping(struct control *c, bool *checkpoint)
{
	int stop = atomic_load(&c->stop);
	*checkpoint = stop == STOP_CHECKPOINT;
	return stop != STOP_NONE;
}

bool agent_control_stop_asked(struct control *c, struct stop_request *request)
{
	if (atomic_load(&c->stop) == STOP_NONE)
		return false;
	*request = (struct stop_request){
		.reason = c->stop_reason,
		.at_step = c->stop_at,
		.reach_s = c->stop_reach_s,
	};
	return true;
}

void agent_control_allow_to_leave(struct control *c, double seconds)
{
	atomic_store(&c->leave_s, seconds);
}

int agent_control_save_asked(struct control *c)
{
	return atomic_load(&c->save);
}

int agent_control_trace_asked(struct control *c, int *steps)
{
	long long word = atomic_load(&c->trace);
	*steps = (int)(word & UINT32_MAX);
	return (int)(word >> 32);
}
