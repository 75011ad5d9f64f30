#include "libcomm/tcp/oob_notes.h"

#include "base/human.h"
#include "libcomm/group.h"
#include "libcomm/tcp/records.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { NOTE_MAGIC = 0x4d4e4f31 };

void comm_oob_announce(struct world *w)
{
	pthread_cond_broadcast(&w->peers_changed);
	for (struct comm *c = w->groups; c; c = c->next)
		if (c->wakeup.tx >= 0)
			comm_wakeup_signal(c->wakeup.tx);
}

/* The world rank that this rank waits for in the given group, or otherwise in any group; -1:
 * none. */
static int find_wait(struct world *w, uint64_t group)
{
	int who = -1;
	pthread_mutex_lock(&w->lock);
	for (struct comm *c = w->groups; c; c = c->next) {
		int rank = atomic_load_explicit(&c->wait.waits_for, memory_order_relaxed);
		if (rank < 0 && c->node_group)
			rank = atomic_load_explicit(&c->node_group->wait.waits_for,
						    memory_order_relaxed);
		if (rank >= 0 && (who < 0 || c->id == group))
			who = rank;
	}
	pthread_mutex_unlock(&w->lock);
	return who;
}

/* --- Receiving -------------------------------------------------------------------------------- */

static void take_answer(struct world *w, int peer, const struct note *n)
{
	pthread_mutex_lock(&w->lock);
	struct oob_peer *p = &w->oob_peers[peer];
	if (n->turn - p->answered <= p->asked - p->answered) {
		p->answered = n->turn;
		p->waits_for = n->rank >= 0 && n->rank < w->size ? n->rank : -1;
	}
	pthread_cond_broadcast(&w->peers_changed);
	pthread_mutex_unlock(&w->lock);
}

static void take_cause(struct world *w, int peer, bool last)
{
	pthread_mutex_lock(&w->lock);
	w->oob_peers[peer].failed |= last;
	comm_oob_announce(w);
	pthread_mutex_unlock(&w->lock);
}

static void take_left(struct world *w, int peer)
{
	pthread_mutex_lock(&w->lock);
	w->oob_peers[peer].left = true;
	pthread_mutex_unlock(&w->lock);
}

/* false: it is not a note of this world. */
static bool handle_note(struct world *w, struct oob_connection *conn)
{
	struct note *n = &conn->in;
	if (n->magic != NOTE_MAGIC)
		return false;
	switch (n->kind) {
	case NOTE_ASK:
		conn->answer = true;
		conn->turn = n->turn;
		conn->group = n->group;
		return true;
	case NOTE_ANSWER:
		take_answer(w, conn->peer, n);
		return true;
	case NOTE_CAUSE:
	case NOTE_FAILED:
		if (n->rank < 0 || n->rank >= w->size)
			return false;
		n->text[NOTE_TEXT - 1] = '\0';
		human_plain(n->text); /* it comes from outside and goes into an error */
		comm_world_record_cause(w, n->rank, n->text);
		take_cause(w, conn->peer, n->kind == NOTE_FAILED);
		return true;
	case NOTE_LEFT:
		take_left(w, conn->peer);
		return true;
	}
	return false;
}

/* Like recv without waiting, with errno. */
static ssize_t receive_bytes(struct oob_connection *conn, void *to, size_t bytes)
{
	if (!conn->records)
		return recv(conn->fd, to, bytes, MSG_DONTWAIT);
	ssize_t n = comm_records_get(conn->records, conn->fd, &(struct iovec){ to, bytes }, 1);
	if (n > 0)
		return n;
	if (n == RECORDS_END && !errno)
		return 0;
	if (n != RECORDS_END)
		errno = n == RECORDS_BROKEN ? EBADMSG : EAGAIN;
	return -1;
}

static ssize_t send_bytes(struct oob_connection *conn, void *from, size_t bytes)
{
	if (!conn->records)
		return send(conn->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	ssize_t n = comm_records_put(conn->records, conn->fd, &(struct iovec){ from, bytes }, 1);
	if (n == 0)
		errno = EAGAIN;
	return n > 0 ? n : -1;
}

int comm_oob_receive_notes(struct world *w, struct oob_connection *conn, int *error)
{
	for (;;) {
		ssize_t n = receive_bytes(conn, (char *)&conn->in + conn->got,
					  sizeof conn->in - conn->got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		*error = n < 0 ? errno : 0;
		if (n <= 0)
			return -1;
		conn->got += (size_t)n;
		if (conn->got < sizeof conn->in)
			continue;
		conn->got = 0;
		if (!handle_note(w, conn))
			return -1;
	}
}
/* --- Sending ---------------------------------------------------------------------------------- */

static void write_note(struct oob_connection *conn, enum note_kind kind)
{
	conn->out = (struct note){ .magic = NOTE_MAGIC, .kind = kind, .rank = -1 };
	conn->put = 0;
}

static void write_cause(struct oob_connection *conn, enum note_kind kind, const struct world *w)
{
	_Static_assert(sizeof w->cause == NOTE_TEXT, "all of the words, and no more");
	write_note(conn, kind);
	conn->out.rank = w->cause_rank;
	memcpy(conn->out.text, w->cause, sizeof conn->out.text);
}

/* Chooses the next note; a last note comes before all others. false: there is none. */
static bool choose_note(struct world *w, struct oob_connection *conn)
{
	struct oob_peer *side = &w->oob_peers[conn->peer];
	if (conn->last)
		return false;
	if (world_failed(w)) {
		conn->last = true;
		write_cause(conn, NOTE_FAILED, w);
		return true;
	}
	if (conn->answer && atomic_load(&w->cause_known)) {
		conn->answer = false;
		write_cause(conn, NOTE_CAUSE, w);
		return true;
	}
	if (conn->answer) {
		conn->answer = false;
		write_note(conn, NOTE_ANSWER);
		conn->out.turn = conn->turn;
		conn->out.rank = find_wait(w, conn->group);
		return true;
	}
	pthread_mutex_lock(&w->lock);
	bool ask = side->sent != side->asked;
	if (ask) {
		write_note(conn, NOTE_ASK);
		conn->out.turn = side->sent = side->asked;
		conn->out.group = side->group;
	}
	pthread_mutex_unlock(&w->lock);
	return ask;
}

int comm_oob_send_notes(struct world *w, struct oob_connection *conn, int *error)
{
	while (conn->put < sizeof conn->out || choose_note(w, conn)) {
		ssize_t n = send_bytes(conn, (char *)&conn->out + conn->put,
				       sizeof conn->out - conn->put);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		*error = errno;
		if (n < 0)
			return -1;
		conn->put += (size_t)n;
	}
	return 0;
}

bool comm_oob_is_sending(const struct oob_connection *conn)
{
	return conn->put < sizeof conn->out;
}

void comm_oob_say_goodbye(struct oob_connection *conn)
{
	if (!comm_oob_is_sending(conn))
		write_note(conn, NOTE_LEFT);
}
