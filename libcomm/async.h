/* async — operations that a group's own thread runs, in the order of their starts. */
#ifndef MUSTER_LIBCOMM_ASYNC_H
#define MUSTER_LIBCOMM_ASYNC_H

#include "libcomm/group.h"

/* Queues op, and starts the group's thread if there is none yet. The op's lists are copied. */
int comm_async_start(struct comm *c, const struct op *op, struct comm_request **req, struct err *e);
/* Ends the operation in progress, if there is one, and the thread. Frees the requests that nobody
 * has waited for. */
void comm_worker_close(struct comm *c);

#endif
