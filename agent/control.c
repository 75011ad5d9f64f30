#include "agent/control.h"

#include "base/auth.h"
#include "base/clock.h"
#include "base/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CONNECT_S = 30,
	WELCOME_S = 300,            /* the slowest rank of a large job may come late */
	UNACKED_MS = 20000,         /* a supervisor whose host is gone closes nothing */
	BACKLOG_MAX = 4 * MSG_MAX,  /* beyond it heartbeats are left out */
	READ_MAX = 16384,
};

static const double leave_s = 0.3, flush_s = 1.0;

enum { STOP_NONE, STOP_NOW, STOP_CHECKPOINT };

struct control {
	int fd, wake_fd, signal_fd;
	char address[NET_ADDR_MAX], local[NET_ADDR_MAX];
	pthread_t thread;
	json_t *welcome;
	double heartbeat_s;

	pthread_mutex_t lock;     /* channel, leaving, reason, on_abort */
	struct channel *channel;
	bool leaving;
	char reason[300];
	void (*on_abort)(const char *reason, void *arg);
	void *on_abort_arg;

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

void control_block_signals(void)
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

static void cpu_list(char *out, size_t room)
{
	cpu_set_t set;
	size_t at = 0;
	out[0] = '\0';
	if (sched_getaffinity(0, sizeof set, &set))
		return;
	for (int i = 0; i < CPU_SETSIZE && at + 24 < room; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		int last = i;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
			last++;
		at += (size_t)snprintf(out + at, room - at, last > i ? "%s%d-%d" : "%s%d", at ? "," : "", i, last);
		i = last;
	}
}

static json_t *hello(const struct control_options *opt)
{
	char cpus[1024];
	cpu_list(cpus, sizeof cpus);
	return json_pack("{s:i, s:i, s:s, s:i, s:s, s:i}", "rank", opt->rank, "world", opt->world,
			 "node", opt->node, "pid", (int)getpid(), "cpus", cpus, "version", MSG_VERSION);
}

/* Both ways without waiting: what the socket has to give and what it takes. With the lock held. */
static int exchange(struct control *c, struct err *e)
{
	char data[READ_MAX];
	ssize_t n;
	while ((n = recv(c->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
		if (channel_feed(c->channel, data, (size_t)n, e))
			return -1;
	if (n == 0)
		return err_set(e, ERR_NET, "the supervisor at %s closed the connection", c->address);
	if (errno != EAGAIN && errno != EINTR)
		return err_errno(e, ERR_NET, "the connection to the supervisor at %s", c->address);
	struct buf *out = channel_out(c->channel);
	while (out->len) {
		n = send(c->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection to the supervisor at %s", c->address);
		buf_drop(out, (size_t)n);
	}
	return 0;
}

/* 1 and *m, 0 when there is none; messages of another generation are passed over. */
static int next_message(struct control *c, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int rc;
	while ((rc = channel_next(c->channel, m, &why)) < 0 && why.code == ERR_STALE)
		continue;
	return rc < 0 ? err_set(e, why.code, "%s", why.text) : rc;
}

/* The next message that is here: 1 and *m, 0 when there is none. What came before the connection's
 * end is still heard: an abort's reason tells more than "closed". With the lock held. */
static int receive(struct control *c, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int gone = exchange(c, e);
	int rc = next_message(c, m, gone ? &why : e);
	return rc == 0 ? gone : rc;
}

static int no_welcome(const struct msg *m, struct err *e)
{
	const char *reason = json_string_value(json_object_get(m->body, "reason"));
	if (m->type == MSG_ABORT)
		return err_set(e, ERR_ABORTED, "the supervisor refused this agent: %s", reason ? reason : "no reason given");
	return err_set(e, ERR_PROTO, "the supervisor sent %s before its welcome", msg_word(m->type));
}

static int await_welcome(struct control *c, struct err *e)
{
	double end = clock_s() + WELCOME_S;
	for (struct msg m;;) {
		int rc = receive(c, &m, e);
		if (rc < 0)
			return err_prefix(e, "waiting for the supervisor's welcome");
		if (rc && m.type == MSG_WELCOME) {
			c->welcome = m.body;
			return 0;
		}
		if (rc) {
			no_welcome(&m, e);
			msg_fini(&m);
			return -1;
		}
		double left = end - clock_s();
		if (left <= 0)
			return err_set(e, ERR_TIMEOUT, "the supervisor at %s did not answer in %d s", c->address, WELCOME_S);
		struct pollfd p = { c->fd, (short)(POLLIN | (channel_out(c->channel)->len ? POLLOUT : 0)), 0 };
		poll(&p, 1, (int)(left * 1000) + 1);
	}
}

/* The agent must leave: its trainer is told, once. The lock is held while on_abort runs, so that control_on_abort(NULL)
 * waits for its end. */
static void leave(struct control *c, const char *reason)
{
	pthread_mutex_lock(&c->lock);
	if (!c->leaving) {
		c->leaving = true;
		snprintf(c->reason, sizeof c->reason, "%s", reason);
		if (c->on_abort)
			c->on_abort(c->reason, c->on_abort_arg);
	}
	pthread_mutex_unlock(&c->lock);
}

void control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg), void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->on_abort = fn;
	c->on_abort_arg = arg;
	if (c->leaving && fn)
		fn(c->reason, arg);
	pthread_mutex_unlock(&c->lock);
}

static int on_stop(struct control *c, const struct msg *m, struct err *e)
{
	(void)e;
	atomic_store(&c->stop, json_is_true(json_object_get(m->body, "checkpoint")) ? STOP_CHECKPOINT : STOP_NOW);
	return 0;
}

static int on_abort_message(struct control *c, const struct msg *m, struct err *e)
{
	(void)c;
	const char *reason = json_string_value(json_object_get(m->body, "reason"));
	return err_set(e, ERR_ABORTED, "the supervisor ended this generation: %s", reason ? reason : "no reason given");
}

/* What a supervisor may say to an agent that trains. */
static int (*const handlers[MSG_COUNT])(struct control *c, const struct msg *m, struct err *e) = {
	[MSG_STOP] = on_stop,
	[MSG_ABORT] = on_abort_message,
};

/* Moves bytes and acts on what came; an error means that the agent must leave. */
static int serve(struct control *c, struct err *e)
{
	for (struct msg m;;) {
		pthread_mutex_lock(&c->lock);
		int rc = receive(c, &m, e);
		pthread_mutex_unlock(&c->lock);
		if (rc <= 0)
			return rc;
		rc = handlers[m.type] ? handlers[m.type](c, &m, e)
				      : err_set(e, ERR_PROTO, "the supervisor sent %s, which only agents send", msg_word(m.type));
		msg_fini(&m);
		if (rc)
			return -1;
	}
}

static void report_signals(struct control *c)
{
	struct signalfd_siginfo s;
	while (read(c->signal_fd, &s, sizeof s) == sizeof s)
		control_send(c, MSG_SIGNAL, json_pack("{s:i}", "number", (int)s.ssi_signo));
}

static void heartbeat(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	bool room = channel_out(c->channel)->len < BACKLOG_MAX;
	pthread_mutex_unlock(&c->lock);
	if (room)
		control_send(c, MSG_PROGRESS,
			     json_pack("{s:I, s:s, s:I}", "step", (json_int_t)atomic_load(&c->step), "phase",
				       atomic_load(&c->phase), "count", (json_int_t)atomic_load(&c->count)));
}

static bool backlog(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	bool some = channel_out(c->channel)->len > 0;
	pthread_mutex_unlock(&c->lock);
	return some;
}

/* Waits for the socket, a signal or a wake-up until `until`. */
static void doze(struct control *c, double until)
{
	struct pollfd p[] = {
		{ c->fd, (short)(POLLIN | (backlog(c) ? POLLOUT : 0)), 0 },
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
			shutdown(c->fd, SHUT_WR);
			shut = true;
		}
		doze(c, end);
	}
}

/* The process ends here unless its main thread is faster. Returns when it has finished and closes. */
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
	double next_beat = clock_s();
	for (;;) {
		if (atomic_load(&c->closing)) {
			say_goodbye(c);
			return NULL;
		}
		report_signals(c);
		if (clock_s() >= next_beat) {
			heartbeat(c);
			next_beat = clock_s() + c->heartbeat_s;
		}
		if (serve(c, &e))
			break;
		doze(c, next_beat);
	}
	/* A supervisor that has heard "finished" may close. */
	if (!atomic_load(&c->finished))
		leave(c, e.text);
	see_out(c);
	return NULL;
}

static int local_address(struct control *c, struct err *e)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	char host[NET_ADDR_MAX - 2];
	if (getsockname(c->fd, (struct sockaddr *)&a, &len) ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		return err_set(e, ERR_NET, "the connection to the supervisor at %s has no local address", c->address);
	snprintf(c->local, sizeof c->local, a.ss_family == AF_INET6 ? "[%s]" : "%s", host);
	return 0;
}

static int open_descriptors(struct control *c, const struct control_options *opt, struct err *e)
{
	sigset_t set;
	signals_set(&set);
	c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	c->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (c->wake_fd < 0 || c->signal_fd < 0)
		return err_errno(e, ERR_NOMEM, "control channel: no descriptors; raise `ulimit -n`");
	if (net_connect(opt->address, CONNECT_S, &c->fd, e))
		return err_prefix(e, "connecting to the supervisor");
	unsigned int unacked = UNACKED_MS;
	setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof unacked);
	return local_address(c, e);
}

