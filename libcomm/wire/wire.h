/*
 * wire — how the ranks of a world find each other. The main header of libcomm/wire:
 *
 *     card.h        what a rank publishes, through the bootstrap
 *     neighbours.h  whose cards a rank fetches
 *     tree.h        the first ranks of the hosts gather the addresses of all ranks
 *     directory.h   the other ranks of a host get them from its first one, in shared memory
 *     book.h        their form
 *
 * Nothing is fetched through the bootstrap after that, so it may end, and every rank can be reached
 * later without it. What all ranks together fetch grows with their number, not with its square.
 */
#ifndef MUSTER_LIBCOMM_WIRE_WIRE_H
#define MUSTER_LIBCOMM_WIRE_WIRE_H

#include "libcomm/world.h"

struct wire;

/* Collective. Sets w->peers, cards[size] and w->spins, starts to accept other hosts' ranks if there are
 * any, and offers *memfd for the segment of the world (-1: nothing). wakeup: of the world's group. */
int comm_wire_up(struct world *w, const struct comm_bootstrap *boot, const struct comm_options *opt,
		 const struct wakeup_pipe *wakeup, struct card *cards, int *memfd, struct err *e);
/* The ranks of this host have what this one offered: they have met in the world. */
void comm_wire_settle(struct world *w);
/* With the world. Takes NULL. */
void comm_wire_free(struct wire *wire);

#endif
