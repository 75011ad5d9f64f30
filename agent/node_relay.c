#include "agent/node_relay.h"

#include "agent/node_packet.h"
#include "base/owner.h"
#include "base/rank_rows.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/* More ranks than these report themselves: each costs a descriptor, and their rows must fit into
	 * one message. */
	RANKS_MOST = 256,
	READS_MOST = 16, /* packets of a rank per look; they have fewer under way */
	/* Text of reports in a message: MSG_MAX holds it even if numbers become longer when they are written
	 * again. What does not fit waits for the next message. */
	REPORTS_BYTES = MSG_MAX / 16,
	BACKLOG = RANKS_MOST
};

struct peer {
	int fd;
	int rank; /* -1: its first packet has not come */
	bool news;
	bool shown;      /* ... which is in the last body */
	uint64_t number; /* of its last packet */
	bool progress;   /* the next member was not handed on */
	struct node_packet newest;
	/* not handed on; NULL: none */
	json_t *reports[REPORTS_COUNT];
	size_t bytes[REPORTS_COUNT]; /* of their texts */
};

struct node_relay {
	int listener, rank;
	int *ranks; /* the node's other ranks */
	struct peer *peers;
	struct pollfd *polls;
	int n_ranks, n; /* peers: at most as many as ranks */
	/* room for a packet; a longer one does not fit its kind */
	char data[sizeof(struct node_report) + 1];
};

/* The ranks of the node without the first one, which is this one. */
static bool read_ranks(struct node_relay *r, const struct msg_welcome *w, int n)
{
	for (int i = 0; i < n; i++) {
		const json_t *item = json_array_get(w->here, (size_t)i + 1);
		json_int_t rank = json_integer_value(item);
		if (!json_is_integer(item) || rank <= w->rank || rank >= w->world)
			return false;
		r->ranks[i] = (int)rank;
	}
	r->n_ranks = n;
	return true;
}

/* Without a socket there is no relay, and every rank reports itself. */
static int listen_on(const struct msg_welcome *w, int *fd, struct err *e)
{
	struct sockaddr_un address;
	socklen_t len;
	if (agent_node_address(w, &address, &len, e))
		return -1;
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd >= 0 && (bind(*fd, (struct sockaddr *)&address, len) || listen(*fd, BACKLOG))) {
		close(*fd);
		*fd = -1;
	}
	return 0;
}

static int open_relay(struct node_relay *r, const struct msg_welcome *w, int n, struct err *e)
{
	size_t room = (size_t)n;
	r->ranks = calloc(room, sizeof *r->ranks);
	r->peers = calloc(room, sizeof *r->peers);
	r->polls = calloc(room, sizeof *r->polls);
	if (!r->ranks || !r->peers || !r->polls)
		return err_set(e, ERR_NOMEM, "no memory to relay the reports of %d ranks", n);
	if (!read_ranks(r, w, n))
		return err_set(e, ERR_PROTO,
			       "message welcome: its list of the ranks of this node is invalid");
	return listen_on(w, &r->listener, e);
}

