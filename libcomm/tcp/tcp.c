#include "libcomm/tcp/tcp.h"

#include "base/clock.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/link/exchange.h"
#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/records.h"
#include "libcomm/tcp/side.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALL_AFTER_NS = 20000000, SHUT_OUT_MOST = 100 };

int comm_tcp_open(struct tcp_link *t, int lanes, struct err *e)
{
	t->lane = calloc((size_t)lanes, sizeof *t->lane);
	if (!t->lane)
		return err_set(e, ERR_NOMEM, "no memory for %d connections", lanes);
	t->lanes = lanes;
	for (int k = 0; k < lanes; k++)
		t->lane[k].fd = -1;
	return 0;
}

static int world_rank(const struct link *l)
{
	return l->c->members[l->peer];
}

/* The peer does not go on; it, or another rank, may yet tell why. */
static int lost(const struct link *l, const char *what, int error, struct err *e)
{
	char who[160];
	l->c->accused = world_rank(l);
	comm_group_rank_text(l->c, l->peer, who);
	if (!error)
		return err_set(e, ERR_PEER, "%s %s", who, what);
	errno = error;
	return err_errno(e, ERR_PEER, "%s %s", who, what);
}

static int lost_silently(const struct link *l, struct err *e)
{
	char who[160];
	const struct world *w = l->c->world;
	l->c->accused = world_rank(l);
	return err_set(
		e, ERR_PEER,
		"%s at %s has not answered for %g s: its host is off or the network to it is cut",
		comm_group_rank_text(l->c, l->peer, who), w->peers[world_rank(l)].address,
		w->silence_s);
}

/* The end of a handshake that did not work out. */
static int not_met(const struct link *l, struct err *e)
{
	char who[160];
	l->c->accused = world_rank(l);
	err_prefix(e, "no connection to %s", comm_group_rank_text(l->c, l->peer, who));
	if (e)
		e->code = ERR_PEER;
	return -1;
}

static bool is_silent(const struct link *l)
{
	return atomic_load_explicit(&l->c->world->sides[world_rank(l)].silent,
				    memory_order_relaxed);
}

static void call_side(const struct link *l)
{
	struct world *w = l->c->world;
	pthread_mutex_lock(&w->lock);
	comm_side_call(w, world_rank(l));
	pthread_mutex_unlock(&w->lock);
}

/* Whether it has died, closed or failed, as far as is known beside the data. */
static bool is_gone(const struct link *l)
{
	struct world *w = l->c->world;
	pthread_mutex_lock(&w->lock);
	const struct side *s = &w->sides[world_rank(l)];
	bool gone = s->state == SIDE_GONE || s->failed;
	pthread_mutex_unlock(&w->lock);
	return gone;
}

/* The other end accepted the connection and then closed it: its acceptor hears
 * only so many at a time, and strangers may have crowded this one out. Whoever
 * has ended refuses connections, so another try tells. */
static bool greet_again(struct tcp_lane *t, const struct err *e)
{
	if (e->code != ERR_NET || !comm_handshake_connected(t->greeting) ||
	    t->shut_out++ == SHUT_OUT_MOST)
		return false;
	comm_handshake_free(t->greeting);
	t->greeting = NULL;
	return true;
}

static int become_ready(struct link *l, struct tcp_lane *t, int fd)
{
	pthread_mutex_lock(&l->c->world->lock);
	t->fd = fd;
	t->state = TCP_READY;
	if (world_failed(l->c->world))
		shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->c->world->lock);
	return 1;
}

static int begin_greeting(struct link *l, int lane, struct err *e)
{
	struct hello what = { .kind = HELLO_LINK,
			      .to = (uint32_t)world_rank(l),
			      .group = l->c->id,
			      .lane = (uint16_t)lane,
			      .lanes = (uint16_t)l->lanes };
	return comm_handshake_connect(l->c->world, &what, &l->tcp.lane[lane].greeting, e) < 0
		       ? not_met(l, e)
		       : 0;
}

static int step_greeting(struct link *l, int lane, struct err *e)
{
	struct tcp_lane *t = &l->tcp.lane[lane];
	if (!t->greeting && begin_greeting(l, lane, e) < 0)
		return -1;
	int rc = comm_handshake_step(t->greeting, e);
	if (rc < 0)
		return greet_again(t, e) ? 0 : not_met(l, e);
	if (rc == 0)
		return is_silent(l) ? lost_silently(l, e) : 0;
	int fd = comm_handshake_finish(t->greeting, &t->records);
	t->greeting = NULL;
	return become_ready(l, t, fd);
}

/* The lower rank has not connected yet: is it there at all? */
static void look_after_peer(struct link *l, struct tcp_lane *t)
{
	if (t->gone || clock_ns() - t->since < CALL_AFTER_NS)
		return;
	call_side(l);
	if (!is_gone(l))
		return;
	t->gone = true;
	t->round = comm_acceptor_rounds(l->c->world);
}

/* A rank that connected and left may be on its way through the acceptor still.
 * But it was answered, so it had said hello: after a whole round that is known. */
