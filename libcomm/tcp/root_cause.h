/*
 * root_cause — which rank an error names when an operation fails.
 *
 * A rank that waits in vain for another one, or finds its connection closed, knows only that one.
 * But that one may itself wait for a third rank, or may have given up because of it. So the rank
 * asks over the out-of-band connections (oob.h): a rank that gave up answers with the first error;
 * a rank that waits names the rank it waits for, which is asked next; a rank that died answers by
 * the end of its connection.
 */
#ifndef MUSTER_LIBCOMM_TCP_ROOT_CAUSE_H
#define MUSTER_LIBCOMM_TCP_ROOT_CAUSE_H

#include "libcomm/group.h"

/* Finds the cause of `why`, in which the operation blames world rank c->wait.accused. *why becomes
 * the first error of the world, if one arrives, or names the rank at the end of the chain. Takes at
 * most a quarter of the time-out, and never more than 0.5 s. Does nothing if no network is used. */
void comm_root_cause_find(struct comm *c, struct err *why);

#endif
