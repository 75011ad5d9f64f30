#include "launcher/console/line.h"

#include "base/auth.h"
#include "base/clock.h"
#include "base/munge.h"
#include "base/net.h"
#include "launcher/rundir/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_MOST = 8192, HOST = 256, SILENCE_S = 20 };

struct console_line {
	int fd;
	char address[NET_ADDR_MAX], host[HOST];
	struct channel *channel;
	struct voucher munge;
	bool vouches;
};

static int wait_for(const struct console_line *l, short events, double until, struct err *e)
{
	struct pollfd p = { l->fd, events, 0 };
	for (;;) {
		double left = until - clock_s();
		int rc = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
		if (rc > 0)
			return 0;
		if (rc == 0)
			return err_set(e, ERR_TIMEOUT, "the supervisor on %s does not answer",
				       l->host);
		if (errno != EINTR)
			return err_errno(e, ERR_NET, "waiting for the supervisor on %s", l->host);
	}
}

static int connect_line(struct console_line *l, double until, struct err *e)
{
	if (net_connect_start(l->address, &l->fd, e))
		return -1;
	return wait_for(l, POLLOUT, until, e) || net_connect_done(l->fd, l->address, e) ? -1 : 0;
}

static int feed(struct console_line *l, const void *data, size_t len, struct err *e)
{
	struct vouch v;
	int rc = channel_feed(l->channel, data, len, e);
	while (!rc && channel_wants(l->channel, &v)) {
		struct err why = ERR_INIT;
		int failed = l->munge.work(&l->munge, &v, &why);
		rc = channel_vouched(l->channel, &v, failed ? &why : NULL, e);
		vouch_fini(&v);
	}
	return rc;
}

static int send_out(struct console_line *l, struct err *e)
{
	struct buf *out = channel_out(l->channel);
	while (out->len) {
		ssize_t n = send(l->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection to the supervisor on %s",
					 l->host);
		buf_drop(out, (size_t)n);
	}
	return 0;
}

static int read_in(struct console_line *l, struct err *e)
{
	char data[READ_MOST];
	ssize_t n = recv(l->fd, data, sizeof data, MSG_DONTWAIT);
	if (n > 0)
		return feed(l, data, (size_t)n, e);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return err_errno(e, ERR_NET, "the connection to the supervisor on %s", l->host);
	if (!channel_ready(
		    l->channel)) /* another process has its port, or another secret is valid */
		return err_set(e, ERR_AUTH,
			       "%s closed the connection: it is not the supervisor that wrote the "
			       "file control, or not of this user",
			       l->address);
	return err_set(e, ERR_NET, "the supervisor on %s has closed the connection", l->host);
}

/* The next message, whole. */
static int receive(struct console_line *l, double until, struct msg *m, struct err *e)
{
	for (;;) {
		int rc = channel_next(l->channel, m, e);
		if (rc)
			return rc < 0 ? -1 : 0;
		if (send_out(l, e))
			return -1;
		short events = (short)(POLLIN | (channel_out(l->channel)->len ? POLLOUT : 0));
		if (wait_for(l, events, until, e) || read_in(l, e))
			return -1;
	}
}

static void describe_user(char *out, size_t size)
{
	char host[HOST] = "";
	char names[2048];
	struct passwd entry, *user = NULL;
	getpwuid_r(geteuid(), &entry, names, sizeof names, &user);
	if (gethostname(host, sizeof host - 1))
		strcpy(host, "an unknown host");
	if (user)
		snprintf(out, size, "%s on %s", user->pw_name, host);
	else
		snprintf(out, size, "uid %u on %s", (unsigned)geteuid(), host);
}

static int open_channel(struct console_line *l, const struct rundir_control *c, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	char who[HOST + 64];
	int vouches = munge_parse(c->auth, &l->munge, e);
	if (vouches < 0 || auth_secret_parse(c->secret, secret, e))
		return -1;
	int rc = channel_open(AUTH_AGENT, secret, CONSOLE_GENERATION, &l->channel, e);
	explicit_bzero(secret, sizeof secret);
	if (rc)
		return -1;
	if (vouches)
		channel_require_vouch(l->channel);
	describe_user(who, sizeof who);
	json_t *hello = msg_console_hello_json(
		&(struct msg_console_hello){ .version = CONSOLE_VERSION, .who = who });
	rc = hello ? channel_send(l->channel, MSG_CONSOLE_HELLO, hello, e)
		   : err_set(e, ERR_NOMEM, "no memory to ask the supervisor");
	json_decref(hello);
	return rc;
}

/* The supervisor answers the first packet of the handshake, so a peer that is none, or is stopped, shows
 * here. */
static int shake_hands(struct console_line *l, double until, struct err *e)
{
	while (!channel_ready(l->channel))
		if (send_out(l, e) || wait_for(l, POLLIN, until, e) || read_in(l, e))
			return -1;
	net_guard(l->fd, SILENCE_S, NULL); /* without it the loss of the host is noticed later */
	return send_out(l, e);
}

int console_line_open(const char *run, double seconds, struct console_line **out, struct err *e)
{
	double until = clock_s() + seconds;
	struct rundir_control c;
	json_t *object;
	if (rundir_control_load(run, &object, &c, e))
		return -1;
	struct console_line *l = calloc(1, sizeof *l);
	int rc = l ? 0 : err_set(e, ERR_NOMEM, "no memory to ask the supervisor");
	if (l) {
		l->fd = -1;
		snprintf(l->address, sizeof l->address, "%s", c.address);
		snprintf(l->host, sizeof l->host, "%s", c.host);
		rc = open_channel(l, &c, e) || connect_line(l, until, e) || shake_hands(l, until, e)
			     ? -1
			     : 0;
	}
	json_decref(object);
	if (rc)
		console_line_close(l);
	else
		*out = l;
	return rc;
}

void console_line_close(struct console_line *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	channel_close(l->channel);
	free(l);
}

int console_line_await(struct console_line *l, double seconds, json_t **body,
		       struct msg_console_answer *out, struct err *e)
{
	struct msg m = { 0 };
	*body = NULL;
	if (receive(l, clock_s() + seconds, &m, e)) {
		msg_fini(&m);
		return -1;
	}
	if (m.type != MSG_CONSOLE_ANSWER) {
		err_set(e, ERR_PROTO, "the supervisor on %s sent the message %s", l->host,
			msg_word(m.type));
	} else if (!msg_console_answer_read(m.body, out, e)) {
		*body = m.body;
		return 0;
	}
	msg_fini(&m);
	return -1;
}

int console_line_ask(struct console_line *l, const struct msg_console_ask *ask, double seconds,
		     json_t **body, struct msg_console_answer *out, struct err *e)
{
	json_t *question = msg_console_ask_json(ask);
	int rc = question ? channel_send(l->channel, MSG_CONSOLE_ASK, question, e)
			  : err_set(e, ERR_NOMEM, "no memory to ask the supervisor");
	json_decref(question);
	*body = NULL;
	return rc || send_out(l, e) ? -1 : console_line_await(l, seconds, body, out, e);
}
