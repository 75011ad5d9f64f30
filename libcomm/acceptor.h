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
/* The descriptor of the connection from world rank `from` for a group, or -1. */
int acceptor_take(struct world *w, uint64_t group, int from);
/* Ends all waiting and watching connections. Under the world's lock. */
void acceptor_cut(struct world *w);

#endif