static int step_awaiting(struct link *l, int lane, struct err *e)
{
	struct tcp_lane *t = &l->tcp.lane[lane];
	struct world *w = l->c->world;
	/* before one looks who has come */
	bool coming, heard = t->gone && comm_acceptor_rounds(w) - t->round >= 2;
	int fd = comm_acceptor_take(w, l->c->id, world_rank(l), lane, &coming, &t->records);
	if (fd >= 0)
		return become_ready(l, t, fd);
	if (heard && !coming)
		return is_silent(l) ? lost_silently(l, e)
				    : lost(l, "has gone before it connected", 0, e);
	if (!coming)
		look_after_peer(l, t);
	return 0;
}

/* 1 ready, 0 not yet, -1. */
static int tcp_ready(struct link *l, int lane, struct err *e)
{
	struct tcp_lane *t = &l->tcp.lane[lane];
	if (t->state == TCP_READY)
		return 1;
	if (t->state == TCP_IDLE) {
		t->since = clock_ns();
		t->state = l->c->world->rank < world_rank(l) ? TCP_GREETING : TCP_AWAITING;
		if (t->state == TCP_GREETING)
			call_side(l);
	}
	return t->state == TCP_GREETING ? step_greeting(l, lane, e) : step_awaiting(l, lane, e);
}

/* What a system call that moved nothing means. */
static int no_bytes(const struct link *l, int error, struct err *e)
{
	if (error == EAGAIN || error == EINTR)
		return is_silent(l) ? lost_silently(l, e) : 0;
	return lost(l, "has closed the connection", error, e);
}

/* Nobody else is to be asked what happened: this rank knows. */
static int broken(const struct link *l, int lane, struct err *e)
{
	char who[160];
	const struct world *w = l->c->world;
	const struct tcp_lane *t = &l->tcp.lane[lane];
	return err_set(e, ERR_NET,
		       "data from %s at %s came to world rank %d on host %s broken: record %llu of "
		       "connection %d of %d was "
		       "changed, dropped, repeated or moved on the way ([network] integrity = %s); "
		       "nothing of it was used. If it comes "
		       "again, test both hosts' memory and network adapters, and the switch and "
		       "cables between them",
		       comm_group_rank_text(l->c, l->peer, who), w->peers[world_rank(l)].address,
		       w->rank, w->peers[w->rank].host, comm_records_number(t->records), lane + 1,
		       l->lanes, comm_integrity_name(w->integrity));
}

static int no_records(const struct link *l, int lane, ssize_t rc, struct err *e)
{
	if (rc == RECORDS_BROKEN)
		return broken(l, lane, e);
	return rc == 0 ? no_bytes(l, EAGAIN, e) : no_bytes(l, errno, e);
}

static ssize_t tcp_put(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	int rc = tcp_ready(l, lane, e);
	if (rc <= 0)
		return rc;
	const struct tcp_lane *t = &l->tcp.lane[lane];
	if (t->records) {
		ssize_t put = comm_records_put(t->records, t->fd, v, n);
		return put > 0 ? put : no_records(l, lane, put, e);
	}
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n };
	ssize_t put = sendmsg(l->tcp.lane[lane].fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return put >= 0 ? put : no_bytes(l, errno, e);
}

static ssize_t tcp_get(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	int rc = tcp_ready(l, lane, e);
	if (rc <= 0)
		return rc;
	const struct tcp_lane *t = &l->tcp.lane[lane];
	if (t->records) {
		ssize_t got = comm_records_get(t->records, t->fd, v, n);
		return got > 0 ? got : no_records(l, lane, got, e);
	}
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n };
	ssize_t got = recvmsg(l->tcp.lane[lane].fd, &m, MSG_DONTWAIT);
	return got > 0 ? got : no_bytes(l, got < 0 ? errno : 0, e);
}

static bool tcp_poll(const struct link *l, int lane, struct pollfd *p)
{
	const struct tcp_lane *t = &l->tcp.lane[lane];
	if (t->state == TCP_READY) {
		*p = (struct pollfd){ .fd = t->fd,
				      .events = (short)((l->lane[lane].out.at >= 0 ? POLLOUT : 0) |
							(l->lane[lane].in.at >= 0 ? POLLIN : 0)) };
		return true;
	}
	if (t->greeting)
		comm_handshake_poll(t->greeting, p);
	return t->greeting != NULL;
}

static void tcp_cut(struct link *l)
{
	for (int k = 0; k < l->tcp.lanes; k++)
		if (l->tcp.lane[k].fd >= 0)
			shutdown(l->tcp.lane[k].fd, SHUT_RDWR);
}

static void tcp_close(struct link *l)
{
	for (int k = 0; k < l->tcp.lanes; k++) {
		comm_handshake_free(l->tcp.lane[k].greeting);
		if (l->tcp.lane[k].fd >= 0)
			close(l->tcp.lane[k].fd);
		comm_records_free(l->tcp.lane[k].records);
	}
	free(l->tcp.lane);
}

const struct link_ops comm_tcp_ops = { tcp_put, tcp_get, tcp_poll, tcp_cut, tcp_close };
