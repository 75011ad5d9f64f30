/* async — operations that run in the order of their starts: on the group's own thread, or, if
 * a device's library runs them, queued there by the caller's thread. */
#ifndef MUSTER_LIBCOMM_ASYNC_H
#define MUSTER_LIBCOMM_ASYNC_H

#include "libcomm/group.h"

/* Starts n operations, which are one request, and the group's thread if it needs one. The ops and
 * their lists are copied. The first op has the mark of all. */
int comm_async_start(struct comm *c, const struct op *ops, int n, struct comm_request **req,
		     struct err *e);
/* Ends the operation in progress, if there is one, and the thread. Frees the requests that nobody
 * has waited for. */
void comm_worker_close(struct comm *c);

#endif
