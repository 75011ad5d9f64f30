#include "libcomm/tcp/side.h"

#include "base/human.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/group.h"
#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOTE_MAGIC = 0x4d4e4f31, NOTE_TEXT = 1000, SHUT_OUT_MOST = 100 };

enum note_kind { NOTE_ASK = 1, NOTE_ANSWER, NOTE_HEARD, NOTE_FAILED, NOTE_LEFT };

struct note {
	uint32_t magic, kind;
	uint64_t group;
	uint32_t turn; /* of a question, and of its answer */
	int32_t rank;  /* answer: whom it waits for; heard, failed: whose words these are */
	char text[NOTE_TEXT];
};
_Static_assert(sizeof(struct note) == 24 + NOTE_TEXT, "a note has no padding");

struct line { /* a connection */
	int peer, fd;
	struct records *records;    /* NULL: notes go as they are */
	struct handshake *greeting; /* of a call; NULL: both have proved themselves */
	int shut_out;               /* how often the other end had no time to hear it */
	struct note in, out;
	size_t got, put; /* bytes of them; put == sizeof out: nothing to be sent */
	bool answer;     /* owes one, to this question: */
	uint32_t turn;
	uint64_t group;
	bool last; /* has begun its last note */
};

struct side_lines {
	struct world *w;
	struct line **line;
	int count, room;
};

/* --- What is known of a rank --- */

static void want(struct world *w)
{
	w->side_wanted = true;
	comm_acceptor_wake(w);
}

void comm_side_call(struct world *w, int rank)
{
	if (w->sides[rank].state != SIDE_NONE)
		return;
	w->sides[rank].state = SIDE_CALLED;
	want(w);
}

uint32_t comm_side_ask(struct world *w, int rank, uint64_t group)
{
	struct side *s = &w->sides[rank];
	comm_side_call(w, rank);
	s->group = group;
	want(w);
	return ++s->asked;
}

/* Under the world's lock: whoever waits, for a rank or for an answer, looks again. */
static void tell_news(struct world *w)
{
	pthread_cond_broadcast(&w->news);
	for (struct comm *c = w->groups; c; c = c->next)
		if (c->bell.tx >= 0)
			comm_bell_ring(c->bell.tx);
}

/* Whom this rank waits for, as far as it knows: in that group, else in any. */
static int waits_for(struct world *w, uint64_t group)
{
	int who = -1;
	pthread_mutex_lock(&w->lock);
	for (struct comm *c = w->groups; c; c = c->next) {
		int rank = atomic_load_explicit(&c->waits_for, memory_order_relaxed);
		if (rank < 0 && c->inner)
			rank = atomic_load_explicit(&c->inner->waits_for, memory_order_relaxed);
		if (rank >= 0 && (who < 0 || c->id == group))
			who = rank;
	}
	pthread_mutex_unlock(&w->lock);
	return who;
}

/* --- Lines --- */

static struct line *line_new(struct side_lines *s, int peer)
{
	if (s->count == s->room) {
		int room = s->room ? 2 * s->room : 8;
		struct line **more = realloc(s->line, (size_t)room * sizeof *more);
		if (!more)
			return NULL;
		s->line = more;
		s->room = room;
	}
	struct line *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->peer = peer;
	l->fd = -1;
	l->put = sizeof l->out;
	s->line[s->count++] = l;
	return l;
}

/* Nothing half read may turn the end into a reset, which could overtake the last words. */
static void hang_up(int fd)
{
	char rest[512];
	shutdown(fd, SHUT_WR);
	while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
		continue;
	close(fd);
}

static void line_free(struct line *l)
{
	comm_handshake_free(l->greeting);
	if (l->fd >= 0)
		hang_up(l->fd);
	comm_records_free(l->records);
	free(l);
}

/* A line is up. */
static void line_connected(struct side_lines *s, struct line *l, int fd, struct records *records)
{
	struct world *w = s->w;
	l->records = records;
	l->fd = fd;
	l->greeting = NULL;
	net_guard(fd, w->silence_s, NULL);
	pthread_mutex_lock(&w->lock);
	w->sides[l->peer].lines++;
	w->sides[l->peer].state = SIDE_UP;
	w->sides[l->peer].met = true;
	pthread_mutex_unlock(&w->lock);
}

