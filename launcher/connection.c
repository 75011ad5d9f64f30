#include "launcher/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_poll(uv_poll_t *poll, int status, int events);

/* Frees the connection once the loop has closed its handle and no thread works for it. */
static void free_released(struct connection *c)
{
	struct connections *all = c->owner;
	if (!c->released || c->working)
		return;
	close(c->fd);
	channel_close(c->channel);
	free(c);
	all->handles--;
	launcher_connections_free(all);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct connection *c = h->data;
	c->released = true;
	free_released(c);
}

void launcher_connection_drop(struct connection *c)
{
	struct connections *all = c->owner;
	if (!c->open)
		return;
	c->open = false;
	launcher_connections_remove(c);
	if (c->attached) {
		launcher_attached_close(c);
		return;
	}
	if (c->working)
		uv_cancel((uv_req_t *)&c->work);
	uv_close((uv_handle_t *)&c->poll, on_handle_closed);
	launcher_connections_listen(all);
}

void launcher_connection_lose(struct connection *c, const struct err *why)
{
	struct connections *all = c->owner;
	int rank = c->rank;
	if (!c->open)
		return;
	launcher_connection_drop(c);
	all->o.closed(all->o.arg, rank, why);
}

/* A change costs libuv three system calls, and there is one message after the other. */
static void update_poll(struct connection *c)
{
	int events = UV_READABLE | (channel_out(c->channel)->len ? UV_WRITABLE : 0);
	if (events == c->events)
		return;
	c->events = events;
	uv_poll_start(&c->poll, events, on_poll);
}

/* A failed write is not reported here. The next read reports it, after what the peer sent before it
 * closed. */
static void write_out(struct connection *c)
{
	struct buf *out = channel_out(c->channel);
	while (out->len) {
		ssize_t n = send(c->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			buf_clear(out);
		if (n <= 0)
			break;
		buf_drop(out, (size_t)n);
	}
	update_poll(c);
}

bool launcher_connection_is_drained(const struct connection *c)
{
	return c->attached || channel_out(c->channel)->len == 0;
}

/* The socket takes more. */
static void go_on_writing(struct connection *c)
{
	const struct connections_options *o = &c->owner->o;
	write_out(c);
	if (o->drained && c->rank >= 0 && launcher_connection_is_drained(c))
		o->drained(o->arg, c);
}

int launcher_connection_send(struct connection *c, enum msg_type type, json_t *body, struct err *e)
{
	if (!c->open)
		return err_set(e, ERR_NET, "the connection is closed");
	if (c->attached)
		return launcher_attached_send(c, type, body, e);
	if (channel_send(c->channel, type, body, e))
		return -1;
	write_out(c);
	return 0;
}

int launcher_connection_send_packed(struct connection *c, const struct buf *packed, struct err *e)
{
	if (!c->open)
		return err_set(e, ERR_NET, "the connection is closed");
	if (c->attached)
		return launcher_attached_send_packed(c, packed, e);
	if (channel_send_packed(c->channel, packed, e))
		return -1;
	write_out(c);
	return 0;
}

/* Delivers whole messages. Any callback may drop the connection. */
static void deliver_messages(struct connection *c)
{
	struct connections *all = c->owner;
	while (c->open) {
		struct msg m = { 0 };
		struct err e = ERR_INIT;
		int got = channel_next(c->channel, &m, &e);
		if (got == 1) {
			all->o.message(all->o.arg, c, &m);
			msg_fini(&m);
			continue;
		}
		if (got == 0)
			return;
		msg_fini(&m);
		if (e.code == ERR_STALE) /* an old frame of a valid peer is ignored */
			continue;
		launcher_connection_lose(c, &e);
		return;
	}
}

/* Runs on a thread of the loop's pool and uses only vouch, refusal and failed. */
static void run_munge_work(uv_work_t *work)
{
	struct connection *c = work->data;
	const struct voucher *by = c->owner->o.voucher;
	c->failed = by->work(by, &c->vouch, &c->refusal);
}

static void on_munge_done(uv_work_t *work, int status)
{
	struct connection *c = work->data;
	struct err e = ERR_INIT;
	(void)status; /* cancelled work belongs to a closed connection */
	c->working = false;
	int rc = c->open ? channel_vouched(c->channel, &c->vouch, c->failed ? &c->refusal : NULL,
					   &e)
			 : 0;
	vouch_fini(&c->vouch);
	if (!c->open) {
		free_released(c);
	} else if (rc) {
		launcher_connection_lose(c, &e);
	} else {
		write_out(c);
		deliver_messages(c);
	}
}

static void start_munge_work(struct connection *c)
{
	if (!channel_wants(c->channel, &c->vouch))
		return;
	c->work.data = c;
	c->working = true;
	uv_queue_work(c->owner->o.loop, &c->work, run_munge_work, on_munge_done);
}

bool launcher_connection_read(struct connection *c)
{
	static char chunk[65536]; /* one loop, one thread */
	struct err e = ERR_INIT;
	ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		if (n < 0)
			err_errno(&e, ERR_NET, "connection lost");
		else
			err_set(&e, ERR_NET, "connection closed");
		launcher_connection_lose(c, &e);
		return false;
	}
	int rc = channel_feed(c->channel, chunk, (size_t)n, &e);
	if (c->standing == STANDING_SILENT && channel_greeted(c->channel))
		launcher_connections_move(c, STANDING_GREETED);
	if (rc == 0)
		deliver_messages(c);
	if (!c->open)
		return false;
	if (rc)
		launcher_connection_lose(c, &e);
	else
		write_out(c);
	if (c->open)
		start_munge_work(c);
	return c->open;
}

