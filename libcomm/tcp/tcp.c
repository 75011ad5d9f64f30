#include "libcomm/tcp/tcp.h"

#include "base/clock.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/records.h"
#include "libcomm/tcp/oob.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OOB_AFTER_NS = 20000000, RETRIES_MAX = 100 };

int comm_tcp_open(struct tcp_endpoint *t, int lanes, struct err *e)
{
	t->lane = calloc((size_t)lanes, sizeof *t->lane);
	if (!t->lane)
		return err_set(e, ERR_NOMEM, "no memory for %d connections", lanes);
	t->lanes = lanes;
	for (int k = 0; k < lanes; k++)
		t->lane[k].fd = -1;
	return 0;
}

static int world_rank(const struct endpoint *ep)
{
	return ep->c->members[ep->peer];
}

/* The peer does not continue. It, or another rank, may still report why. */
static int report_lost(const struct endpoint *ep, const char *what, int error, struct err *e)
{
	char who[160];
	ep->c->wait.accused = world_rank(ep);
	comm_group_rank_text(ep->c, ep->peer, who);
	if (!error)
		return err_set(e, ERR_PEER, "%s %s", who, what);
	errno = error;
	return err_errno(e, ERR_PEER, "%s %s", who, what);
}

static int report_silent(const struct endpoint *ep, struct err *e)
{
	char who[160];
	const struct world *w = ep->c->world;
	ep->c->wait.accused = world_rank(ep);
	return err_set(
		e, ERR_PEER,
		"%s at %s has not answered for %g s: its host is off or the network to it is cut",
		comm_group_rank_text(ep->c, ep->peer, who), w->peers[world_rank(ep)].address,
		w->silence_s);
}

/* The handshake failed. */
static int report_unconnected(const struct endpoint *ep, struct err *e)
{
	char who[160];
	ep->c->wait.accused = world_rank(ep);
	err_prefix(e, "no connection to %s", comm_group_rank_text(ep->c, ep->peer, who));
	if (e)
		e->code = ERR_PEER;
	return -1;
}

static bool is_silent(const struct endpoint *ep)
{
	return atomic_load_explicit(&ep->c->world->oob_peers[world_rank(ep)].silent,
				    memory_order_relaxed);
}

static void request_oob(const struct endpoint *ep)
{
	struct world *w = ep->c->world;
	pthread_mutex_lock(&w->lock);
	comm_oob_request(w, world_rank(ep));
	pthread_mutex_unlock(&w->lock);
}

/* Whether the peer has died, closed or failed, as far as the out-of-band connection shows. */
static bool is_gone(const struct endpoint *ep)
{
	struct world *w = ep->c->world;
	pthread_mutex_lock(&w->lock);
	const struct oob_peer *p = &w->oob_peers[world_rank(ep)];
	bool gone = p->state == OOB_GONE || p->failed;
	pthread_mutex_unlock(&w->lock);
	return gone;
}

/* The other end accepted the connection and then closed it: its acceptor keeps only a limited
 * number of pending connections, and strangers may have displaced this one. A process that has
 * ended refuses connections, so another attempt decides. */
static bool retry_connect(struct tcp_lane *t, const struct err *e)
{
	if (e->code != ERR_NET || !comm_handshake_connected(t->handshake) ||
	    t->retries++ == RETRIES_MAX)
		return false;
	comm_handshake_free(t->handshake);
	t->handshake = NULL;
	return true;
}

static int become_ready(struct endpoint *ep, struct tcp_lane *t, int fd)
{
	pthread_mutex_lock(&ep->c->world->lock);
	t->fd = fd;
	t->state = TCP_READY;
	if (world_failed(ep->c->world))
		shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&ep->c->world->lock);
	return 1;
}

static int start_connect(struct endpoint *ep, int lane, struct err *e)
{
	struct hello what = { .kind = HELLO_DATA,
			      .to = (uint32_t)world_rank(ep),
			      .group = ep->c->id,
			      .lane = (uint16_t)lane,
			      .lanes = (uint16_t)ep->lanes };
	return comm_handshake_connect(ep->c->world, &what, &ep->tcp.lane[lane].handshake, e)
		       ? report_unconnected(ep, e)
		       : 0;
}

static int step_connect(struct endpoint *ep, int lane, struct err *e)
{
	struct tcp_lane *t = &ep->tcp.lane[lane];
	if (!t->handshake && start_connect(ep, lane, e))
		return -1;
	int rc = comm_handshake_step(t->handshake, e);
	if (rc < 0)
		return retry_connect(t, e) ? 0 : report_unconnected(ep, e);
	if (rc == 0)
		return is_silent(ep) ? report_silent(ep, e) : 0;
	int fd = comm_handshake_finish(t->handshake, &t->records);
	t->handshake = NULL;
	return become_ready(ep, t, fd);
}

/* The lower rank has not connected yet: checks whether it still exists. */
static void check_peer(struct endpoint *ep, struct tcp_lane *t)
{
	if (t->gone || clock_ns() - t->since < OOB_AFTER_NS)
		return;
	request_oob(ep);
	if (!is_gone(ep))
		return;
	t->gone = true;
	t->round = comm_acceptor_count_rounds(ep->c->world);
}

/* A rank that connected and left may still be pending at the acceptor. But it received an answer,
 * so its hello had arrived. After one whole round, the acceptor has seen it. */
