#include "launcher/helper/line.h"

#include "base/clock.h"
#include "base/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_MOST = 8192, TICK_MS = 1000 };

struct line {
	struct line_options o;
	struct channel *channel;
	int fd, handles;
	bool lost, heard;
	double opened; /* time */
	uv_poll_t poll;
	uv_timer_t tick;
};

static void on_poll(uv_poll_t *poll, int status, int events);

static void lose(struct line *l, const struct err *why)
{
	if (l->lost)
		return;
	l->lost = true;
	uv_poll_stop(&l->poll);
	uv_timer_stop(&l->tick);
	l->o.lost(l->o.arg, why);
}

static void update_poll(struct line *l)
{
	int events = UV_READABLE | (channel_out(l->channel)->len ? UV_WRITABLE : 0);
	if (!l->lost)
		uv_poll_start(&l->poll, events, on_poll);
}

static void write_out(struct line *l)
{
	struct buf *out = channel_out(l->channel);
	struct err e = ERR_INIT;
	while (out->len) {
		ssize_t n = send(l->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			err_errno(&e, ERR_NET, "the connection to %s", l->o.address);
			lose(l, &e);
			return;
		}
		buf_drop(out, (size_t)n);
	}
	update_poll(l);
}

/* The MUNGE work is done at once: before the message helper_start the helper has no other work. */
static int feed(struct line *l, const void *data, size_t len, struct err *e)
{
	struct vouch v;
	int rc = channel_feed(l->channel, data, len, e);
	while (!rc && channel_wants(l->channel, &v)) {
		struct err why = ERR_INIT;
		int failed = l->o.voucher->work(l->o.voucher, &v, &why);
		rc = channel_vouched(l->channel, &v, failed ? &why : NULL, e);
		vouch_fini(&v);
	}
	return rc;
}

static int deliver(struct line *l, struct err *e)
{
	struct msg m = { 0 };
	int got;
	while (!l->lost && (got = channel_next(l->channel, &m, e))) {
		l->heard |= got == 1;
		if (got == 1)
			l->o.message(l->o.arg, &m);
		msg_fini(&m);
		if (got < 0 && e->code != ERR_STALE)
			return -1;
	}
	return 0;
}

static int read_in(struct line *l, struct err *e)
{
	char data[READ_MOST];
	ssize_t n = recv(l->fd, data, sizeof data, MSG_DONTWAIT);
	if (n > 0)
		return feed(l, data, (size_t)n, e) || deliver(l, e) ? -1 : 0;
	if (n == 0)
		return err_set(e, ERR_NET, "the supervisor at %s has closed the connection",
			       l->o.address);
	return errno == EAGAIN || errno == EINTR
		       ? 0
		       : err_errno(e, ERR_NET, "the connection to the supervisor at %s",
				   l->o.address);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct line *l = poll->data;
	struct err e = ERR_INIT;
	if (l->lost)
		return;
	if ((status < 0 || events & UV_READABLE) && read_in(l, &e)) {
		lose(l, &e);
		return;
	}
	write_out(l);
}

static void on_tick(uv_timer_t *tick)
{
	struct line *l = tick->data;
	struct err e = ERR_INIT;
	if (net_check_peer(l->fd, LINE_SILENCE_S, &e)) {
		lose(l, &e);
	} else if (!l->heard && clock_s() - l->opened > LINE_START_S) {
		err_set(&e, ERR_TIMEOUT, "%s accepts connections, but says nothing for %d s",
			l->o.address, LINE_START_S);
		lose(l, &e);
	}
}

static void on_closed(uv_handle_t *h)
{
	struct line *l = h->data;
	if (--l->handles)
		return;
	close(l->fd);
	channel_close(l->channel);
	free(l);
}

static int open_channel(struct line *l, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	if (auth_secret_parse(l->o.secret, secret, e))
		return -1;
	int rc = channel_open(AUTH_AGENT, secret, l->o.generation, &l->channel, e);
	explicit_bzero(secret, sizeof secret);
	if (!rc && l->o.voucher)
		channel_require_vouch(l->channel);
	return rc;
}

int helper_line_open(const struct line_options *o, struct line **out, struct err *e)
{
	struct line *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory for the connection to the supervisor");
	l->o = *o;
	l->opened = clock_s();
	if (net_connect(o->address, LINE_CONNECT_S, &l->fd, e)) {
		free(l);
		return err_prefix(e, "connecting to the supervisor");
	}
	net_probe_idle(l->fd, LINE_SILENCE_S, NULL); /* without it the loss is only noticed later */
	if (open_channel(l, e) || uv_poll_init(o->loop, &l->poll, l->fd)) {
		if (e->code == ERR_NONE)
			err_set(e, ERR_NOMEM, "cannot watch the connection to the supervisor");
		channel_close(l->channel);
		close(l->fd);
		free(l);
		return -1;
	}
	uv_timer_init(o->loop, &l->tick);
	l->poll.data = l->tick.data = l;
	l->handles = 2;
	uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
	update_poll(l);
	*out = l;
	return 0;
}

void helper_line_send(struct line *l, enum msg_type type, json_t *body)
{
	struct err e = ERR_INIT;
	if (l->lost) {
		json_decref(body);
		return;
	}
	int rc = body ? channel_send(l->channel, type, body, &e)
		      : err_set(&e, ERR_NOMEM, "no memory for the message %s", msg_word(type));
	json_decref(body);
	if (rc)
		lose(l, &e);
	else
		write_out(l);
}

bool helper_line_sent(const struct line *l)
{
	return l->lost || !channel_out(l->channel)->len;
}

void helper_line_close(struct line *l)
{
	if (!l)
		return;
	l->lost = true; /* nothing is reported any more */
	uv_close((uv_handle_t *)&l->poll, on_closed);
	uv_close((uv_handle_t *)&l->tick, on_closed);
}
