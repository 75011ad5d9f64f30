#include "libcomm/tcp/oob_notes.h"

#include "libcomm/group.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/tcp/records.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRIES_MAX = 100 };

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
	struct oob_peer *p = &w->oob_peers[rank];
	comm_oob_request(w, rank);
	p->group = group;
	request_progress(w);
	return ++p->asked;
}

/* --- Connections ------------------------------------------------------------------------------ */

static struct oob_connection *new_connection(struct oob *oob, int peer)
{
	if (oob->count == oob->room) {
		int room = oob->room ? 2 * oob->room : 8;
		struct oob_connection **more = realloc(oob->connection,
						       (size_t)room * sizeof *more);
		if (!more)
			return NULL;
		oob->connection = more;
		oob->room = room;
	}
	struct oob_connection *conn = calloc(1, sizeof *conn);
	if (!conn)
		return NULL;
	conn->peer = peer;
	conn->fd = -1;
	conn->put = sizeof conn->out;
	oob->connection[oob->count++] = conn;
	return conn;
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

static void free_connection(struct oob_connection *conn)
{
	comm_handshake_free(conn->handshake);
	if (conn->fd >= 0)
		hang_up(conn->fd);
	comm_records_free(conn->records);
	free(conn);
}

/* Called when the connection is authenticated. */
static void finish_connect(struct oob *oob, struct oob_connection *conn, int fd,
			   struct records *records)
{
	struct world *w = oob->w;
	conn->records = records;
	conn->fd = fd;
	conn->handshake = NULL;
	net_guard(fd, w->silence_s, NULL);
	pthread_mutex_lock(&w->lock);
	w->oob_peers[conn->peer].connections++;
	w->oob_peers[conn->peer].state = OOB_UP;
	w->oob_peers[conn->peer].met = true;
	pthread_mutex_unlock(&w->lock);
}

static bool means_silence(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

/* Ends connection i. gone: its end means that the process is gone. */
static void end_connection(struct oob *oob, int i, bool gone, int error)
{
	struct world *w = oob->w;
	struct oob_connection *conn = oob->connection[i];
	struct oob_peer *side = &w->oob_peers[conn->peer];
	pthread_mutex_lock(&w->lock);
	if (conn->fd >= 0)
		side->connections--;
	if (!side->connections) {
		side->state = gone ? OOB_GONE : OOB_NONE;
		if (means_silence(error))
			atomic_store(&side->silent, true);
		comm_oob_announce(w);
	}
	pthread_mutex_unlock(&w->lock);
	free_connection(conn);
	oob->connection[i] = oob->connection[--oob->count];
}

/* --- Connecting ------------------------------------------------------------------------------- */

static int start_connect(struct oob *oob, struct oob_connection *conn, struct err *e)
{
	struct hello what = { .kind = HELLO_OOB, .to = (uint32_t)conn->peer };
	if (comm_handshake_connect(oob->w, &what, &conn->handshake, e))
		return -1;
	return net_guard(comm_handshake_fd(conn->handshake), oob->w->silence_s, e);
}

static void connect_to(struct oob *oob, int rank)
{
	struct oob_connection *conn = new_connection(oob, rank);
	if (conn && start_connect(oob, conn, NULL) == 0)
		return;
	pthread_mutex_lock(&oob->w->lock);
	oob->w->oob_peers[rank].state = OOB_NONE; /* this does not concern the rank: another attempt
						 * may follow */
	comm_oob_announce(oob->w);
	pthread_mutex_unlock(&oob->w->lock);
	if (conn) {
		free_connection(conn);
		oob->count--;
	}
}

/* Makes the connections that other threads requested. */
static void make_connections(struct oob *oob)
{
	struct world *w = oob->w;
	pthread_mutex_lock(&w->lock);
	bool wanted = w->oob_wanted;
	w->oob_wanted = false;
	pthread_mutex_unlock(&w->lock);
	if (!wanted)
		return;
	bool *there = calloc((size_t)w->size, sizeof *there);
	if (!there)
		return;
	for (int i = 0; i < oob->count; i++)
		there[oob->connection[i]->peer] = true;
	for (int r = 0; r < w->size; r++) {
		pthread_mutex_lock(&w->lock);
		bool called = w->oob_peers[r].state == OOB_CONNECTING;
		pthread_mutex_unlock(&w->lock);
		if (called && !there[r])
			connect_to(oob, r);
	}
	free(there);
}

enum connect_state { CONNECT_CONTINUES, CONNECT_REFUSED, CONNECT_FAILED };

/* The other end accepted the connection and then closed it: an acceptor keeps only a limited number
 * of pending connections, and strangers may have displaced this one. A process that has ended
 * refuses connections, so another attempt decides. */
static enum connect_state step_connect(struct oob *oob, struct oob_connection *conn, int *error)
{
	struct err e = ERR_INIT;
	int rc = comm_handshake_step(conn->handshake, &e);
	if (rc > 0) {
		struct records *records;
		int fd = comm_handshake_finish(conn->handshake, &records);
		finish_connect(oob, conn, fd, records);
	}
	if (rc >= 0)
		return CONNECT_CONTINUES;
	*error = comm_handshake_errno(conn->handshake);
	if (!comm_handshake_connected(conn->handshake) || e.code != ERR_NET)
		return CONNECT_REFUSED; /* nobody listens there, or a stranger */
	comm_handshake_free(conn->handshake);
	conn->handshake = NULL;
	return conn->retries++ < RETRIES_MAX && start_connect(oob, conn, NULL) == 0
		       ? CONNECT_CONTINUES
		       : CONNECT_FAILED;
}
/* The other rank has not ended: its note was damaged on the way. */
static void report_broken(struct oob *oob, const struct oob_connection *conn)
{
	struct world *w = oob->w;
	struct err why = ERR_INIT;
	err_set(&why, ERR_NET,
		"a note from world rank %d on host %s at %s came to world rank %d on host %s "
		"broken: it was changed, dropped, "
		"repeated or moved on the way ([network] integrity = %s). If it comes again, test "
		"both hosts' memory and network "
		"adapters, and the switch and cables between them",
		conn->peer, world_host(w, conn->peer),
		w->peers[conn->peer].address ? w->peers[conn->peer].address : "?", w->rank,
		w->peers[w->rank].host, comm_integrity_name(w->integrity));
	comm_world_fail(w, &why);
}

/* Progresses connection i as far as possible without waiting. The connection may end. */
static void progress_connection(struct oob *oob, int i)
{
	struct oob_connection *conn = oob->connection[i];
	int error = 0;
	enum connect_state call = conn->fd < 0 ? step_connect(oob, conn, &error)
					       : CONNECT_CONTINUES;
	if (call != CONNECT_CONTINUES)
		end_connection(oob, i, call == CONNECT_REFUSED, error);
	else if (conn->fd >= 0 && (comm_oob_receive_notes(oob->w, conn, &error) < 0 ||
				   comm_oob_send_notes(oob->w, conn, &error) < 0)) {
		if (error == EBADMSG)
			report_broken(oob, conn);
		end_connection(oob, i, true, error);
	}
}

/* --- For the acceptor ------------------------------------------------------------------ */

struct oob *comm_oob_new(struct world *w)
{
	struct oob *oob = calloc(1, sizeof *oob);
	if (oob)
		oob->w = w;
	return oob;
}

void comm_oob_adopt(struct oob *oob, int fd, struct records *records, int rank)
{
	struct oob_connection *conn = new_connection(oob, rank);
	if (conn) {
		finish_connect(oob, conn, fd, records);
	} else {
		close(fd);
		comm_records_free(records);
	}
}

int comm_oob_poll_count(const struct oob *oob)
{
	return oob->count;
}

void comm_oob_set_polls(const struct oob *oob, struct pollfd *p)
{
	for (int i = 0; i < oob->count; i++) {
		const struct oob_connection *conn = oob->connection[i];
		if (conn->handshake)
			comm_handshake_poll(conn->handshake, &p[i]);
		else
			p[i] = (struct pollfd){
				.fd = conn->fd,
				.events = (short)(POLLIN |
						  (comm_oob_is_sending(conn) ? POLLOUT : 0))
			};
	}
}

void comm_oob_progress(struct oob *oob)
{
	make_connections(oob);
	/* The loop goes from the last entry down: removing an entry moves only entries already
	 * visited. */
	for (int i = oob->count - 1; i >= 0; i--)
		progress_connection(oob, i);
}

bool comm_oob_is_connecting(const struct oob *oob)
{
	for (int i = 0; i < oob->count; i++)
		if (oob->connection[i]->handshake)
			return true;
	return false;
}

void comm_oob_free(struct oob *oob)
{
	if (!oob)
		return;
	for (int i = 0; i < oob->count; i++) {
		struct oob_connection *conn = oob->connection[i];
		int error;
		if (conn->fd >= 0 && !world_failed(oob->w))
			comm_oob_say_goodbye(conn);
		if (conn->fd >= 0)
			comm_oob_send_notes(oob->w, conn, &error);
		free_connection(conn);
	}
	free(oob->connection);
	free(oob);
}
