#include "agent/connection.h"

#include "base/auth.h"
#include "base/clock.h"
#include "base/process_id.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CONNECT_S = 30,
	WELCOME_S = 300, /* a supervisor that accepts many ranks at once may answer late */
	SILENCE_S = 20,  /* a supervisor whose host has failed closes nothing */
	READ_MAX = 8192,
};

struct connection {
	int fd;
	char address[NET_ADDR_MAX], local[NET_ADDR_MAX];
	uint64_t sent; /* bytes */
	/* The first `mark` of them were sent at mark_at, or after it; 0: no mark. heard: mark_at of the last
	 * mark that was acknowledged. */
	uint64_t mark;
	double mark_at, heard;
	struct channel *channel;
	const struct voucher *voucher;
};

static void format_allowed_cpus(char *out, size_t room)
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
		at += (size_t)snprintf(out + at, room - at, last > i ? "%s%d-%d" : "%s%d",
				       at ? "," : "", i, last);
		i = last;
	}
}

static json_t *hello_json(const struct control_options *opt)
{
	char cpus[1024];
	struct process_id id;
	format_allowed_cpus(cpus, sizeof cpus);
	process_id_self(&id);
	return msg_hello_json(&(struct msg_hello){ .rank = opt->rank,
						   .world = opt->world,
						   .node = opt->node,
						   .pid = id.pid,
						   .start = id.start,
						   .pid_space = id.pid_space,
						   .boot = id.boot,
						   .cpus = cpus,
						   .version = MSG_VERSION });
}

/* Feeds received bytes to the channel and does its MUNGE work at once, because the agent has no
 * other work before the welcome. */
static int feed_channel(struct connection *c, const void *data, size_t len, struct err *e)
{
	struct vouch v;
	int rc = channel_feed(c->channel, data, len, e);
	while (!rc && channel_wants(c->channel, &v)) {
		struct err why = ERR_INIT;
		int failed = c->voucher->work(c->voucher, &v, &why);
		rc = channel_vouched(c->channel, &v, failed ? &why : NULL, e);
		vouch_fini(&v);
	}
	return rc;
}

/* Notes what the supervisor's host has acknowledged. */
static void note_acknowledged(struct connection *c)
{
	uint64_t waiting;
	if (!c->mark || !net_unacknowledged(c->fd, &waiting) || c->sent - waiting < c->mark)
		return;
	c->heard = c->mark_at;
	c->mark = 0;
}

static int send_queued(struct connection *c, struct err *e)
{
	struct buf *out = channel_out(c->channel);
	double since = clock_s();
	uint64_t before = c->sent;
	while (out->len) {
		ssize_t n = send(c->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection to the supervisor at %s",
					 c->address);
		c->sent += (uint64_t)n;
		buf_drop(out, (size_t)n);
	}
	if (!c->mark && c->sent > before) {
		c->mark = c->sent;
		c->mark_at = since;
	}
	return 0;
}

