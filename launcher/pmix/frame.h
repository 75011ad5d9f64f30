/*
 * frame — what the process of the PMIx server (server.h) and its owner send each other over a pair of
 * connected sockets.
 *
 *     u32 length, in the byte order of the host; u8 type; that many bytes
 *
 *     type    sender   bytes
 *     READY   server   the environment of each rank of this node: its variables, each ended by a
 *                      NUL, and an empty string
 *     FAILED  server   the text of the error
 *     FENCE   server   what the ranks of this node have put; only if there are several nodes
 *     FENCED  owner    what the ranks of all nodes have put: the answer to the oldest open fence
 */
#ifndef MUSTER_LAUNCHER_PMIX_FRAME_H
#define MUSTER_LAUNCHER_PMIX_FRAME_H

#include "base/buf.h"

#include <stdbool.h>

enum local_frame {
	LOCAL_FRAME_READY = 'r',
	LOCAL_FRAME_FAILED = 'f',
	LOCAL_FRAME_FENCE = 'x',
	LOCAL_FRAME_FENCED = 'X'
};

/* Appends a frame; check buf_failed() afterwards. */
void local_frame_add(struct buf *out, enum local_frame type, const void *data, size_t len);
/* Whether `in` begins with a whole frame, which is then described by *type, *data (within `in`) and
 * *len. */
bool local_frame_peek(struct buf *in, enum local_frame *type, char **data, size_t *len);
/* Removes the frame that local_frame_peek() has described. */
void local_frame_drop(struct buf *in);
/* Receives bytes without waiting. 1: some have come. 0: none. -1: the other end is gone, or errno is
 * set. */
int local_frame_receive(int fd, struct buf *in);

#endif
