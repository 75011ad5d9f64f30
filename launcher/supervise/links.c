#include "launcher/supervise/links.h"

#include "base/net.h"
#include "base/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTED_AT_ONCE = 64 }; /* then the loop serves the others */

struct link {
	struct links *owner;
	struct link *next, **at; /* of the owner's list, while it is open */
	struct channel *channel;
	uv_poll_t poll;
	int fd, rank;
	struct in6_addr from; /* an IPv4 address as a mapped one; zero: no network */
	double since;
	bool open, released;
	uv_work_t work; /* MUNGE may take its time: a thread asks it */
	struct vouch vouch;
	struct err refusal;
	bool working, failed;
};

struct links {
	struct links_options o;
	unsigned char secret[AUTH_SECRET_BYTES];
	uint32_t generation;
	double now;
	struct link *first;
	int strangers;
	int handles; /* not closed by the loop yet */
	bool closing, listening, troubled;
	uv_poll_t listener;
};

static void on_poll(uv_poll_t *poll, int status, int events);
static void on_listener(uv_poll_t *poll, int status, int events);

static void free_when_done(struct links *ls)
{
	if (ls->closing && !ls->handles) {
		explicit_bzero(ls->secret, sizeof ls->secret);
		free(ls);
	}
}

static void listen_again(struct links *ls)
{
	if (ls->o.listener < 0 || ls->closing || ls->listening)
		return;
	ls->listening = true;
	uv_poll_start(&ls->listener, UV_READABLE, on_listener);
}

/* The loop has closed its handle, and no thread works for it. */
static void release(struct link *l)
{
	struct links *ls = l->owner;
	if (!l->released || l->working)
		return;
	close(l->fd);
	channel_close(l->channel);
	free(l);
	ls->handles--;
	free_when_done(ls);
}

static void on_link_closed(uv_handle_t *h)
{
	struct link *l = h->data;
	l->released = true;
	release(l);
}

void supervise_link_drop(struct link *l)
{
	struct links *ls = l->owner;
	if (!l->open)
		return;
	l->open = false;
	*l->at = l->next;
	if (l->next)
		l->next->at = l->at;
	if (l->rank < 0)
		ls->strangers--;
	if (l->working)
		uv_cancel((uv_req_t *)&l->work);
	uv_close((uv_handle_t *)&l->poll, on_link_closed);
	listen_again(ls);
}

static void lose(struct link *l, const struct err *why)
{
	struct links *ls = l->owner;
	int rank = l->rank;
	if (!l->open)
		return;
	supervise_link_drop(l);
	ls->o.closed(ls->o.arg, rank, why);
}

static void watch(struct link *l)
{
	int events = UV_READABLE | (channel_out(l->channel)->len ? UV_WRITABLE : 0);
	uv_poll_start(&l->poll, events, on_poll);
}

