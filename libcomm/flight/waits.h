/*
 * waits — who waits for whom, as far as a trace tells.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_WAITS_H
#define MUSTER_LIBCOMM_FLIGHT_WAITS_H

#include "libcomm/flight/trace.h"

static inline bool op_waits(const struct trace_op *op)
{
	return op->state == RECORD_RUNNING || op->state == RECORD_FAILED;
}

struct wait { /* a place in the list of all waits of a rank; { .rank = … } is before the first */
	int rank;           /* who waits */
	int part, op, peer; /* where the search stands */
	const struct trace_part *in;
	const struct trace_op *what;
	const struct trace_message *message; /* of a send/recv: which one nobody meets */
	int whom;                            /* rank of the world */
};

/* The next one; false: there is none. */
bool comm_wait_next(const struct trace *t, struct wait *w);
/* Whether the rank has begun an operation that has not ended well. */
bool comm_rank_waits(const struct trace *t, int rank);

struct meeting {
	enum { NOT_THERE, MET, OVER, UNKNOWN } how; /* OVER: it ended long ago */
	const struct trace_op *op;                  /* of the peer, when MET */
	const struct trace_message *message;
};

/* What meets a message of that rank's. */
struct meeting comm_message_meets(const struct trace_part *p, const struct trace_message *m);

#endif
