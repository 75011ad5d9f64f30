/*
 * side — what ranks tell each other beside their data, over TCP.
 *
 * Two ranks that have a TCP link, or one that waits for another, have one more
 * connection, whatever the number of their groups. It carries notes:
 *
 *     ask     what do you wait for? Answered by the other's acceptor thread, whatever its program
 *             does
 *     answer  with a rank, or
 *     heard   with the words of a rank whose world has failed
 *     failed  last words: the first error of the sender's world
 *     left    last words: the sender has closed its world in good order
 *
 * So every rank that is reached over any number of others names what happened first. A connection
 * that ends without a last note is a process that died. Notes are in order: what a rank said before
 * it was asked has come when its answer comes. The kernel asks the other end for life (net_guard),
 * so that a cut line is seen as well; the data's own connections cannot be watched so, as a
 * receiver may rightly leave data waiting for as long as it likes.
 *
 * With [network] integrity the notes are checked or sealed as the data is; a broken one ends its
 * connection.
 *
 * The connections belong to the acceptor's thread; w->sides, what it knows of
 * each rank, is under the world's lock. Nothing is connected before it is
 * needed: ranks that never talk know nothing of each other.
 */
#ifndef MUSTER_LIBCOMM_TCP_OOB_H
#define MUSTER_LIBCOMM_TCP_OOB_H

#include "libcomm/world.h"

#include <poll.h>

enum oob_state {
	OOB_NONE,       /* nobody has called */
	OOB_CONNECTING, /* this rank is calling */
	OOB_UP,
	OOB_GONE, /* ended, or refused: the rank is no more */
};

struct oob_peer {
	enum oob_state state;
	bool met;            /* a connection was up once */
	int connections;     /* connections that are up: each of the two may have called */
	bool failed, left;   /* its last words */
	_Atomic bool silent; /* it no longer answers the kernel */
	uint32_t asked, sent, answered; /* questions so far */
	uint64_t group;                 /* of the last question */
	int waits_for;                  /* the last answer: a world rank, -1: for nobody */
};

/* --- Any thread, under the world's lock --- */

/* Wants a connection to it, unless one is there, has been called for or has ended. */
void comm_oob_request(struct world *w, int rank);
/* Asks whom it waits for, in `group` if it is there; the answer has come when `answered` reaches
 * the returned number. w->news tells of every change. */
uint32_t comm_oob_ask(struct world *w, int rank, uint64_t group);

/* --- The acceptor's thread --- */

struct oob;
struct records;

struct oob *comm_oob_new(struct world *w);
/* Says the last note on every line and closes it. Takes NULL. */
void comm_oob_free(struct oob *s);
/* Takes over a connection that `rank` made and proved, and its records. */
void comm_oob_adopt(struct oob *s, int fd, struct records *records, int rank);
/* How many descriptors comm_oob_set_polls sets. */
int comm_oob_poll_count(const struct oob *s);
void comm_oob_set_polls(const struct oob *s, struct pollfd *p);
/* Makes the calls that are wanted and moves every note that goes without waiting. */
void comm_oob_progress(struct oob *s);
/* Some call is under way, to a rank that may still be told the last words. */
bool comm_oob_is_connecting(const struct oob *s);

#endif