int agent_node_relay_open(const struct msg_welcome *w, struct node_relay **out, struct err *e)
{
	size_t here = w->leader == w->rank && w->has_here ? json_array_size(w->here) : 0;
	*out = NULL;
	if (here < 2)
		return 0;
	struct node_relay *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory to relay the reports of other ranks");
	r->listener = -1;
	r->rank = w->rank;
	int n = here - 1 < RANKS_MOST ? (int)here - 1 : RANKS_MOST;
	int rc = open_relay(r, w, n, e);
	if (rc || r->listener < 0) {
		agent_node_relay_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

static void keep_report(struct peer *p, int report, json_t *body, size_t bytes)
{
	json_decref(p->reports[report]);
	p->reports[report] = body;
	p->bytes[report] = bytes;
}

static void close_peer(struct peer *p)
{
	close(p->fd);
	for (int i = 0; i < REPORTS_COUNT; i++)
		keep_report(p, i, NULL, 0);
}

void agent_node_relay_close(struct node_relay *r)
{
	if (!r)
		return;
	for (int i = 0; i < r->n; i++)
		close_peer(&r->peers[i]);
	if (r->listener >= 0)
		close(r->listener);
	free(r->ranks);
	free(r->peers);
	free(r->polls);
	free(r);
}

/* --- what comes ----------------------------------------------------------------------------- */

static void drop_peer(struct node_relay *r, int i)
{
	close_peer(&r->peers[i]);
	r->peers[i] = r->peers[--r->n];
}

/* Whether the peer may report this rank: it is one of the node's, and no other peer's. */
static bool may_report(const struct node_relay *r, const struct peer *p, int rank)
{
	bool here = false;
	for (int i = 0; i < r->n_ranks; i++)
		here |= r->ranks[i] == rank;
	for (int i = 0; i < r->n; i++)
		here &= &r->peers[i] == p || r->peers[i].rank != rank;
	return here;
}

static bool take_progress(struct peer *p, const void *data, size_t len)
{
	struct node_packet packet;
	if (!agent_node_packet_read(data, len, &packet))
		return false;
	p->newest = packet;
	p->progress = true;
	return true;
}

static bool take_report(struct peer *p, int report, const void *data, size_t len)
{
	json_t *body = agent_node_report_body(data, len);
	if (!body)
		return false;
	keep_report(p, report, body, len);
	return true;
}

/* False: the packet must not have come. */
static bool take_packet(struct node_relay *r, struct peer *p, const void *data, size_t len)
{
	struct node_head head;
	if (!agent_node_head_read(data, len, &head))
		return false;
	if (p->rank < 0 && may_report(r, p, head.rank))
		p->rank = head.rank;
	if (p->rank != head.rank ||
	    !(head.report == NODE_NO_REPORT ? take_progress(p, data, len)
					    : take_report(p, (int)head.report, data, len)))
		return false;
	p->number = head.number;
	p->news = true;
	return true;
}

/* False: the connection is over. */
static bool read_peer(struct node_relay *r, struct peer *p)
{
	for (int i = 0; i < READS_MOST; i++) {
		ssize_t n = recv(p->fd, r->data, sizeof r->data, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (n == 0 || !take_packet(r, p, r->data, (size_t)n))
			return false;
	}
	return true;
}

static void read_peers(struct node_relay *r)
{
	for (int i = 0; i < r->n; i++)
		r->polls[i] = (struct pollfd){ .fd = r->peers[i].fd, .events = POLLIN };
	if (poll(r->polls, (nfds_t)r->n, 0) <= 0)
		return;
	for (int i = r->n - 1; i >= 0; i--) /* a dropped one is replaced by the last */
		if (r->polls[i].revents && !read_peer(r, &r->peers[i]))
			drop_peer(r, i);
}

static void accept_peers(struct node_relay *r)
{
	int fd;
	while ((fd = accept4(r->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		if (r->n < r->n_ranks && owner_of_peer(fd) == OWNER_SELF)
			r->peers[r->n++] = (struct peer){ .fd = fd, .rank = -1 };
		else
			close(fd);
}

bool agent_node_relay_take(struct node_relay *r)
{
	bool news = false;
	read_peers(r);
	accept_peers(r);
	for (int i = 0; i < r->n; i++)
		news |= r->peers[i].news;
	return news;
}

/* --- what goes on --------------------------------------------------------------------------- */

static json_t *times_row(int rank, const struct train_times *times)
{
	struct msg_times m = { .step = times->step,
			       .peak_bytes = times->peak_bytes,
			       .us = time_reported_json(times->us) };
	json_t *row = msg_times_row(rank, &m);
	json_decref(m.us);
	return row;
}

/* times: NULL: none. False: no memory. */
static bool add_rows(struct msg_node_progress *to, int rank, const struct msg_progress *m,
		     const struct train_times *times)
{
	return !json_array_append_new(to->progress, msg_progress_row(rank, m)) &&
	       (!times || !json_array_append_new(to->times, times_row(rank, times)));
}

static bool add_progress(struct msg_node_progress *to, const struct peer *p)
{
	struct msg_progress m;
	struct train_times times;
	agent_node_packet_progress(&p->newest, &m);
	bool has_times = agent_node_packet_times(&p->newest, &times);
	return add_rows(to, p->rank, &m, has_times ? &times : NULL);
}

static size_t report_bytes(const struct peer *p)
{
	size_t bytes = 0;
	for (int i = 0; i < REPORTS_COUNT; i++)
		bytes += p->bytes[i];
	return bytes;
}

static bool add_reports(struct msg_node_progress *to, int rank, json_t *const *reports)
{
	bool whole = true;
	for (int i = 0; i < REPORTS_COUNT; i++)
		whole = whole && (!reports[i] ||
				  !json_array_append_new(to->reports,
							 msg_report_row(rank, msg_report_type(i),
									reports[i])));
	return whole;
}

/* room: bytes of reports. A peer whose reports do not fit is not acknowledged. */
static bool add_peer(struct msg_node_progress *to, struct peer *p, size_t *room)
{
	size_t bytes = report_bytes(p);
	p->shown = bytes <= *room;
	if (p->progress && !add_progress(to, p))
		return false;
	if (!p->shown)
		return true;
	*room -= bytes;
	return add_reports(to, p->rank, p->reports);
}

json_t *agent_node_relay_body(struct node_relay *r, const struct node_own *own)
{
	struct msg_node_progress m = { .progress = json_array(),
				       .times = json_array(),
				       .reports = json_array() };
	size_t room = REPORTS_BYTES;
	bool whole = add_rows(&m, r->rank, &own->progress, own->times) &&
		     add_reports(&m, r->rank, own->reports);
	for (struct peer *p = r->peers; p < r->peers + r->n; p++) {
		p->shown = false;
		whole = whole && (!p->news || add_peer(&m, p, &room));
	}
	json_t *body = whole ? msg_node_progress_json(&m) : NULL;
	json_decref(m.progress);
	json_decref(m.times);
	json_decref(m.reports);
	return body;
}

void agent_node_relay_acknowledge(struct node_relay *r)
{
	for (struct peer *p = r->peers; p < r->peers + r->n; p++) {
		p->progress = false;
		if (!p->news || !p->shown)
			continue;
		p->news = false;
		for (int i = 0; i < REPORTS_COUNT; i++)
			keep_report(p, i, NULL, 0);
		/* A rank that reads none keeps those that it has not read; the next one says more. */
		if (send(p->fd, &p->number, sizeof p->number, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			continue;
	}
}