static int open_channel(struct control *c, const struct control_options *opt, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	if (auth_secret_parse(opt->secret, secret, e))
		return -1;
	int rc = channel_open(AUTH_AGENT, secret, opt->generation, &c->channel, e);
	explicit_bzero(secret, sizeof secret);
	if (rc)
		return -1;
	json_t *body = hello(opt);
	rc = channel_send(c->channel, MSG_HELLO, body, e);
	json_decref(body);
	return rc;
}

static void control_free(struct control *c)
{
	const int fds[] = { c->fd, c->wake_fd, c->signal_fd };
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	channel_close(c->channel);
	json_decref(c->welcome);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int control_open(const struct control_options *opt, struct control **out, json_t **welcome, struct err *e)
{
	struct control *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "control channel: no memory");
	c->fd = c->wake_fd = c->signal_fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	atomic_store(&c->phase, "start");
	snprintf(c->address, sizeof c->address, "%s", opt->address);
	if (open_descriptors(c, opt, e) || open_channel(c, opt, e) || await_welcome(c, e))
		goto fail;
	c->heartbeat_s = json_number_value(json_object_get(c->welcome, "heartbeat_s"));
	if (!(c->heartbeat_s >= 0.01 && c->heartbeat_s <= 3600)) {
		err_set(e, ERR_PROTO, "the supervisor's welcome: heartbeat_s is %g; 0.01 to 3600 are allowed", c->heartbeat_s);
		goto fail;
	}
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

void control_close(struct control *c)
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

const char *control_local_address(const struct control *c)
{
	return c->local;
}

void control_send(struct control *c, enum msg_type type, json_t *body)
{
	if (type == MSG_FINISHED)
		atomic_store(&c->finished, true);
	/* A channel that fails here fails on the control thread, too, which then acts. */
	pthread_mutex_lock(&c->lock);
	channel_send(c->channel, type, body, NULL);
	pthread_mutex_unlock(&c->lock);
	json_decref(body);
	wake(c);
}

void control_progress(struct control *c, int64_t step, const char *phase)
{
	atomic_store_explicit(&c->step, step, memory_order_relaxed);
	atomic_store_explicit(&c->phase, phase, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->count, 1, memory_order_relaxed);
}

bool control_stopping(struct control *c, bool *checkpoint)
{
	int stop = atomic_load(&c->stop);
	*checkpoint = stop == STOP_CHECKPOINT;
	return stop != STOP_NONE;
}