/* A failed write is left to the reader, which gets what the peer said before it went. */
static void flush(struct link *l)
{
	struct buf *out = channel_out(l->channel);
	while (out->len) {
		ssize_t n = send(l->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			buf_clear(out);
		if (n <= 0)
			break;
		buf_drop(out, (size_t)n);
	}
	watch(l);
}

int supervise_link_send(struct link *l, enum msg_type type, json_t *body, struct err *e)
{
	if (!l->open)
		return err_set(e, ERR_NET, "the connection is closed");
	if (channel_send(l->channel, type, body, e))
		return -1;
	flush(l);
	return 0;
}

/* Hands over whole messages; any callback may have dropped the link. */
static void deliver(struct link *l)
{
	struct links *ls = l->owner;
	while (l->open) {
		struct msg m = { 0 };
		struct err e = ERR_INIT;
		int got = channel_next(l->channel, &m, &e);
		if (got == 1) {
			ls->o.message(ls->o.arg, l, &m);
			msg_fini(&m);
			continue;
		}
		if (got == 0)
			return;
		msg_fini(&m);
		if (e.code == ERR_STALE) /* an old frame of a good peer: it is simply not heard */
			continue;
		lose(l, &e);
		return;
	}
}

/* On a thread of the loop's pool, which touches the link's vouch, refusal and failed. */
static void work_for(uv_work_t *work)
{
	struct link *l = work->data;
	const struct voucher *by = l->owner->o.voucher;
	l->failed = by->work(by, &l->vouch, &l->refusal);
}

static void work_done(uv_work_t *work, int status)
{
	struct link *l = work->data;
	struct err e = ERR_INIT;
	(void)status; /* a cancelled one's link is closed */
	l->working = false;
	int rc = l->open ? channel_vouched(l->channel, &l->vouch, l->failed ? &l->refusal : NULL,
					   &e)
			 : 0;
	vouch_fini(&l->vouch);
	if (!l->open) {
		release(l);
	} else if (rc) {
		lose(l, &e);
	} else {
		flush(l);
		deliver(l);
	}
}

static void start_work(struct link *l)
{
	if (!channel_wants(l->channel, &l->vouch))
		return;
	l->work.data = l;
	l->working = true;
	uv_queue_work(l->owner->o.loop, &l->work, work_for, work_done);
}

/* One chunk; false when there was nothing to read. */
static bool on_readable(struct link *l)
{
	static char chunk[65536]; /* one loop, one thread */
	struct err e = ERR_INIT;
	ssize_t n = recv(l->fd, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		if (n < 0)
			err_errno(&e, ERR_NET, "connection lost");
		else
			err_set(&e, ERR_NET, "connection closed");
		lose(l, &e);
		return false;
	}
	int rc = channel_feed(l->channel, chunk, (size_t)n, &e);
	if (rc == 0)
		deliver(l);
	if (!l->open)
		return false;
	if (rc)
		lose(l, &e);
	else
		flush(l);
	if (l->open)
		start_work(l);
	return l->open;
}

void supervise_link_read_out(struct link *l)
{
	while (l->open && on_readable(l))
		;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct link *l = poll->data;
	if (!l->open)
		return;
	if (status < 0 || events & UV_READABLE)
		on_readable(l);
	else if (events & UV_WRITABLE)
		flush(l);
}

static struct in6_addr address_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a;
	socklen_t len = sizeof a;
	struct in6_addr out = { 0 };
	if (getpeername(fd, &a.any, &len))
		return out;
	if (a.any.sa_family == AF_INET6)
		return a.v6.sin6_addr;
	if (a.any.sa_family == AF_INET) {
		memset(out.s6_addr + 10, 0xff, 2);
		memcpy(out.s6_addr + 12, &a.v4.sin_addr, 4);
	}
	return out;
}

int supervise_links_adopt(struct links *ls, int fd, struct err *e)
{
	struct link *l = calloc(1, sizeof *l);
	int flags = fcntl(fd, F_GETFL);
	if (!l || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
		err_set(e, ERR_NOMEM, "cannot take over a connection");
		goto free_link;
	}
	if (channel_open(AUTH_SUPERVISOR, ls->secret, ls->generation, &l->channel, e))
		goto free_link;
	if (ls->o.voucher)
		channel_require_vouch(l->channel);
	if (uv_poll_init(ls->o.loop, &l->poll, fd)) {
		err_set(e, ERR_NET, "cannot watch a connection");
		goto close_channel;
	}
	l->owner = ls;
	l->fd = fd;
	l->rank = -1;
	l->from = address_of(fd);
	l->since = ls->now;
	l->open = true;
	l->poll.data = l;
	l->next = ls->first;
	l->at = &ls->first;
	if (l->next)
		l->next->at = &l->next;
	ls->first = l;
	ls->strangers++;
	ls->handles++;
	watch(l);
	return 0;

close_channel:
	channel_close(l->channel);
free_link:
	free(l);
	close(fd);
	return -1;
}

static void tell_trouble(struct links *ls, const struct err *why)
{
	if (!ls->troubled)
		ls->o.trouble(ls->o.arg, why);
	ls->troubled = true;
}

static bool is_silent(const struct link *l)
{
	return l->rank < 0 && !channel_greeted(l->channel);
}

/* The oldest silent stranger from `from` (NULL: from anywhere), and how many there are. */
static struct link *oldest_silent(const struct links *ls, const struct in6_addr *from, int *count)
{
	struct link *oldest = NULL;
	*count = 0;
	for (struct link *l = ls->first; l; l = l->next) /* the newest comes first */
		if (is_silent(l) && (!from || !memcmp(&l->from, from, sizeof *from))) {
			oldest = l;
			++*count;
		}
	return oldest;
}

static struct link *oldest_stranger(const struct links *ls)
{
	struct link *oldest = NULL;
	for (struct link *l = ls->first; l; l = l->next)
		if (l->rank < 0)
			oldest = l;
	return oldest;
}

