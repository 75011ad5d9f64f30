/* async — operations that run in the order of their starts: on the group's own thread, or, if
 * a device's library runs them, queued there by the caller's thread. */
#ifndef MUSTER_LIBCOMM_ASYNC_H
#define MUSTER_LIBCOMM_ASYNC_H

#include "libcomm/group.h"

/* Starts op, and the group's thread if it needs one. The op's lists are copied. */
int comm_async_start(struct comm *c, const struct op *op, struct comm_request **req, struct err *e);
/* Ends the operation in progress, if there is one, and the thread. Frees the requests that nobody
 * has waited for. */
void comm_worker_close(struct comm *c);

#endif