static bool means_silence(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

/* Ends line i. gone: its end says that the rank is no more. */
static void line_end(struct side_lines *s, int i, bool gone, int error)
{
	struct world *w = s->w;
	struct line *l = s->line[i];
	struct side *side = &w->sides[l->peer];
	pthread_mutex_lock(&w->lock);
	if (l->fd >= 0)
		side->lines--;
	if (!side->lines) {
		side->state = gone ? SIDE_GONE : SIDE_NONE;
		if (means_silence(error))
			atomic_store(&side->silent, true);
		tell_news(w);
	}
	pthread_mutex_unlock(&w->lock);
	line_free(l);
	s->line[i] = s->line[--s->count];
}

/* --- Calls --- */

static int call_begin(struct side_lines *s, struct line *l, struct err *e)
{
	struct hello what = { .kind = HELLO_SIDE, .to = (uint32_t)l->peer };
	if (comm_handshake_connect(s->w, &what, &l->greeting, e) < 0)
		return -1;
	return net_guard(comm_handshake_fd(l->greeting), s->w->silence_s, e);
}

static void call(struct side_lines *s, int rank)
{
	struct line *l = line_new(s, rank);
	if (l && call_begin(s, l, NULL) == 0)
		return;
	pthread_mutex_lock(&s->w->lock);
	s->w->sides[rank].state = SIDE_NONE; /* not its fault: another try may follow */
	tell_news(s->w);
	pthread_mutex_unlock(&s->w->lock);
	if (l) {
		line_free(l);
		s->count--;
	}
}

/* Makes the calls that others want. */
static void make_calls(struct side_lines *s)
{
	struct world *w = s->w;
	pthread_mutex_lock(&w->lock);
	bool wanted = w->side_wanted;
	w->side_wanted = false;
	pthread_mutex_unlock(&w->lock);
	if (!wanted)
		return;
	bool *there = calloc((size_t)w->size, sizeof *there);
	if (!there)
		return;
	for (int i = 0; i < s->count; i++)
		there[s->line[i]->peer] = true;
	for (int r = 0; r < w->size; r++) {
		pthread_mutex_lock(&w->lock);
		bool called = w->sides[r].state == SIDE_CALLED;
		pthread_mutex_unlock(&w->lock);
		if (called && !there[r])
			call(s, r);
	}
	free(there);
}

enum call { CALL_ON, CALL_REFUSED, CALL_FAILED };

/* An acceptor hears only so many at a time, and strangers may have crowded this call out; whoever
 * has ended refuses connections, so another try tells. */
static enum call call_step(struct side_lines *s, struct line *l, int *error)
{
	struct err e = ERR_INIT;
	int rc = comm_handshake_step(l->greeting, &e);
	if (rc > 0) {
		struct records *records;
		int fd = comm_handshake_finish(l->greeting, &records);
		line_connected(s, l, fd, records);
	}
	if (rc >= 0)
		return CALL_ON;
	*error = comm_handshake_errno(l->greeting);
	if (!comm_handshake_connected(l->greeting) || e.code != ERR_NET)
		return CALL_REFUSED; /* nobody listens there, or somebody else */
	comm_handshake_free(l->greeting);
	l->greeting = NULL;
	return l->shut_out++ < SHUT_OUT_MOST && call_begin(s, l, NULL) == 0 ? CALL_ON : CALL_FAILED;
}

/* --- Notes in --- */

static void heard_answer(struct world *w, int peer, const struct note *n)
{
	pthread_mutex_lock(&w->lock);
	struct side *s = &w->sides[peer];
	if (n->turn - s->answered <= s->asked - s->answered) {
		s->answered = n->turn;
		s->waits_for = n->rank >= 0 && n->rank < w->size ? n->rank : -1;
	}
	pthread_cond_broadcast(&w->news);
	pthread_mutex_unlock(&w->lock);
}

static void heard_words(struct world *w, int peer, bool last)
{
	pthread_mutex_lock(&w->lock);
	w->sides[peer].failed |= last;
	tell_news(w);
	pthread_mutex_unlock(&w->lock);
}

static void heard_left(struct world *w, int peer)
{
	pthread_mutex_lock(&w->lock);
	w->sides[peer].left = true;
	pthread_mutex_unlock(&w->lock);
}

/* false: no note of this world. */
static bool hear_note(struct side_lines *s, struct line *l)
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
		heard_answer(s->w, l->peer, n);
		return true;
	case NOTE_HEARD:
	case NOTE_FAILED:
		if (n->rank < 0 || n->rank >= s->w->size)
			return false;
		n->text[NOTE_TEXT - 1] = '\0';
		human_plain(n->text); /* it comes from outside, and goes into an error */
		comm_world_hear(s->w, n->rank, n->text);
		heard_words(s->w, l->peer, n->kind == NOTE_FAILED);
		return true;
	case NOTE_LEFT:
		heard_left(s->w, l->peer);
		return true;
	}
	return false;
}

/* As recv without waiting, and errno. */
static ssize_t line_recv(struct line *l, void *to, size_t bytes)
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

