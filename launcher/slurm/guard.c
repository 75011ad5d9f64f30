#include "launcher/slurm/guard.h"

#include "base/agent_env.h"
#include "base/auth.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/net.h"
#include "base/run_paths.h"
#include "launcher/slurm/guard_ask.h"
#include "launcher/take_variable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN_MS = 500, READ_MAX = 4096, CONNECT_S = 4 };
/* A longer gap between two turns means that this process did not run. */
static const double asleep_s = 2.0;

struct guard_process {
	const struct guard_process_options *o;
	struct guard_state state;
	char address[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	struct voucher munge;
	bool vouches;
	int fd; /* -1: none */
	double connecting_until;
	struct channel *channel;
};

static volatile sig_atomic_t terminated;

static void on_terminated(int number)
{
	(void)number;
	terminated = 1;
}

static void close_line(struct guard_process *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	channel_close(p->channel);
	p->channel = NULL;
}

static void lose_line(struct guard_process *p, const char *why)
{
	if (p->state.line == GUARD_ALIVE || !p->state.lost)
		log_warn("the supervisor is lost: %s", why);
	close_line(p);
	slurm_guard_unlinked(&p->state, clock_s());
}

static int send_message(struct guard_process *p, enum msg_type type, json_t *body, struct err *e)
{
	int rc = channel_send(p->channel, type, body, e);
	json_decref(body);
	return rc;
}

static int open_channel(struct guard_process *p, struct err *e)
{
	if (channel_open(AUTH_AGENT, p->secret, GUARD_GENERATION, &p->channel, e))
		return -1;
	if (p->vouches)
		channel_require_vouch(p->channel);
	return send_message(
		p, MSG_GUARD_HELLO,
		msg_guard_hello_json(&(struct msg_guard_hello){ .number = p->o->number,
								.node = p->o->node,
								.pid = (int)getpid(),
								.version = MSG_VERSION }),
		e);
}

static void start_line(struct guard_process *p)
{
	struct err e = ERR_INIT;
	if (p->fd >= 0)
		log_warn("the supervisor has sent nothing for %g s", p->o->limits.silent);
	close_line(p);
	if (net_connect_start(p->address, &p->fd, &e)) {
		p->fd = -1;
		lose_line(p, e.text);
	}
	p->connecting_until = clock_s() + CONNECT_S;
}

/* The connection is made, refused, or late. */
static void finish_connecting(struct guard_process *p, bool writable)
{
	struct err e = ERR_INIT;
	if (!writable && clock_s() < p->connecting_until)
		return;
	if (!writable)
		err_set(&e, ERR_TIMEOUT, "%s does not answer", p->address);
	if (!writable || net_connect_done(p->fd, p->address, &e) || open_channel(p, &e)) {
		lose_line(p, e.text);
		return;
	}
	net_guard(p->fd, p->o->limits.silent, NULL); /* it is only an optimization */
	slurm_guard_accepted(&p->state);
}

static int handle_message(struct guard_process *p, const struct msg *m, struct err *e)
{
	if (p->state.lost)
		log_info("connected to the supervisor at %s", p->address);
	slurm_guard_heard(&p->state, clock_s());
	if (m->type == MSG_RELEASE) {
		slurm_guard_released(&p->state);
		return 0;
	}
	if (m->type == MSG_ALIVE)
		return send_message(p, MSG_ALIVE, NULL, e);
	return err_set(e, ERR_PROTO, "the supervisor sent the message %s to a guard",
		       msg_word(m->type));
}

/* Feeds received bytes and does the MUNGE work at once: the guard has no other work. */
static int feed_channel(struct guard_process *p, const void *data, size_t len, struct err *e)
{
	struct vouch v;
	int rc = channel_feed(p->channel, data, len, e);
	while (!rc && channel_wants(p->channel, &v)) {
		struct err why = ERR_INIT;
		int failed = p->munge.work(&p->munge, &v, &why);
		rc = channel_vouched(p->channel, &v, failed ? &why : NULL, e);
		vouch_fini(&v);
	}
	return rc;
}

static int handle_messages(struct guard_process *p, struct err *e)
{
	struct msg m;
	int rc;
	while ((rc = channel_next(p->channel, &m, e)) == 1) {
		rc = handle_message(p, &m, e);
		msg_fini(&m);
		if (rc)
			return -1;
	}
	return rc;
}

static int write_out(struct guard_process *p, struct err *e)
{
	struct buf *out = channel_out(p->channel);
	while (out->len) {
		ssize_t n = send(p->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection to %s", p->address);
		buf_drop(out, (size_t)n);
	}
	return 0;
}

/* Receives and sends what the socket gives and takes without waiting. */
static int exchange(struct guard_process *p, struct err *e)
{
	char data[READ_MAX];
	ssize_t n;
	while ((n = recv(p->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
		if (feed_channel(p, data, (size_t)n, e) || handle_messages(p, e))
			return -1;
	if (n == 0)
		return err_set(e, ERR_NET, "%s has closed the connection", p->address);
	if (errno != EAGAIN && errno != EINTR)
		return err_errno(e, ERR_NET, "the connection to %s", p->address);
	return write_out(p, e);
}

static void ask(struct guard_process *p)
{
	struct guard_answer a;
	char detail[GUARD_DETAIL];
	slurm_guard_ask(p->o->job, &a, detail);
	log_info("no supervisor: %s", detail);
	slurm_guard_answered(&p->state, &a, clock_s());
	if (p->state.waits)
		log_info("%s", p->state.waits);
}

static void act(struct guard_process *p, bool requeue)
{
	struct err e = ERR_INIT;
	log_warn("%s: the guard %s job %s", p->state.why, requeue ? "requeues" : "cancels",
		 p->o->job);
	int rc = requeue ? slurm_guard_requeue(p->o->job, &e) : slurm_guard_cancel(p->o->job, &e);
	if (rc)
		log_error("%s", e.text);
	else
		log_info("the controller has accepted it");
	slurm_guard_acted(&p->state, !rc, clock_s());
}

static void wait_for_event(struct guard_process *p)
{
	bool connecting = p->state.line == GUARD_CONNECTING;
	short events = connecting || (p->channel && channel_out(p->channel)->len) ? POLLIN | POLLOUT
										  : POLLIN;
	struct pollfd line = { p->fd, events, 0 }; /* poll() ignores the descriptor -1 */
	struct err e = ERR_INIT;
	if (poll(&line, 1, TURN_MS) < 0)
		return;
	if (p->fd < 0)
		return;
	if (connecting)
		finish_connecting(p, line.revents != 0);
	else if (line.revents && exchange(p, &e))
		lose_line(p, e.text);
}

static void guard_job(struct guard_process *p)
{
	double turn = clock_s();
	for (;;) {
		enum guard_action next = slurm_guard_next(&p->state, clock_s());
		if (next == GUARD_LEAVE ||
		    (terminated && next != GUARD_REQUEUE && next != GUARD_CANCEL))
			break;
		if (next == GUARD_CONNECT)
			start_line(p);
		else if (next == GUARD_ASK)
			ask(p);
		else if (next != GUARD_WAIT)
			act(p, next == GUARD_REQUEUE);
		turn = next == GUARD_WAIT ? turn : clock_s();
		wait_for_event(p);
		double now = clock_s();
		if (now - turn > asleep_s)
			slurm_guard_slept(&p->state, now - turn);
		turn = now;
	}
	log_info("the guard leaves: %s",
		 terminated && !p->state.over ? "it got SIGTERM" : p->state.why);
}

static int read_environment(struct guard_process *p, struct err *e)
{
	char *address = launcher_take_variable(AGENT_ENV_ADDRESS),
	     *secret = launcher_take_variable(AGENT_ENV_SECRET),
	     *auth = launcher_take_variable(AGENT_ENV_AUTH);
	int rc = -1, vouches = -1;
	if (!address || !secret || strlen(address) >= sizeof p->address)
		err_set(e, ERR_USAGE,
			"muster starts guards itself; " AGENT_ENV_ADDRESS " and " AGENT_ENV_SECRET
			" are not in the environment");
	else
		vouches = munge_parse(auth, &p->munge, e);
	if (vouches >= 0 && !(rc = auth_secret_parse(secret, p->secret, e)))
		strcpy(p->address, address);
	p->vouches = vouches == 1;
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(address);
	free(secret);
	free(auth);
	return rc;
}

/* Without its log a guard is better than no guard: it writes to stderr then. */
static int open_log(const struct guard_process_options *o)
{
	char path[RUN_PATH];
	struct err e = ERR_INIT;
	run_path_guard_log(path, o->run_dir);
	int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, &e);
	log_setup(fd < 0 ? STDERR_FILENO : fd, LOG_INFO, o->node);
	if (fd < 0)
		log_warn("%s", e.text);
	return fd;
}

int slurm_guard_run(const struct guard_process_options *o, struct err *e)
{
	struct guard_process p = { .o = o, .fd = -1 };
	const struct sigaction on_term = { .sa_handler = on_terminated };
	if (read_environment(&p, e))
		return -1;
	int log = open_log(o);
	sigaction(SIGTERM, &on_term, NULL);
	slurm_guard_init(&p.state, &o->limits, o->requeue, clock_s());
	log_info("guard %d of job %s starts", o->number, o->job);
	guard_job(&p);
	close_line(&p);
	explicit_bzero(p.secret, sizeof p.secret);
	if (log >= 0)
		close(log);
	return 0;
}
