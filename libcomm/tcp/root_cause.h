/*
 * verdict — who is to blame when an operation fails.
 *
 * A rank that waits for another in vain, or finds its connection closed, knows only that one; but
 * that one may itself wait for a third, or have given up because of it. So it asks, over the side
 * connections of side.h: whoever gave up answers with its last words, whoever waits names the rank
 * it waits for, which is asked next, and whoever has died answers by the end of its connection.
 */
#ifndef MUSTER_LIBCOMM_TCP_ROOT_CAUSE_H
#define MUSTER_LIBCOMM_TCP_ROOT_CAUSE_H

#include "libcomm/group.h"

/* Finds out what is behind `why`, with which the operation blames world rank c->wait.accused: *why
 * becomes the first error of the world, if one comes, or names the rank at the end of the chain.
 * Takes a quarter of the time-out at most, and never more than half a second; nothing where no
 * network is used. */
void comm_root_cause_find(struct comm *c, struct err *why);

#endif
