#include "agent/control.h"

#include "agent/link.h"
#include "base/clock.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { BACKLOG_MAX = 4 * MSG_MAX }; /* beyond it progress is left out */

static const double leave_s = 0.3, flush_s = 1.0;
/* Between two tellings of progress: of all ranks together the supervisor hears some thousand a
 * second at most. */
static const double progress_s = 0.1, progress_rank_s = 0.0005;

enum { STOP_NONE, STOP_NOW, STOP_CHECKPOINT };

struct control {
	int wake_fd, signal_fd;
	pthread_t thread;
	json_t *welcome;
	double heartbeat_s, progress_s;
	double next_beat, next_look; /* the control thread's */
	uint64_t told;               /* the count that the supervisor has heard of */

	pthread_mutex_t lock; /* link, leaving, reason, on_abort, on_dump */
	pthread_cond_t news;  /* of leaving, given_up, recorded */
	struct link *link;
	bool leaving, given_up;
	int64_t recorded; /* the series is in the run folder up to this step */
	char reason[sizeof(((struct err *)0)->text)];
	void (*on_abort)(const char *reason, void *arg);
	void *on_abort_arg;
	int (*on_dump)(void *arg, struct err *e);
	void *on_dump_arg;

	atomic_bool closing, finished;
	atomic_int stop;
	atomic_llong step;
	atomic_ullong count;
	_Atomic(const char *) phase;
};

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

static void wake(struct control *c)
{
	uint64_t one = 1;
	/* A full counter wakes just as well. */
	if (write(c->wake_fd, &one, sizeof one) < 0)
		return;
}

static void drain_wake(struct control *c)
{
	uint64_t n;
	if (read(c->wake_fd, &n, sizeof n) < 0)
		return;
}

/* The agent must leave: its trainer is told, once. The lock is held while on_abort runs, so that
 * agent_control_on_abort(NULL) waits for its end. */
static void leave(struct control *c, const char *reason)
{
	pthread_mutex_lock(&c->lock);
	if (!c->leaving) {
		c->leaving = true;
		snprintf(c->reason, sizeof c->reason, "%s", reason);
		if (c->on_abort)
			c->on_abort(c->reason, c->on_abort_arg);
		pthread_cond_broadcast(&c->news);
	}
	pthread_mutex_unlock(&c->lock);
}

void agent_control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg), void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_abort = fn;
	c->on_abort_arg = arg;
	if (c->leaving && fn)
		fn(c->reason, arg);
	pthread_mutex_unlock(&c->lock);
}

void agent_control_on_dump(struct control *c, int (*fn)(void *arg, struct err *e), void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_dump = fn;
	c->on_dump_arg = arg;
	pthread_mutex_unlock(&c->lock);
}

static int on_dump_message(struct control *c, const struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	(void)m;
	(void)e;
	pthread_mutex_lock(&c->lock);
	int rc = c->on_dump ? c->on_dump(c->on_dump_arg, &why) : 0;
	pthread_mutex_unlock(&c->lock);
	agent_control_send(c, MSG_DUMPED,
			   rc ? json_pack("{s:s}", "error", why.text) : json_object());
	return 0;
}

static int on_stop(struct control *c, const struct msg *m, struct err *e)
{
	(void)e;
	atomic_store(&c->stop, json_is_true(json_object_get(m->body, "checkpoint"))
				       ? STOP_CHECKPOINT
				       : STOP_NOW);
	return 0;
}

