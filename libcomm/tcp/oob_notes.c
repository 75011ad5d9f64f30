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
	struct oob_peer *s = &w->oob_peers[peer];
	if (n->turn - s->answered <= s->asked - s->answered) {
		s->answered = n->turn;
		s->waits_for = n->rank >= 0 && n->rank < w->size ? n->rank : -1;
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
static bool handle_note(struct world *w, struct oob_connection *l)
{
	struct note *n = &l->in;
	if (n->magic != NOTE_MAGIC)
		return false;
	switch (n->kind) {
	case NOTE_ASK:
		l->answer = true;
		l->turn = n->turn;
		l->group = n->group;
		return true;
	case NOTE_ANSWER:
		take_answer(w, l->peer, n);
		return true;
	case NOTE_CAUSE:
	case NOTE_FAILED:
		if (n->rank < 0 || n->rank >= w->size)
			return false;
		n->text[NOTE_TEXT - 1] = '\0';
		human_plain(n->text); /* it comes from outside and goes into an error */
		comm_world_record_cause(w, n->rank, n->text);
		take_cause(w, l->peer, n->kind == NOTE_FAILED);
		return true;
	case NOTE_LEFT:
		take_left(w, l->peer);
		return true;
	}
	return false;
}

/* Like recv without waiting, with errno. */
static ssize_t receive_bytes(struct oob_connection *l, void *to, size_t bytes)
{
	if (!l->records)
		return recv(l->fd, to, bytes, MSG_DONTWAIT);
	ssize_t n = comm_records_get(l->records, l->fd, &(struct iovec){ to, bytes }, 1);
	if (n > 0)
		return n;
	if (n == RECORDS_END && !errno)
		return 0;
	if (n != RECORDS_END)
		errno = n == RECORDS_BROKEN ? EBADMSG : EAGAIN;
	return -1;
}

static ssize_t send_bytes(struct oob_connection *l, void *from, size_t bytes)
{
	if (!l->records)
		return send(l->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	ssize_t n = comm_records_put(l->records, l->fd, &(struct iovec){ from, bytes }, 1);
	if (n == 0)
		errno = EAGAIN;
	return n > 0 ? n : -1;
}

int comm_oob_receive_notes(struct world *w, struct oob_connection *l, int *error)
{
	for (;;) {
		ssize_t n = receive_bytes(l, (char *)&l->in + l->got, sizeof l->in - l->got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		*error = n < 0 ? errno : 0;
		if (n <= 0)
			return -1;
		l->got += (size_t)n;
		if (l->got < sizeof l->in)
			continue;
		l->got = 0;
		if (!handle_note(w, l))
			return -1;
	}
}
/* --- Sending ---------------------------------------------------------------------------------- */

static void write_note(struct oob_connection *l, enum note_kind kind)
{
	l->out = (struct note){ .magic = NOTE_MAGIC, .kind = kind, .rank = -1 };
	l->put = 0;
}

static void write_cause(struct oob_connection *l, enum note_kind kind, const struct world *w)
{
	_Static_assert(sizeof w->cause == NOTE_TEXT, "all of the words, and no more");
	write_note(l, kind);
	l->out.rank = w->cause_rank;
	memcpy(l->out.text, w->cause, sizeof l->out.text);
}

/* Chooses the next note; a last note comes before all others. false: there is none. */
static bool choose_note(struct world *w, struct oob_connection *l)
{
	struct oob_peer *side = &w->oob_peers[l->peer];
	if (l->last)
		return false;
	if (world_failed(w)) {
		l->last = true;
		write_cause(l, NOTE_FAILED, w);
		return true;
	}
	if (l->answer && atomic_load(&w->cause_known)) {
		l->answer = false;
		write_cause(l, NOTE_CAUSE, w);
		return true;
	}
	if (l->answer) {
		l->answer = false;
		write_note(l, NOTE_ANSWER);
		l->out.turn = l->turn;
		l->out.rank = find_wait(w, l->group);
		return true;
	}
	pthread_mutex_lock(&w->lock);
	bool ask = side->sent != side->asked;
	if (ask) {
		write_note(l, NOTE_ASK);
		l->out.turn = side->sent = side->asked;
		l->out.group = side->group;
	}
	pthread_mutex_unlock(&w->lock);
	return ask;
}

int comm_oob_send_notes(struct world *w, struct oob_connection *l, int *error)
{
	while (l->put < sizeof l->out || choose_note(w, l)) {
		ssize_t n = send_bytes(l, (char *)&l->out + l->put, sizeof l->out - l->put);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		*error = errno;
		if (n < 0)
			return -1;
		l->put += (size_t)n;
	}
	return 0;
}

bool comm_oob_is_sending(const struct oob_connection *l)
{
	return l->put < sizeof l->out;
}

void comm_oob_say_goodbye(struct oob_connection *l)
{
	if (!comm_oob_is_sending(l))
		write_note(l, NOTE_LEFT);
}
