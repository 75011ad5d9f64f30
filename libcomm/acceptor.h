/*
 * acceptor — a thread that lets the world's ranks in, and nobody else.
 *
 * It sleeps unless somebody knocks. A connection has half a minute to prove
 * itself; strangers are closed, and however many knock, only so many are heard
 * at a time. Proven ones wait in w->arrivals for the group they belong to.
 */
#ifndef MUSTER_LIBCOMM_ACCEPTOR_H
#define MUSTER_LIBCOMM_ACCEPTOR_H

#include "libcomm/world.h"

int acceptor_open(struct world *w, struct err *e);
void acceptor_close(struct world *w);
/* The descriptor of the connection from world rank `from` for a group, or -1; *coming when there is one, though it may
 * not have proven itself yet. */
int acceptor_take(struct world *w, uint64_t group, int from, bool *coming);
/* Calls for a round of hearing all guests; how many there have been. What a peer said before the first of two calls has
 * been heard when the second one gives two more than it. */
uint32_t acceptor_rounds(struct world *w);
/* Ends all waiting and watching connections. Under the world's lock. */
void acceptor_cut(struct world *w);

#endif
