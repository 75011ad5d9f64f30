#include "libcomm/tcp/oob_notes.h"

#include "libcomm/group.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/tcp/records.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRIES_MOST = 100 };

struct oob {
	struct world *w;
	struct oob_connection **connection;
	int count, room;
};

/* --- State of a rank -------------------------------------------------------------------------- */

static void request_progress(struct world *w)
{
	w->oob_wanted = true;
	comm_acceptor_wake(w);
}

void comm_oob_request(struct world *w, int rank)
{
	if (w->oob_peers[rank].state != OOB_NONE)
		return;
	w->oob_peers[rank].state = OOB_CONNECTING;
	request_progress(w);
}

uint32_t comm_oob_ask(struct world *w, int rank, uint64_t group)
{
	struct oob_peer *s = &w->oob_peers[rank];
	comm_oob_request(w, rank);
	s->group = group;
	request_progress(w);
	return ++s->asked;
}

/* --- Connections ------------------------------------------------------------------------------ */

static struct oob_connection *new_connection(struct oob *s, int peer)
{
	if (s->count == s->room) {
		int room = s->room ? 2 * s->room : 8;
		struct oob_connection **more = realloc(s->connection, (size_t)room * sizeof *more);
		if (!more)
			return NULL;
		s->connection = more;
		s->room = room;
	}
	struct oob_connection *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->peer = peer;
	l->fd = -1;
	l->put = sizeof l->out;
	s->connection[s->count++] = l;
	return l;
}

/* Unread data would turn the close into a reset, which could overtake the last note. */
static void hang_up(int fd)
{
	char rest[512];
	shutdown(fd, SHUT_WR);
	while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
		continue;
	close(fd);
}

static void free_connection(struct oob_connection *l)
{
	comm_handshake_free(l->handshake);
	if (l->fd >= 0)
		hang_up(l->fd);
	comm_records_free(l->records);
	free(l);
}

/* Called when the connection is authenticated. */
static void finish_connect(struct oob *s, struct oob_connection *l, int fd, struct records *records)
{
	struct world *w = s->w;
	l->records = records;
	l->fd = fd;
	l->handshake = NULL;
	net_guard(fd, w->silence_s, NULL);
	pthread_mutex_lock(&w->lock);
	w->oob_peers[l->peer].connections++;
	w->oob_peers[l->peer].state = OOB_UP;
	w->oob_peers[l->peer].met = true;
	pthread_mutex_unlock(&w->lock);
}

