/*
 * parts — what ranks put before a fence, as messages helper_part (base/messages.h).
 *
 * A message of the control channel has at most MSG_MAX bytes, so longer data travels in parts. A
 * reader gets them in their order. It trusts nothing: a part of another fence, out of order or of a
 * wrong size is an error.
 */
#ifndef MUSTER_BASE_PARTS_H
#define MUSTER_BASE_PARTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/messages.h"

enum {
	PARTS_BYTES = 256 * 1024, /* of data in each part but the last */
	PARTS_MOST = 2048         /* 512 MiB of data: 8 KiB for each of 65536 ranks */
};

/* The data of one fence while its parts come. All zero: no part of fence 0 has come. */
struct parts {
	int64_t fence; /* the one whose parts are expected */
	int next;      /* the part that is expected */
	int parts;     /* as its first part has said */
	struct buf data;
};

/* Adds a part. 1: the data is complete. 0: further parts follow. -1: ERR_PROTO, or ERR_NOMEM. */
int parts_add(struct parts *p, const struct msg_helper_part *m, struct err *e);
/* Expects the next fence. */
void parts_renew(struct parts *p);
void parts_fini(struct parts *p);

/* The number of parts of data of this length; at least 1. -1: there would be more than
 * PARTS_MOST. */
int parts_count(size_t len);
/* The body of the message of a part, a new reference; NULL: no memory. */
json_t *parts_json(int64_t fence, const struct buf *data, int part);

#endif