static int step_accept(struct endpoint *ep, int lane, struct err *e)
{
	struct tcp_lane *t = &ep->tcp.lane[lane];
	struct world *w = ep->c->world;
	/* before checking the arrivals */
	bool coming, heard = t->gone && comm_acceptor_count_rounds(w) - t->round >= 2;
	int fd = comm_acceptor_take(w, ep->c->id, world_rank(ep), lane, &coming, &t->records);
	if (fd >= 0)
		return become_ready(ep, t, fd);
	if (heard && !coming)
		return is_silent(ep) ? report_silent(ep, e)
				     : report_lost(ep, "ended before it connected", 0, e);
	if (!coming)
		check_peer(ep, t);
	return 0;
}

/* 1: ready; 0: not yet; -1: error. */
static int make_ready(struct endpoint *ep, int lane, struct err *e)
{
	struct tcp_lane *t = &ep->tcp.lane[lane];
	if (t->state == TCP_READY)
		return 1;
	if (t->state == TCP_IDLE) {
		t->since = clock_ns();
		t->state = ep->c->world->rank < world_rank(ep) ? TCP_CONNECTING : TCP_ACCEPTING;
		if (t->state == TCP_CONNECTING)
			request_oob(ep);
	}
	return t->state == TCP_CONNECTING ? step_connect(ep, lane, e) : step_accept(ep, lane, e);
}

/* The meaning of a system call that moved nothing. */
static int check_no_bytes(const struct endpoint *ep, int error, struct err *e)
{
	if (error == EAGAIN || error == EINTR)
		return is_silent(ep) ? report_silent(ep, e) : 0;
	return report_lost(ep, "has closed the connection", error, e);
}

/* No other rank is asked for the cause: this rank knows it. */
static int report_broken(const struct endpoint *ep, int lane, struct err *e)
{
	char who[160];
	const struct world *w = ep->c->world;
	const struct tcp_lane *t = &ep->tcp.lane[lane];
	return err_set(e, ERR_NET,
		       "data from %s at %s came to world rank %d on host %s broken: record %llu of "
		       "connection %d of %d was "
		       "changed, dropped, repeated or moved on the way ([network] integrity = %s); "
		       "nothing of it was used. If it comes "
		       "again, test both hosts' memory and network adapters, and the switch and "
		       "cables between them",
		       comm_group_rank_text(ep->c, ep->peer, who), w->peers[world_rank(ep)].address,
		       w->rank, w->peers[w->rank].host, comm_records_number(t->records), lane + 1,
		       ep->lanes, comm_integrity_name(w->integrity));
}

static int check_no_records(const struct endpoint *ep, int lane, ssize_t rc, struct err *e)
{
	if (rc == RECORDS_BROKEN)
		return report_broken(ep, lane, e);
	return rc == 0 ? check_no_bytes(ep, EAGAIN, e) : check_no_bytes(ep, errno, e);
}

static ssize_t tcp_put(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e)
{
	int rc = make_ready(ep, lane, e);
	if (rc <= 0)
		return rc;
	const struct tcp_lane *t = &ep->tcp.lane[lane];
	if (t->records) {
		ssize_t put = comm_records_put(t->records, t->fd, v, n);
		return put > 0 ? put : check_no_records(ep, lane, put, e);
	}
	struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)n };
	ssize_t put = sendmsg(ep->tcp.lane[lane].fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return put >= 0 ? put : check_no_bytes(ep, errno, e);
}

static ssize_t tcp_get(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e)
{
	int rc = make_ready(ep, lane, e);
	if (rc <= 0)
		return rc;
	const struct tcp_lane *t = &ep->tcp.lane[lane];
	if (t->records) {
		ssize_t got = comm_records_get(t->records, t->fd, v, n);
		return got > 0 ? got : check_no_records(ep, lane, got, e);
	}
	struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)n };
	ssize_t got = recvmsg(ep->tcp.lane[lane].fd, &m, MSG_DONTWAIT);
	return got > 0 ? got : check_no_bytes(ep, got < 0 ? errno : 0, e);
}

static bool tcp_poll(const struct endpoint *ep, int lane, struct pollfd *p)
{
	const struct tcp_lane *t = &ep->tcp.lane[lane];
	if (t->state == TCP_READY) {
		*p = (struct pollfd){ .fd = t->fd,
				      .events = (short)((ep->lane[lane].out.at >= 0 ? POLLOUT : 0) |
							(ep->lane[lane].in.at >= 0 ? POLLIN : 0)) };
		return true;
	}
	if (t->handshake)
		comm_handshake_poll(t->handshake, p);
	return t->handshake != NULL;
}

static void tcp_cut(struct endpoint *ep)
{
	for (int k = 0; k < ep->tcp.lanes; k++)
		if (ep->tcp.lane[k].fd >= 0)
			shutdown(ep->tcp.lane[k].fd, SHUT_RDWR);
}

static void tcp_close(struct endpoint *ep)
{
	for (int k = 0; k < ep->tcp.lanes; k++) {
		comm_handshake_free(ep->tcp.lane[k].handshake);
		if (ep->tcp.lane[k].fd >= 0)
			close(ep->tcp.lane[k].fd);
		comm_records_free(ep->tcp.lane[k].records);
	}
	free(ep->tcp.lane);
}

const struct transport_ops comm_tcp_transport = { tcp_put, tcp_get, tcp_poll, tcp_cut, tcp_close };