static ssize_t line_send(struct line *l, void *from, size_t bytes)
{
	if (!l->records)
		return send(l->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	ssize_t n = comm_records_put(l->records, l->fd, &(struct iovec){ from, bytes }, 1);
	if (n == 0)
		errno = EAGAIN;
	return n > 0 ? n : -1;
}

/* Reads what is there; 0, -1 with *error at the line's end. */
static int line_get(struct side_lines *s, struct line *l, int *error)
{
	for (;;) {
		ssize_t n = line_recv(l, (char *)&l->in + l->got, sizeof l->in - l->got);
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
		if (!hear_note(s, l))
			return -1;
	}
}

/* --- Notes out --- */

static void write_note(struct line *l, enum note_kind kind)
{
	l->out = (struct note){ .magic = NOTE_MAGIC, .kind = kind, .rank = -1 };
	l->put = 0;
}

static void write_words(struct line *l, enum note_kind kind, const struct world *w)
{
	_Static_assert(sizeof w->words == NOTE_TEXT, "all of the words, and no more");
	write_note(l, kind);
	l->out.rank = w->speaker;
	memcpy(l->out.text, w->words, sizeof l->out.text);
}

/* Chooses what is to be said next: last words before all else; false: nothing. */
static bool next_note(struct side_lines *s, struct line *l)
{
	struct world *w = s->w;
	struct side *side = &w->sides[l->peer];
	if (l->last)
		return false;
	if (world_failed(w)) {
		l->last = true;
		write_words(l, NOTE_FAILED, w);
		return true;
	}
	if (l->answer && atomic_load(&w->told)) {
		l->answer = false;
		write_words(l, NOTE_HEARD, w);
		return true;
	}
	if (l->answer) {
		l->answer = false;
		write_note(l, NOTE_ANSWER);
		l->out.turn = l->turn;
		l->out.rank = waits_for(w, l->group);
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

/* Sends what goes; 0, -1 with *error. */
static int line_put(struct side_lines *s, struct line *l, int *error)
{
	while (l->put < sizeof l->out || next_note(s, l)) {
		ssize_t n = line_send(l, (char *)&l->out + l->put, sizeof l->out - l->put);
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

/* The other rank has not ended: what it says does not come as it said it. */
static void fail_broken(struct side_lines *s, const struct line *l)
{
	struct world *w = s->w;
	struct err why = ERR_INIT;
	err_set(&why, ERR_NET,
		"a note from world rank %d on host %s at %s came to world rank %d on host %s "
		"broken: it was changed, dropped, "
		"repeated or moved on the way ([network] integrity = %s). If it comes again, test "
		"both hosts' memory and network "
		"adapters, and the switch and cables between them",
		l->peer, w->peers[l->peer].host, w->peers[l->peer].address, w->rank,
		w->peers[w->rank].host, comm_integrity_name(w->integrity));
	comm_world_fail(w, &why);
}

/* Moves what goes without waiting on line i, which may end. */
static void line_work(struct side_lines *s, int i)
{
	struct line *l = s->line[i];
	int error = 0;
	enum call call = l->fd < 0 ? call_step(s, l, &error) : CALL_ON;
	if (call != CALL_ON)
		line_end(s, i, call == CALL_REFUSED, error);
	else if (l->fd >= 0 && (line_get(s, l, &error) < 0 || line_put(s, l, &error) < 0)) {
		if (error == EBADMSG)
			fail_broken(s, l);
		line_end(s, i, true, error);
	}
}

/* --- For the acceptor --- */

struct side_lines *comm_side_lines_new(struct world *w)
{
	struct side_lines *s = calloc(1, sizeof *s);
	if (s)
		s->w = w;
	return s;
}

void comm_side_adopt(struct side_lines *s, int fd, struct records *records, int rank)
{
	struct line *l = line_new(s, rank);
	if (l) {
		line_connected(s, l, fd, records);
	} else {
		close(fd);
		comm_records_free(records);
	}
}

int comm_side_count(const struct side_lines *s)
{
	return s->count;
}

void comm_side_polls(const struct side_lines *s, struct pollfd *p)
{
	for (int i = 0; i < s->count; i++) {
		const struct line *l = s->line[i];
		if (l->greeting)
			comm_handshake_poll(l->greeting, &p[i]);
		else
			p[i] = (struct pollfd){
				.fd = l->fd,
				.events = (short)(POLLIN | (l->put < sizeof l->out ? POLLOUT : 0))
			};
	}
}

void comm_side_work(struct side_lines *s)
{
	make_calls(s);
	/* From the last on: what is dropped moves only what was looked at. */
	for (int i = s->count - 1; i >= 0; i--)
		line_work(s, i);
}

bool comm_side_calling(const struct side_lines *s)
{
	for (int i = 0; i < s->count; i++)
		if (s->line[i]->greeting)
			return true;
	return false;
}

void comm_side_lines_free(struct side_lines *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->count; i++) {
		struct line *l = s->line[i];
		int error;
		if (l->fd >= 0 && !world_failed(s->w) && l->put == sizeof l->out)
			write_note(l, NOTE_LEFT);
		if (l->fd >= 0)
			line_put(s, l, &error);
		line_free(l);
	}
	free(s->line);
	free(s);
}