static int on_recorded(struct control *c, const struct msg *m, struct err *e)
{
	(void)e;
	int64_t step = json_integer_value(json_object_get(m->body, "step"));
	pthread_mutex_lock(&c->lock);
	if (step > c->recorded)
		c->recorded = step;
	pthread_cond_broadcast(&c->news);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static int on_abort_message(struct control *c, const struct msg *m, struct err *e)
{
	(void)c;
	const char *reason = json_string_value(json_object_get(m->body, "reason"));
	return err_set(e, ERR_ABORTED, "the supervisor ended this generation: %s",
		       reason ? reason : "no reason given");
}

/* What a supervisor may say to an agent that trains. */
static int (*const handlers[MSG_COUNT])(struct control *c, const struct msg *m, struct err *e) = {
	[MSG_STOP] = on_stop,
	[MSG_ABORT] = on_abort_message,
	[MSG_DUMP] = on_dump_message,
	[MSG_RECORDED] = on_recorded,
};

/* Moves bytes and acts on what came; an error means that the agent must leave. */
static int serve(struct control *c, struct err *e)
{
	for (struct msg m;;) {
		pthread_mutex_lock(&c->lock);
		int rc = agent_link_receive(c->link, &m, e);
		pthread_mutex_unlock(&c->lock);
		if (rc <= 0)
			return rc;
		rc = handlers[m.type] ? handlers[m.type](c, &m, e)
				      : err_set(e, ERR_PROTO,
						"the supervisor sent %s, which only agents send",
						msg_word(m.type));
		msg_fini(&m);
		if (rc)
			return -1;
	}
}

static void report_signals(struct control *c)
{
	struct signalfd_siginfo s;
	while (read(c->signal_fd, &s, sizeof s) == sizeof s)
		agent_control_send(c, MSG_SIGNAL, json_pack("{s:i}", "number", (int)s.ssi_signo));
}

static json_t *progress(struct control *c)
{
	return json_pack("{s:I, s:s, s:I}", "step", (json_int_t)atomic_load(&c->step), "phase",
			 atomic_load(&c->phase), "count", (json_int_t)atomic_load(&c->count));
}

/* A heartbeat when it is time for one, and between two of them where the trainer is, when it has
 * moved. */
static void tell_progress(struct control *c)
{
	double now = clock_s();
	uint64_t count = atomic_load(&c->count);
	if (now < c->next_look)
		return;
	c->next_look = now + c->progress_s;
	if (now < c->next_beat && count == c->told)
		return;
	pthread_mutex_lock(&c->lock);
	bool room = agent_link_backlog(c->link) < BACKLOG_MAX;
	pthread_mutex_unlock(&c->lock);
	if (room)
		agent_control_send(c, MSG_PROGRESS, progress(c));
	c->told = count;
	c->next_beat = now + c->heartbeat_s;
}

static bool backlog(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	bool some = agent_link_backlog(c->link) > 0;
	pthread_mutex_unlock(&c->lock);
	return some;
}

/* Waits for the socket, a signal or a wake-up until `until`. */
static void doze(struct control *c, double until)
{
	struct pollfd p[] = {
		{ agent_link_fd(c->link), (short)(POLLIN | (backlog(c) ? POLLOUT : 0)), 0 },
		{ c->wake_fd, POLLIN, 0 },
		{ c->signal_fd, POLLIN, 0 },
	};
	double left = until - clock_s();
	poll(p, 3, left > 0 ? (int)(left * 1000) + 1 : 0);
	drain_wake(c);
}

/* Sends the rest, then waits for the supervisor to close, so that nothing it still sends makes
 * the kernel throw away what it has not read. */
static void say_goodbye(struct control *c)
{
	double end = clock_s() + flush_s;
	struct err e = ERR_INIT;
	bool shut = false;
	while (clock_s() < end && !serve(c, &e)) {
		if (!shut && !backlog(c)) {
			agent_link_shut(c->link);
			shut = true;
		}
		doze(c, end);
	}
}

/* The process ends here unless its main thread is faster. Returns when it has finished and
 * closes. */
static void see_out(struct control *c)
{
	double end = clock_s() + leave_s;
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

static void *control_main(void *arg)
{
	struct control *c = arg;
	struct err e = ERR_INIT;
	for (;;) {
		if (atomic_load(&c->closing)) {
			say_goodbye(c);
			return NULL;
		}
		report_signals(c);
		tell_progress(c);
		if (serve(c, &e))
			break;
		doze(c, c->next_look);
	}
	/* A supervisor that has heard "finished" may close. */
	if (!atomic_load(&c->finished))
		leave(c, e.text);
	see_out(c);
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
	agent_link_close(c->link);
	json_decref(c->welcome);
	pthread_cond_destroy(&c->news);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Its waits end at a time of the monotonic clock. */
static void news_init(struct control *c)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->news, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

int agent_control_open(const struct control_options *opt, struct control **out, json_t **welcome,
		       struct err *e)
{
	struct control *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "control channel: no memory");
	c->wake_fd = c->signal_fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	news_init(c);
	atomic_store(&c->phase, "start");
	if (open_descriptors(c, e) || agent_link_open(opt, &c->link, e) ||
	    agent_link_await_welcome(c->link, &c->welcome, e))
		goto fail;
	c->heartbeat_s = json_number_value(json_object_get(c->welcome, "heartbeat_s"));
	if (!(c->heartbeat_s >= 0.01 && c->heartbeat_s <= 3600)) {
		err_set(e, ERR_PROTO,
			"the supervisor's welcome: heartbeat_s is %g; 0.01 to 3600 are allowed",
			c->heartbeat_s);
		goto fail;
	}
	c->progress_s = fmin(fmax(progress_s, opt->world * progress_rank_s), c->heartbeat_s);
	if (pthread_create(&c->thread, NULL, control_main, c)) {
		err_set(e, ERR_NOMEM, "control channel: no thread; raise `ulimit -u`");
		goto fail;
	}
	*out = c;
	*welcome = c->welcome;
	return 0;
fail:
	control_free(c);
	return -1;
}

void agent_control_close(struct control *c)
{
	if (!c)
		return;
	atomic_store(&c->closing, true);
	wake(c);
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
	return agent_link_local_address(c->link);
}

void agent_control_send(struct control *c, enum msg_type type, json_t *body)
{
	if (type == MSG_FINISHED)
		atomic_store(&c->finished, true);
	/* A channel that fails here fails on the control thread, too, which then acts. */
	pthread_mutex_lock(&c->lock);
	if (type == MSG_FAILED) {
		json_t *where = progress(c);
		agent_link_send(c->link, MSG_PROGRESS, where, NULL);
		json_decref(where);
	}
	agent_link_send(c->link, type, body, NULL);
	pthread_mutex_unlock(&c->lock);
	json_decref(body);
	wake(c);
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

int agent_control_await_recorded(struct control *c, int64_t step, double seconds, struct err *e)
{
	double end = clock_s() + seconds;
	struct timespec until = { .tv_sec = (time_t)end,
				  .tv_nsec = (long)(1e9 * (end - floor(end))) };
	int rc = 0;
	pthread_mutex_lock(&c->lock);
	while (c->recorded < step && !c->leaving && !c->given_up && rc == 0)
		rc = pthread_cond_timedwait(&c->news, &c->lock, &until);
	bool recorded = c->recorded >= step, over = c->leaving || c->given_up;
	pthread_mutex_unlock(&c->lock);
	if (recorded)
		return 0;
	return over ? err_set(e, ERR_ABORTED, "this rank leaves")
		    : err_set(e, ERR_IO,
			      "muster has not recorded the metrics up to step %lld within %g s; "
			      "without them no checkpoint of the "
			      "step is committed: see that the host muster runs on is up, and not "
			      "out of memory or stopped",
			      (long long)step, seconds);
}

void agent_control_give_up(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	c->given_up = true;
	pthread_cond_broadcast(&c->news);
	pthread_mutex_unlock(&c->lock);
}

bool agent_control_stopping(struct control *c, bool *checkpoint)
{
	int stop = atomic_load(&c->stop);
	*checkpoint = stop == STOP_CHECKPOINT;
	return stop != STOP_NONE;
}