/* Which stranger must go now that one from `from` has come. NULL: there is room. */
static struct link *one_too_many(const struct links *ls, const struct in6_addr *from)
{
	int from_there, all;
	struct link *there = oldest_silent(ls, from, &from_there),
		    *any = oldest_silent(ls, NULL, &all);
	if (from_there > ls->o.most_per_address)
		return there;
	if (all > ls->o.most)
		return any;
	/* Agents are `most` at the most: somebody repeats a first packet that he has recorded. */
	return ls->strangers > 2 * ls->o.most ? oldest_stranger(ls) : NULL;
}

static void make_room(struct links *ls, struct in6_addr from)
{
	for (struct link *l; (l = one_too_many(ls, &from));) {
		struct err e;
		if (on_readable(l)) /* perhaps its first packet: look again */
			continue;
		err_set(&e, ERR_TIMEOUT, "did not say who it is before others came");
		lose(l, &e); /* nothing happens when it has just left by itself */
	}
}

/* A connection that has come in; another user's is closed at once. */
static int let_in(struct links *ls, int fd, struct err *e)
{
	if (owner_of_peer(fd) == OWNER_OTHER) {
		close(fd);
		return 0;
	}
	struct in6_addr from = address_of(fd);
	if (supervise_links_adopt(ls, fd, e)) /* it is closed */
		return -1;
	make_room(ls, from);
	return 0;
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct links *ls = poll->data;
	(void)events;
	for (int n = 0; n < ACCEPTED_AT_ONCE && ls->listening; n++) {
		int fd = -1;
		struct err e = ERR_INIT;
		if (status < 0)
			err_set(&e, ERR_NET, "cannot watch the control socket: %s",
				uv_strerror(status));
		if (status < 0 || net_accept(ls->o.listener, &fd, &e)) {
			uv_poll_stop(poll); /* the next tick tries again */
			ls->listening = false;
			tell_trouble(ls, &e);
			return;
		}
		if (fd < 0)
			return;
		if (let_in(ls, fd, &e))
			tell_trouble(ls, &e);
	}
}

int supervise_links_open(const struct links_options *o, struct links **out, struct err *e)
{
	struct links *ls = calloc(1, sizeof *ls);
	if (!ls)
		return err_set(e, ERR_NOMEM, "no memory for the control connections");
	ls->o = *o;
	if (o->listener >= 0) {
		if (uv_poll_init(o->loop, &ls->listener, o->listener)) {
			free(ls);
			return err_set(e, ERR_NET, "cannot watch the control socket");
		}
		ls->listener.data = ls;
		ls->handles++;
	}
	listen_again(ls);
	*out = ls;
	return 0;
}

static void drop_all(struct links *ls)
{
	while (ls->first)
		supervise_link_drop(ls->first);
}

static void on_listener_closed(uv_handle_t *h)
{
	struct links *ls = h->data;
	close(ls->o.listener);
	ls->handles--;
	free_when_done(ls);
}

void supervise_links_close(struct links *ls)
{
	if (!ls)
		return;
	ls->closing = true;
	drop_all(ls);
	if (ls->o.listener >= 0)
		uv_close((uv_handle_t *)&ls->listener, on_listener_closed);
	free_when_done(ls);
}

void supervise_links_renew(struct links *ls, const unsigned char secret[AUTH_SECRET_BYTES],
			   uint32_t generation, double now)
{
	drop_all(ls);
	memcpy(ls->secret, secret, AUTH_SECRET_BYTES);
	ls->generation = generation;
	ls->troubled = false;
	ls->now = now;
}

/* lose() may change the list, so each search starts anew; it always takes one away. */
static struct link *overdue(struct links *ls)
{
	for (struct link *l = ls->first; l; l = l->next)
		if (l->rank < 0 && !l->working && ls->now - l->since > ls->o.patience)
			return l;
	return NULL;
}

void supervise_links_tick(struct links *ls, double now)
{
	ls->now = now;
	for (struct link *l; (l = overdue(ls));) {
		struct err e;
		err_set(&e, ERR_TIMEOUT, "did not say who it is within %g s", ls->o.patience);
		lose(l, &e);
	}
	listen_again(ls);
}

int supervise_links_strangers(const struct links *ls)
{
	return ls->strangers;
}

void supervise_link_claim(struct link *l, int rank)
{
	if (l->rank < 0 && rank >= 0)
		l->owner->strangers--;
	l->rank = rank;
}

int supervise_link_rank(const struct link *l)
{
	return l->rank;
}
