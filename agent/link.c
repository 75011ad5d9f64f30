#include "agent/link.h"

#include "base/auth.h"
#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CONNECT_S = 30,
	WELCOME_S = 300,    /* the slowest rank of a large job may come late */
	UNACKED_MS = 20000, /* a supervisor whose host is gone closes nothing */
	READ_MAX = 8192,
};

struct link {
	int fd;
	char address[NET_ADDR_MAX], local[NET_ADDR_MAX];
	struct channel *channel;
	const struct voucher *voucher;
};

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
		at += (size_t)snprintf(out + at, room - at, last > i ? "%s%d-%d" : "%s%d",
				       at ? "," : "", i, last);
		i = last;
	}
}

static json_t *hello(const struct control_options *opt)
{
	char cpus[1024];
	cpu_list(cpus, sizeof cpus);
	return json_pack("{s:i, s:i, s:s, s:i, s:s, s:i}", "rank", opt->rank, "world", opt->world,
			 "node", opt->node, "pid", (int)getpid(), "cpus", cpus, "version",
			 MSG_VERSION);
}

/* Work for MUNGE is done on the spot: nothing else goes on before the welcome. */
static int feed(struct link *l, const void *data, size_t len, struct err *e)
{
	struct vouch v;
	int rc = channel_feed(l->channel, data, len, e);
	while (!rc && channel_wants(l->channel, &v)) {
		struct err why = ERR_INIT;
		int failed = l->voucher->work(l->voucher, &v, &why);
		rc = channel_vouched(l->channel, &v, failed ? &why : NULL, e);
		vouch_fini(&v);
	}
	return rc;
}

/* Both ways without waiting: what the socket has to give and what it takes. */
static int exchange(struct link *l, struct err *e)
{
	char data[READ_MAX];
	ssize_t n;
	while ((n = recv(l->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
		if (feed(l, data, (size_t)n, e))
			return -1;
	if (n == 0 && !channel_ready(l->channel))
		return err_set(e, ERR_AUTH,
			       "the supervisor at %s closed the connection before it answered: it "
			       "does not take this agent "
			       "for its own; is it another launch's, or another user's?",
			       l->address);
	if (n == 0)
		return err_set(e, ERR_NET, "the supervisor at %s closed the connection",
			       l->address);
	if (errno != EAGAIN && errno != EINTR)
		return err_errno(e, ERR_NET, "the connection to the supervisor at %s", l->address);
	struct buf *out = channel_out(l->channel);
	while (out->len) {
		n = send(l->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection to the supervisor at %s",
					 l->address);
		buf_drop(out, (size_t)n);
	}
	return 0;
}

/* 1 and *m, 0 when there is none; messages of another generation are passed over. */
static int next_message(struct link *l, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int rc;
	while ((rc = channel_next(l->channel, m, &why)) < 0 && why.code == ERR_STALE)
		continue;
	return rc < 0 ? err_set(e, why.code, "%s", why.text) : rc;
}

int agent_link_receive(struct link *l, struct msg *m, struct err *e)
{
	struct err why = ERR_INIT;
	int gone = exchange(l, e);
	int rc = next_message(l, m, gone ? &why : e);
	return rc == 0 ? gone : rc;
}

static int no_welcome(const struct msg *m, struct err *e)
{
	const char *reason = json_string_value(json_object_get(m->body, "reason"));
	if (m->type == MSG_ABORT)
		return err_set(e, ERR_ABORTED, "the supervisor refused this agent: %s",
			       reason ? reason : "no reason given");
	return err_set(e, ERR_PROTO, "the supervisor sent %s before its welcome",
		       msg_word(m->type));
}

int agent_link_await_welcome(struct link *l, json_t **welcome, struct err *e)
{
	double end = clock_s() + WELCOME_S;
	for (struct msg m;;) {
		int rc = agent_link_receive(l, &m, e);
		if (rc < 0)
			return err_prefix(e, "waiting for the supervisor's welcome");
		if (rc && m.type == MSG_WELCOME) {
			*welcome = m.body;
			return 0;
		}
		if (rc) {
			no_welcome(&m, e);
			msg_fini(&m);
			return -1;
		}
		double left = end - clock_s();
		if (left <= 0)
			return err_set(e, ERR_TIMEOUT,
				       "the supervisor at %s did not answer in %d s", l->address,
				       WELCOME_S);
		struct pollfd p = { l->fd, (short)(POLLIN | (agent_link_backlog(l) ? POLLOUT : 0)),
				    0 };
		poll(&p, 1, (int)(left * 1000) + 1);
	}
}

static int local_address(struct link *l, struct err *e)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	char host[NET_ADDR_MAX - 2];
	if (getsockname(l->fd, (struct sockaddr *)&a, &len) ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		return err_set(e, ERR_NET,
			       "the connection to the supervisor at %s has no local address",
			       l->address);
	snprintf(l->local, sizeof l->local, a.ss_family == AF_INET6 ? "[%s]" : "%s", host);
	return 0;
}

static int open_channel(struct link *l, const struct control_options *opt, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	if (auth_secret_parse(opt->secret, secret, e))
		return -1;
	int rc = channel_open(AUTH_AGENT, secret, opt->generation, &l->channel, e);
	explicit_bzero(secret, sizeof secret);
	if (rc)
		return -1;
	if (opt->voucher)
		channel_require_vouch(l->channel);
	json_t *body = hello(opt);
	rc = channel_send(l->channel, MSG_HELLO, body, e);
	json_decref(body);
	return rc;
}

int agent_link_open(const struct control_options *opt, struct link **out, struct err *e)
{
	struct link *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "control channel: no memory");
	unsigned int unacked = UNACKED_MS;
	l->fd = -1;
	l->voucher = opt->voucher;
	snprintf(l->address, sizeof l->address, "%s", opt->address);
	if (net_connect(opt->address, CONNECT_S, &l->fd, e)) {
		err_prefix(e, "connecting to the supervisor");
		goto fail;
	}
	setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof unacked);
	if (local_address(l, e) || open_channel(l, opt, e))
		goto fail;
	*out = l;
	return 0;
fail:
	agent_link_close(l);
	return -1;
}

void agent_link_close(struct link *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	channel_close(l->channel);
	free(l);
}

int agent_link_send(struct link *l, enum msg_type type, json_t *body, struct err *e)
{
	return channel_send(l->channel, type, body, e);
}

size_t agent_link_backlog(struct link *l)
{
	return channel_out(l->channel)->len;
}

void agent_link_shut(struct link *l)
{
	shutdown(l->fd, SHUT_WR);
}

int agent_link_fd(const struct link *l)
{
	return l->fd;
}

const char *agent_link_local_address(const struct link *l)
{
	return l->local;
}
