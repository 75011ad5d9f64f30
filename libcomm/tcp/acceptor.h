/*
 * acceptor — the thread that accepts connections of the world's ranks, and of nobody else.
 *
 * It sleeps until a connection or a signal comes. A new connection has 30 s to authenticate.
 * Strangers are disconnected, those of another user of this host at once. The number of
 * unauthenticated connections is limited: a few, plus each rank's lanes and out-of-band connection.
 * Authenticated data connections wait in w->arrivals for their group. Out-of-band connections
 * (oob.h) belong to this thread. It continues after the world has failed, until the world is
 * closed, to report the cause.
 *
 * Descriptors: a rank holds a listener, one out-of-band connection to each rank with which it
 * exchanges messages over the network, and w->sockets connections to each such rank in each group.
 * The algorithms of large groups reach few ranks (trees, rings). An all_to_all reaches all of them,
 * so over n hosts it needs `ulimit -n` above n times (1 + sockets).
 */
#ifndef MUSTER_LIBCOMM_TCP_ACCEPTOR_H
#define MUSTER_LIBCOMM_TCP_ACCEPTOR_H

#include "libcomm/world.h"

struct records;

int comm_acceptor_open(struct world *w, struct err *e);
void comm_acceptor_close(struct world *w);
/* The descriptor of a lane's connection from world rank `from` for a group, with its *records; or
 * -1. *coming: there is such a connection, though it may not have authenticated yet. */
int comm_acceptor_take(struct world *w, uint64_t group, int from, int lane, bool *coming,
		       struct records **records);
/* Starts a round of work on all pending connections and returns the number of rounds so far.
 * Everything that a peer sent before a call has been handled when a later call returns at least 2
 * more. */
uint32_t comm_acceptor_count_rounds(struct world *w);
/* Ends all waiting connections and makes the thread send the cause. Under the world's lock. */
void comm_acceptor_interrupt(struct world *w);
/* Makes the thread check what oob.h wants of it. */
void comm_acceptor_wake(struct world *w);

#endif