static bool means_silence(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

/* Ends connection i. gone: its end means that the process is gone. */
static void end_connection(struct oob *s, int i, bool gone, int error)
{
	struct world *w = s->w;
	struct oob_connection *l = s->connection[i];
	struct oob_peer *side = &w->oob_peers[l->peer];
	pthread_mutex_lock(&w->lock);
	if (l->fd >= 0)
		side->connections--;
	if (!side->connections) {
		side->state = gone ? OOB_GONE : OOB_NONE;
		if (means_silence(error))
			atomic_store(&side->silent, true);
		comm_oob_announce(w);
	}
	pthread_mutex_unlock(&w->lock);
	free_connection(l);
	s->connection[i] = s->connection[--s->count];
}

/* --- Connecting ------------------------------------------------------------------------------- */

static int start_connect(struct oob *s, struct oob_connection *l, struct err *e)
{
	struct hello what = { .kind = HELLO_OOB, .to = (uint32_t)l->peer };
	if (comm_handshake_connect(s->w, &what, &l->handshake, e))
		return -1;
	return net_guard(comm_handshake_fd(l->handshake), s->w->silence_s, e);
}

static void connect_to(struct oob *s, int rank)
{
	struct oob_connection *l = new_connection(s, rank);
	if (l && start_connect(s, l, NULL) == 0)
		return;
	pthread_mutex_lock(&s->w->lock);
	s->w->oob_peers[rank].state = OOB_NONE; /* this does not concern the rank: another attempt
						 * may follow */
	comm_oob_announce(s->w);
	pthread_mutex_unlock(&s->w->lock);
	if (l) {
		free_connection(l);
		s->count--;
	}
}

/* Makes the connections that other threads requested. */
static void make_connections(struct oob *s)
{
	struct world *w = s->w;
	pthread_mutex_lock(&w->lock);
	bool wanted = w->oob_wanted;
	w->oob_wanted = false;
	pthread_mutex_unlock(&w->lock);
	if (!wanted)
		return;
	bool *there = calloc((size_t)w->size, sizeof *there);
	if (!there)
		return;
	for (int i = 0; i < s->count; i++)
		there[s->connection[i]->peer] = true;
	for (int r = 0; r < w->size; r++) {
		pthread_mutex_lock(&w->lock);
		bool called = w->oob_peers[r].state == OOB_CONNECTING;
		pthread_mutex_unlock(&w->lock);
		if (called && !there[r])
			connect_to(s, r);
	}
	free(there);
}

enum connect_state { CONNECT_CONTINUES, CONNECT_REFUSED, CONNECT_FAILED };

/* The other end accepted the connection and then closed it: an acceptor keeps only a limited number
 * of pending connections, and strangers may have displaced this one. A process that has ended
 * refuses connections, so another attempt decides. */
static enum connect_state step_connect(struct oob *s, struct oob_connection *l, int *error)
{
	struct err e = ERR_INIT;
	int rc = comm_handshake_step(l->handshake, &e);
	if (rc > 0) {
		struct records *records;
		int fd = comm_handshake_finish(l->handshake, &records);
		finish_connect(s, l, fd, records);
	}
	if (rc >= 0)
		return CONNECT_CONTINUES;
	*error = comm_handshake_errno(l->handshake);
	if (!comm_handshake_connected(l->handshake) || e.code != ERR_NET)
		return CONNECT_REFUSED; /* nobody listens there, or a stranger */
	comm_handshake_free(l->handshake);
	l->handshake = NULL;
	return l->retries++ < RETRIES_MOST && start_connect(s, l, NULL) == 0 ? CONNECT_CONTINUES
									     : CONNECT_FAILED;
}
/* The other rank has not ended: its note was damaged on the way. */
static void report_broken(struct oob *s, const struct oob_connection *l)
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

/* Progresses connection i as far as possible without waiting. The connection may end. */
static void progress_connection(struct oob *s, int i)
{
	struct oob_connection *l = s->connection[i];
	int error = 0;
	enum connect_state call = l->fd < 0 ? step_connect(s, l, &error) : CONNECT_CONTINUES;
	if (call != CONNECT_CONTINUES)
		end_connection(s, i, call == CONNECT_REFUSED, error);
	else if (l->fd >= 0 && (comm_oob_receive_notes(s->w, l, &error) < 0 ||
				comm_oob_send_notes(s->w, l, &error) < 0)) {
		if (error == EBADMSG)
			report_broken(s, l);
		end_connection(s, i, true, error);
	}
}

/* --- For the acceptor ------------------------------------------------------------------ */

struct oob *comm_oob_new(struct world *w)
{
	struct oob *s = calloc(1, sizeof *s);
	if (s)
		s->w = w;
	return s;
}

void comm_oob_adopt(struct oob *s, int fd, struct records *records, int rank)
{
	struct oob_connection *l = new_connection(s, rank);
	if (l) {
		finish_connect(s, l, fd, records);
	} else {
		close(fd);
		comm_records_free(records);
	}
}

int comm_oob_poll_count(const struct oob *s)
{
	return s->count;
}

void comm_oob_set_polls(const struct oob *s, struct pollfd *p)
{
	for (int i = 0; i < s->count; i++) {
		const struct oob_connection *l = s->connection[i];
		if (l->handshake)
			comm_handshake_poll(l->handshake, &p[i]);
		else
			p[i] = (struct pollfd){
				.fd = l->fd,
				.events = (short)(POLLIN | (comm_oob_is_sending(l) ? POLLOUT : 0))
			};
	}
}

void comm_oob_progress(struct oob *s)
{
	make_connections(s);
	/* The loop goes from the last entry down: removing an entry moves only entries already
	 * visited. */
	for (int i = s->count - 1; i >= 0; i--)
		progress_connection(s, i);
}

bool comm_oob_is_connecting(const struct oob *s)
{
	for (int i = 0; i < s->count; i++)
		if (s->connection[i]->handshake)
			return true;
	return false;
}

void comm_oob_free(struct oob *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->count; i++) {
		struct oob_connection *l = s->connection[i];
		int error;
		if (l->fd >= 0 && !world_failed(s->w))
			comm_oob_say_goodbye(l);
		if (l->fd >= 0)
			comm_oob_send_notes(s->w, l, &error);
		free_connection(l);
	}
	free(s->connection);
	free(s);
}