void launcher_connection_read_out(struct connection *c)
{
	if (c->attached && c->open && c->carrier.read_out)
		c->carrier.read_out(c->carrier.arg);
	while (!c->attached && c->open && launcher_connection_read(c))
		;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct connection *c = poll->data;
	if (!c->open)
		return;
	if (status < 0) /* libuv has stopped watching the socket */
		c->events = 0;
	if (status < 0 || events & UV_READABLE)
		launcher_connection_read(c);
	else if (events & UV_WRITABLE)
		go_on_writing(c);
	if (status < 0 && c->open)
		update_poll(c);
}

struct in6_addr launcher_connection_address(int fd)
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

void launcher_connection_join(struct connection *c, struct connections *all)
{
	c->owner = all;
	c->rank = -1;
	c->generation = all->generation;
	c->since = all->now;
	c->open = true;
	launcher_connections_move(c, c->attached ? STANDING_GREETED : STANDING_SILENT);
}

int launcher_connections_adopt(struct connections *all, int fd, struct err *e)
{
	struct connection *c = calloc(1, sizeof *c);
	int flags = fcntl(fd, F_GETFL);
	if (!c || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
		err_set(e, ERR_NOMEM, "cannot take over a connection");
		goto free_link;
	}
	if (channel_open(AUTH_SUPERVISOR, all->secret, all->generation, &c->channel, e))
		goto free_link;
	if (all->o.voucher)
		channel_require_vouch(c->channel);
	if (uv_poll_init(all->o.loop, &c->poll, fd)) {
		err_set(e, ERR_NET, "cannot watch a connection");
		goto close_channel;
	}
	c->fd = fd;
	c->from = launcher_connection_address(fd);
	c->poll.data = c;
	launcher_connection_join(c, all);
	all->handles++;
	update_poll(c);
	return 0;

close_channel:
	channel_close(c->channel);
free_link:
	free(c);
	close(fd);
	return -1;
}

void launcher_connection_claim(struct connection *c, int rank)
{
	if (c->rank < 0 && rank >= 0)
		launcher_connections_move(c, STANDING_CLAIMED);
	c->rank = rank;
}

void launcher_connection_advance(struct connection *c, uint32_t generation)
{
	c->generation = generation;
	if (!c->attached)
		channel_renew(c->channel, generation);
}

int launcher_connection_rank(const struct connection *c)
{
	return c->rank;
}
