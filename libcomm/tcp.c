#include "libcomm/tcp.h"

#include "base/clock.h"
#include "libcomm/acceptor.h"
#include "libcomm/exchange.h"
#include "libcomm/handshake.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WATCH_AFTER_NS = 20000000, SHUT_OUT_MOST = 100 };

void tcp_init(struct tcp_link *t)
{
	*t = (struct tcp_link){ .state = TCP_IDLE, .fd = -1, .watch = -1 };
}

static int lost(const struct link *l, const char *what, int error, struct err *e)
{
	char who[160];
	group_rank_text(l->c, l->peer, who);
	if (!error)
		return err_set(e, ERR_PEER, "%s %s", who, what);
	errno = error;
	return err_errno(e, ERR_PEER, "%s %s", who, what);
}

/* The end of a handshake that did not work out. */
static int not_met(const struct link *l, struct err *e)
{
	char who[160];
	err_prefix(e, "no connection to %s", group_rank_text(l->c, l->peer, who));
	if (e)
		e->code = ERR_PEER;
	return -1;
}

static void end_watch(struct tcp_link *t)
{
	handshake_free(t->greeting);
	t->greeting = NULL;
	if (t->watch >= 0)
		close(t->watch);
	t->watch = -1;
}

/* The other end accepted the connection and then closed it: its acceptor hears
 * only so many at a time, and strangers may have crowded this one out. Whoever
 * has ended refuses connections, so another try tells. */
static bool greet_again(struct tcp_link *t, const struct err *e)
{
	if (e->code != ERR_NET || !handshake_connected(t->greeting) || t->shut_out++ == SHUT_OUT_MOST)
		return false;
	handshake_free(t->greeting);
	t->greeting = NULL;
	return true;
}

static void become_ready(struct link *l, int fd)
{
	struct tcp_link *t = &l->tcp;
	pthread_mutex_lock(&l->c->world->lock);
	t->fd = fd;
	t->state = TCP_READY;
	if (world_failed(l->c->world))
		shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->c->world->lock);
	end_watch(t);
}

static int begin_greeting(struct link *l, enum hello_kind kind, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	if (t->greeting ||
	    handshake_connect(l->c->world, l->c->members[l->peer], kind, l->c->id, &t->greeting, e) == 0)
		return 0;
	return not_met(l, e);
}

static int step_greeting(struct link *l, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	if (begin_greeting(l, HELLO_LINK, e) < 0)
		return -1;
	int rc = handshake_step(t->greeting, e);
	if (rc < 0)
		return greet_again(t, e) ? 0 : not_met(l, e);
	if (rc == 0)
		return 0;
	int fd = handshake_finish(t->greeting);
	t->greeting = NULL;
	become_ready(l, fd);
	return 1;
}

/* The lower rank has not connected yet: is it there at all? 0 it seems so, -1 no. */
static int watch_peer(struct link *l, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	char nothing;
	if (t->watch >= 0) {
		ssize_t n = recv(t->watch, &nothing, 1, MSG_DONTWAIT);
		return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : lost(l, "has gone", 0, e);
	}
	if (begin_greeting(l, HELLO_WATCH, e) < 0)
		return -1;
	int rc = handshake_step(t->greeting, e);
	if (rc < 0)
		return greet_again(t, e) ? 0 : not_met(l, e);
	if (rc > 0) {
		t->watch = handshake_finish(t->greeting);
		t->greeting = NULL;
	}
	return 0;
}

static void step_watch(struct link *l, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	if (t->gone || clock_ns() - t->since < WATCH_AFTER_NS || watch_peer(l, e) == 0)
		return;
	end_watch(t);
	t->gone = true;
	t->round = acceptor_rounds(l->c->world);
}

/* A rank that connected and left may be on its way through the acceptor still.
 * But it was answered, so it had said hello: after a whole round that is known. */
static int step_awaiting(struct link *l, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	struct world *w = l->c->world;
	bool coming, heard = t->gone && acceptor_rounds(w) - t->round >= 2; /* before one looks who has come */
	int fd = acceptor_take(w, l->c->id, l->c->members[l->peer], &coming);
	if (fd >= 0) {
		become_ready(l, fd);
		return 1;
	}
	if (heard && !coming)
		return lost(l, "has gone before it connected", 0, e);
	if (!coming)
		step_watch(l, e);
	return 0;
}

/* 1 ready, 0 not yet, -1. */
static int tcp_ready(struct link *l, struct err *e)
{
	struct tcp_link *t = &l->tcp;
	if (t->state == TCP_READY)
		return 1;
	if (t->state == TCP_IDLE) {
		t->since = clock_ns();
		t->state = l->c->world->rank < l->c->members[l->peer] ? TCP_GREETING : TCP_AWAITING;
	}
	return t->state == TCP_GREETING ? step_greeting(l, e) : step_awaiting(l, e);
}

static ssize_t tcp_put(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	int rc = tcp_ready(l, e);
	if (rc <= 0)
		return rc;
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n };
	ssize_t put = sendmsg(l->tcp.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (put >= 0)
		return put;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return lost(l, "has closed the connection", errno, e);
}

static ssize_t tcp_get(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	int rc = tcp_ready(l, e);
	if (rc <= 0)
		return rc;
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n };
	ssize_t got = recvmsg(l->tcp.fd, &m, MSG_DONTWAIT);
	if (got > 0)
		return got;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return lost(l, "has closed the connection", got < 0 ? errno : 0, e);
}

static bool tcp_poll(const struct link *l, int lane, struct pollfd *p)
{
	const struct tcp_link *t = &l->tcp;
	if (t->state == TCP_READY) {
		*p = (struct pollfd){ .fd = t->fd, .events = (short)((l->lane[lane].out.at >= 0 ? POLLOUT : 0) |
								      (l->lane[lane].in.at >= 0 ? POLLIN : 0)) };
		return true;
	}
	if (t->greeting) {
		handshake_poll(t->greeting, p);
		return true;
	}
	if (t->watch >= 0)
		*p = (struct pollfd){ .fd = t->watch, .events = POLLIN };
	return t->watch >= 0;
}

static void tcp_cut(struct link *l)
{
	if (l->tcp.fd >= 0)
		shutdown(l->tcp.fd, SHUT_RDWR);
}

static void tcp_close(struct link *l)
{
	end_watch(&l->tcp);
	if (l->tcp.fd >= 0)
		close(l->tcp.fd);
}

const struct link_ops tcp_ops = { tcp_put, tcp_get, tcp_poll, tcp_cut, tcp_close };
