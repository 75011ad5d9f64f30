#include "agent/node_member.h"

#include "agent/node_packet.h"
#include "base/owner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	UNREAD_MOST =
		4, /* packets under way: a relay that was stopped must not hand on old ones for long */
	PATIENCE_BEATS = 2,
	SILENT_SHARE = 4 /* of silent_s, in which it must not look silent */
};

struct node_member {
	int fd; /* -1: not connected */
	int rank;
	struct sockaddr_un address;
	socklen_t address_len;
	double patience_s, retry_s;
	double next_try;
	uint64_t sent, acked; /* packets, by their numbers */
	double waits_since; /* if they differ: time of the last acknowledgement, or of the first packet after it */
	bool served;
	uint64_t owed; /* the first packet that has new times; 0: they are acknowledged */
	struct {
		int64_t number;
		uint64_t packet;   /* 0: none of this connection */
	} handed[REPORTS_COUNT];   /* the last ones */
	struct node_report report; /* room for one */
};

int agent_node_member_open(const struct msg_welcome *w, struct node_member **out, struct err *e)
{
	*out = NULL;
	if (w->node_ranks < 2 || w->leader == w->rank)
		return 0;
	struct node_member *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "no memory for the connection to the node's relay");
	m->fd = -1;
	m->rank = w->rank;
	m->retry_s = w->heartbeat_s;
	m->patience_s = fmin(PATIENCE_BEATS * w->heartbeat_s, w->silent_s / SILENT_SHARE);
	if (agent_node_address(w, &m->address, &m->address_len, e)) {
		free(m);
		return -1;
	}
	*out = m;
	return 0;
}

void agent_node_member_close(struct node_member *m)
{
	if (!m)
		return;
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

/* --- the connection -------------------------------------------------------------------------- */

static void leave_relay(struct node_member *m, double now)
{
	close(m->fd);
	m->fd = -1;
	m->served = false;
	m->next_try = now + m->retry_s;
}

static void connect_to_relay(struct node_member *m, double now)
{
	m->sent = m->acked = m->owed = 0;
	memset(m->handed, 0, sizeof m->handed);
	m->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (m->fd < 0) {
		m->next_try = now + m->retry_s;
		return;
	}
	if (connect(m->fd, (struct sockaddr *)&m->address, m->address_len) ||
	    owner_of_peer(m->fd) != OWNER_SELF)
		leave_relay(m, now);
}

static void take_number(struct node_member *m, uint64_t number, double now)
{
	m->acked = number;
	m->waits_since = now;
	m->served |= number == m->sent;
}

static void read_numbers(struct node_member *m, double now)
{
	uint64_t number[2]; /* a longer packet is none */
	for (;;) {
		ssize_t n = recv(m->fd, number, sizeof number, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n != sizeof *number || *number > m->sent || *number < m->acked) {
			leave_relay(m, now);
			return;
		}
		take_number(m, *number, now);
	}
}

bool agent_node_member_look(struct node_member *m, double now)
{
	if (m->fd < 0 && now >= m->next_try)
		connect_to_relay(m, now);
	if (m->fd >= 0)
		read_numbers(m, now);
	if (m->sent != m->acked && now - m->waits_since > m->patience_s)
		m->served = false;
	return m->served;
}

/* --- reports ----------------------------------------------------------------------------------- */

static bool may_send(const struct node_member *m)
{
	return m->fd >= 0 && m->sent - m->acked < (m->served ? UNREAD_MOST : 1);
}

/* Sends a packet, which begins with `head`. */
static bool send_packet(struct node_member *m, struct node_head *head, size_t len, double now)
{
	head->number = m->sent + 1;
	if (send(m->fd, head, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len)
		return false; /* what is wrong is seen when it is read */
	if (m->sent == m->acked)
		m->waits_since = now;
	m->sent++;
	return true;
}

bool agent_node_member_report(struct node_member *m, const struct msg_progress *p,
			      const struct train_times *times, double now)
{
	struct node_packet packet;
	if (!may_send(m))
		return false;
	agent_node_packet_fill(&packet, m->rank, p, times);
	return send_packet(m, &packet.head, sizeof packet, now);
}

bool agent_node_member_hand(struct node_member *m, int report, int64_t number, const json_t *body,
			    double now)
{
	bool has = m->handed[report].packet && m->handed[report].number == number;
	if (!m->served)
		return false;
	if (has || !may_send(m))
		return true; /* in the second case, the next look tries it */
	size_t len = agent_node_report_fill(&m->report, m->rank, report, body);
	if (len == 0)
		return false;
	if (send_packet(m, &m->report.head, len, now)) {
		m->handed[report].number = number;
		m->handed[report].packet = m->sent;
	}
	return true;
}

bool agent_node_member_has_handed(const struct node_member *m, int report, int64_t number)
{
	return m->handed[report].packet && m->handed[report].number == number &&
	       m->acked >= m->handed[report].packet;
}

void agent_node_member_owe(struct node_member *m)
{
	m->owed = m->sent + 1;
}

bool agent_node_member_settles(struct node_member *m)
{
	bool settles = m->owed && m->acked >= m->owed;
	if (settles)
		m->owed = 0;
	return settles;
}
