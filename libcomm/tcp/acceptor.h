/*
 * acceptor — a thread that lets the world's ranks in, and nobody else.
 *
 * It sleeps unless somebody knocks. A connection has half a minute to prove itself; strangers are
 * closed, those of another user of this host at once, and however many knock, only so many are
 * heard at a time: a few, and each rank for a link's lanes and beside it. Proven links wait in
 * w->arrivals for the group they belong to; side connections (side.h) are this thread's. It goes on
 * when the world has failed, until it is closed, to tell why.
 *
 * Descriptors: a rank holds a listener, one side connection for each rank that it exchanges
 * messages with over the network, and w->sockets for each such rank in each group. The algorithms
 * of large groups reach few ranks (trees, rings); an all_to_all reaches all, so over n hosts it
 * needs `ulimit -n` above n times (1 + sockets).
 */
#ifndef MUSTER_LIBCOMM_TCP_ACCEPTOR_H
#define MUSTER_LIBCOMM_TCP_ACCEPTOR_H

#include "libcomm/world.h"

struct records;

int comm_acceptor_open(struct world *w, struct err *e);
void comm_acceptor_close(struct world *w);
/* The descriptor of a lane's connection from world rank `from` for a group, or -1; *coming when
 * there is one, though it may not have proven itself yet. *records comes with it. */
int comm_acceptor_take(struct world *w, uint64_t group, int from, int lane, bool *coming,
		       struct records **records);
/* Calls for a round of hearing all guests; how many there have been. What a peer said before the
 * first of two calls has been heard when the second one gives two more than it. */
uint32_t comm_acceptor_count_rounds(struct world *w);
/* Ends all waiting connections and has the last words said. Under the world's lock. */
void comm_acceptor_interrupt(struct world *w);
/* Lets the thread look for what side.h wants of it. */
void comm_acceptor_wake(struct world *w);

#endif
