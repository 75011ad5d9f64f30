/* async — operations that a group's own thread runs, in the order of their starts. */
#ifndef MUSTER_LIBCOMM_ASYNC_H
#define MUSTER_LIBCOMM_ASYNC_H

#include "libcomm/group.h"

/* Starts the group's thread if there is none yet, and queues op; its lists are copied. */
int comm_async_start(struct comm *c, const struct op *op, struct comm_request **req, struct err *e);
/* Ends what is under way, if anything is, and the thread; frees the requests that nobody has
 * waited for. */
void comm_worker_close(struct comm *c);

#endif
