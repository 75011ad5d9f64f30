#include "agent/task/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct task_client {
	const struct task_client_handlers *handlers;
	void *arg;
	int fd;     /* -1: the program has closed its end */
	char *stop; /* queued; NULL: none */
	bool greeted, warned;
	char packet[TASK_PACKET_MAX];
};

/* clang-format off */
#define STOP_FIELDS(F) \
	F(reason,  LINE,  REQUIRED, "for people") \
	F(at_step, COUNT, OPTIONAL, "the last step; absent: at once")
/* clang-format on */

struct stop {
	STOP_FIELDS(FIELDS_MEMBER)
};

int task_client_open(const struct task_client_handlers *handlers, void *arg,
		     struct task_client **out, int *program, struct err *e)
{
	int ends[2];
	struct task_client *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "no memory for the client channel of the program");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		free(c);
		return err_errno(e, ERR_NOMEM, "cannot open the client channel of the program");
	}
	if (fcntl(ends[0], F_SETFL, O_NONBLOCK)) {
		err_errno(e, ERR_NOMEM, "cannot set up the client channel of the program");
		close(ends[0]);
		close(ends[1]);
		free(c);
		return -1;
	}
	c->handlers = handlers;
	c->arg = arg;
	c->fd = ends[0];
	*out = c;
	*program = ends[1];
	return 0;
}

static void hang_up(struct task_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->stop);
	c->stop = NULL;
}

void task_client_close(struct task_client *c)
{
	if (!c)
		return;
	hang_up(c);
	free(c);
}

int task_client_fd(const struct task_client *c)
{
	return c->fd;
}

short task_client_events(const struct task_client *c)
{
	return c->stop ? POLLIN | POLLOUT : POLLIN;
}

/* --- To the program ----------------------------------------------------------------------- */

static bool is_busy(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS ||
	       error == ENOMEM;
}

/* A program that is gone is found by the next read, after its last packets. */
static void send_stop(struct task_client *c)
{
	if (!c->stop)
		return;
	if (send(c->fd, c->stop, strlen(c->stop), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    is_busy(errno))
		return;
	free(c->stop);
	c->stop = NULL;
}

static char *stop_text(const struct stop *stop)
{
	typedef struct stop fields_struct;
	static const struct fields_row rows[] = { STOP_FIELDS(FIELDS_ROW) FIELDS_END };
	json_t *packet = json_pack("{s:o}", "stop", fields_json(rows, stop));
	char *text = packet ? json_dumps(packet, JSON_COMPACT) : NULL;
	json_decref(packet);
	return text;
}

int task_client_stop(struct task_client *c, const char *reason, int64_t at_step, struct err *e)
{
	enum { REASON_MAX = 1000 }; /* its text has at most six times as many bytes */
	if (c->fd < 0)
		return 0;
	char *line = strndup(reason, REASON_MAX);
	const struct stop stop = { .reason = line, .at_step = at_step, .has_at_step = at_step > 0 };
	char *text = line ? stop_text(&stop) : NULL;
	free(line);
	if (!text)
		return err_set(e, ERR_NOMEM, "no memory to ask the program to stop");
	free(c->stop);
	c->stop = text;
	send_stop(c);
	return 0;
}

/* --- From the program --------------------------------------------------------------------- */

static int dispatch(struct task_client *c, const struct task_packet *p, struct err *e)
{
	const struct task_client_handlers *h = c->handlers;
	if (!c->greeted && p->kind != TASK_PACKET_NONE && p->kind != TASK_PACKET_HELLO)
		return err_set(e, ERR_PROTO, "a packet came before hello");
	switch (p->kind) {
	case TASK_PACKET_HELLO:
		c->greeted = true;
		if (h->hello)
			h->hello(c->arg, &p->hello);
		break;
	case TASK_PACKET_STEP:
		if (h->step)
			h->step(c->arg, &p->step);
		break;
	case TASK_PACKET_CHECKPOINT:
		if (h->checkpoint)
			h->checkpoint(c->arg, &p->checkpoint);
		break;
	case TASK_PACKET_NONE:
		break;
	}
	return 0;
}

static int take(struct task_client *c, size_t len, struct err *e)
{
	struct task_packet p;
	struct err why = ERR_INIT;
	int rc = task_packet_read(c->packet, len, &p, e);
	if (dispatch(c, &p, rc ? &why : e))
		rc = -1;
	task_packet_fini(&p);
	return rc;
}

/* Whether the program has closed its end. An empty packet looks the same to recv. */
static bool is_closed(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	return poll(&p, 1, 0) == 1;
}

/* The size of the next packet, which may be larger than the buffer; -1: there is none. */
static ssize_t receive(struct task_client *c)
{
	ssize_t n = recv(c->fd, c->packet, sizeof c->packet, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && is_busy(errno))
		return -1;
	/* ECONNRESET: it closed its end without reading all. What it sent is still there. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(c->fd, c->packet, sizeof c->packet, MSG_DONTWAIT | MSG_TRUNC);
	if (n > 0 || (n == 0 && !is_closed(c->fd)))
		return n;
	hang_up(c);
	return -1;
}

static int read_packets(struct task_client *c, int most, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < most && c->fd >= 0; i++) {
		struct err why = ERR_INIT;
		ssize_t n = receive(c);
		if (n < 0)
			break;
		if (!take(c, (size_t)n, &why) || c->warned)
			continue;
		c->warned = true;
		rc = err_set(e, ERR_PROTO,
			     "the program sent muster what it cannot read, and it is ignored: %s; "
			     "use the muster_client of this version of muster",
			     why.text);
	}
	return rc;
}

int task_client_serve(struct task_client *c, struct err *e)
{
	send_stop(c);
	return read_packets(c, TASK_CLIENT_READS, e);
}

int task_client_serve_all(struct task_client *c, struct err *e)
{
	return read_packets(c, TASK_CLIENT_LAST, e);
}
