/*
 * oob — out-of-band connections: TCP connections that carry what ranks exchange besides their data.
 *
 * Two ranks that have a TCP endpoint, or one rank that waits for another, have one more connection,
 * regardless of the number of their groups. It carries notes:
 *
 *     ask      whom do you wait for? The other rank's acceptor thread answers, whatever its
 *              program does
 *     answer   a rank, or
 *     cause    the first error of some rank's world
 *     failed   last note: the first error of the sender's world
 *     left     last note: the sender has closed its world in good order
 *
 * Every rank that is reached over any number of others therefore reports what happened first. A
 * connection that ends without a last note means that the process died. Notes are ordered:
 * everything that a rank sent before it was asked has arrived when its answer arrives. The kernel
 * probes the other end (net_guard), so that a cut network is detected too. The data connections
 * cannot be probed like this, because a receiver may leave data waiting as long as it likes.
 *
 * With [network] integrity the notes are checked or sealed like data; a broken one ends its
 * connection.
 *
 * The connections belong to the acceptor's thread. w->oob_peers, what is known of each rank, is
 * under the world's lock. Connections are made when they are first needed: ranks that never
 * communicate know nothing of each other.
 */
#ifndef MUSTER_LIBCOMM_TCP_OOB_H
#define MUSTER_LIBCOMM_TCP_OOB_H

#include "libcomm/world.h"

#include <poll.h>

enum oob_state {
	OOB_NONE,       /* no connection, and none requested */
	OOB_CONNECTING, /* this rank is connecting */
	OOB_UP,
	OOB_GONE, /* ended or refused: the process is gone */
};

struct oob_peer {
	enum oob_state state;
	bool met;                       /* a connection was up once */
	int connections;                /* connections that are up: both ranks may have connected */
	bool failed, left;              /* its last note */
	_Atomic bool silent;            /* it no longer answers the kernel */
	uint32_t asked, sent, answered; /* numbers of questions */
	uint64_t group;                 /* of the last question */
	int waits_for;                  /* the last answer: a world rank; -1: nobody */
};

/* --- Any thread, under the world's lock ------------------------------------------------------- */

/* Requests a connection, unless there is one, one is being made, or the last one has ended. */
void comm_oob_request(struct world *w, int rank);
/* Asks whom the rank waits for, in `group` if it waits there. The answer has come when `answered`
 * reaches the returned number; w->peers_changed signals every change. */
uint32_t comm_oob_ask(struct world *w, int rank, uint64_t group);

/* --- The acceptor's thread -------------------------------------------------------------------- */

struct oob;
struct records;

struct oob *comm_oob_new(struct world *w);
/* Sends the last note on every connection and closes it. Takes NULL. */
void comm_oob_free(struct oob *oob);
/* Takes over an authenticated connection that `rank` made, with its records. */
void comm_oob_adopt(struct oob *oob, int fd, struct records *records, int rank);
/* How many descriptors comm_oob_set_polls sets. */
int comm_oob_poll_count(const struct oob *oob);
void comm_oob_set_polls(const struct oob *oob, struct pollfd *p);
/* Makes the requested connections and moves every note that needs no waiting. */
void comm_oob_progress(struct oob *oob);
/* Whether a connection is being made, so that its rank may still receive the last note. */
bool comm_oob_is_connecting(const struct oob *oob);

#endif