/* Receives and sends what the socket gives and takes without waiting. */
static int exchange_bytes(struct connection *c, struct err *e)
{
	char data[READ_MAX];
	ssize_t n;
	while ((n = recv(c->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
		if (feed_channel(c, data, (size_t)n, e))
			return -1;
	if (n == 0 && !channel_ready(c->channel))
		return err_set(
			e, ERR_AUTH,
			"the supervisor at %s closed the connection before it answered, so it "
			"does not accept this agent; check whether it is from another launch "
			"or another user",
			c->address);
	if (n == 0)
		return err_set(e, ERR_NET, "the supervisor at %s closed the connection",
			       c->address);
	if (errno != EAGAIN && errno != EINTR)
		return err_errno(e, ERR_NET, "the connection to the supervisor at %s", c->address);
	note_acknowledged(c);
	if (send_queued(c, e))
		return -1;
	return net_check_peer(c->fd, SILENCE_S, e)
		       ? err_prefix(e, "the supervisor at %s", c->address)
		       : 0;
}

/* 1: *m is the next message. 0: there is none. Messages of another generation are skipped. */
static int next_message(struct connection *c, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int rc;
	while ((rc = channel_next(c->channel, m, &why)) < 0 && why.code == ERR_STALE)
		continue;
	return rc < 0 ? err_set(e, why.code, "%s", why.text) : rc;
}

int agent_connection_receive(struct connection *c, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int gone = exchange_bytes(c, e);
	int rc = next_message(c, m, gone ? &why : e);
	return rc == 0 ? gone : rc;
}

static int report_no_welcome(const struct msg *m, struct err *e)
{
	struct msg_abort abort;
	if (m->type != MSG_ABORT)
		return err_set(e, ERR_PROTO, "the supervisor sent the message %s before welcome",
			       msg_word(m->type));
	if (msg_abort_read(m->body, &abort, e))
		return -1;
	return err_set(e, ERR_ABORTED, "the supervisor refused this agent: %s", abort.reason);
}

int agent_connection_await_welcome(struct connection *c, json_t **welcome, struct err *e)
{
	double end = clock_s() + WELCOME_S;
	for (struct msg m;;) {
		int rc = agent_connection_receive(c, &m, e);
		if (rc < 0)
			return err_prefix(e, "waiting for the supervisor's welcome");
		if (rc && m.type == MSG_WELCOME) {
			*welcome = m.body;
			return 0;
		}
		if (rc) {
			report_no_welcome(&m, e);
			msg_fini(&m);
			return -1;
		}
		double left = end - clock_s();
		if (left <= 0)
			return err_set(e, ERR_TIMEOUT,
				       "the supervisor at %s did not answer in %d s", c->address,
				       WELCOME_S);
		struct pollfd p = { c->fd,
				    (short)(POLLIN | (agent_connection_backlog(c) ? POLLOUT : 0)),
				    0 };
		poll(&p, 1, (int)(left * 1000) + 1);
	}
}

static int find_local_address(struct connection *c, struct err *e)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	char host[NET_ADDR_MAX - 2];
	if (getsockname(c->fd, (struct sockaddr *)&a, &len) ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		return err_set(e, ERR_NET,
			       "the connection to the supervisor at %s has no local address",
			       c->address);
	snprintf(c->local, sizeof c->local, a.ss_family == AF_INET6 ? "[%s]" : "%s", host);
	return 0;
}

static int open_channel(struct connection *c, const struct control_options *opt, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	if (auth_secret_parse(opt->secret, secret, e))
		return -1;
	int rc = channel_open(AUTH_AGENT, secret, opt->generation, &c->channel, e);
	explicit_bzero(secret, sizeof secret);
	if (rc)
		return -1;
	if (opt->voucher)
		channel_require_vouch(c->channel);
	json_t *body = hello_json(opt);
	rc = channel_send(c->channel, MSG_HELLO, body, e);
	json_decref(body);
	return rc;
}

int agent_connection_open(const struct control_options *opt, struct connection **out, struct err *e)
{
	struct connection *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "control channel: no memory for the connection");
	c->fd = -1;
	c->voucher = opt->voucher;
	snprintf(c->address, sizeof c->address, "%s", opt->address);
	if (net_connect(opt->address, CONNECT_S, &c->fd, e)) {
		err_prefix(e, "connecting to the supervisor");
		goto fail;
	}
	net_probe_idle(c->fd, SILENCE_S, NULL); /* without it the loss is only noticed later */
	if (find_local_address(c, e) || open_channel(c, opt, e))
		goto fail;
	*out = c;
	return 0;
fail:
	agent_connection_close(c);
	return -1;
}

void agent_connection_close(struct connection *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		close(c->fd);
	channel_close(c->channel);
	free(c);
}

int agent_connection_send(struct connection *c, enum msg_type type, json_t *body, struct err *e)
{
	return channel_send(c->channel, type, body, e);
}

double agent_connection_heard(const struct connection *c)
{
	return c->heard;
}

void agent_connection_renew(struct connection *c, uint32_t generation)
{
	channel_renew(c->channel, generation);
}

size_t agent_connection_backlog(struct connection *c)
{
	return channel_out(c->channel)->len;
}

void agent_connection_shut(struct connection *c)
{
	shutdown(c->fd, SHUT_WR);
}

int agent_connection_fd(const struct connection *c)
{
	return c->fd;
}

const char *agent_connection_local_address(const struct connection *c)
{
	return c->local;
}
