/*
 * waits — who waits for whom, as far as a trace tells.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_WAITS_H
#define MUSTER_LIBCOMM_FLIGHT_WAITS_H

#include "libcomm/flight/trace.h"

static inline bool trace_op_waits(const struct trace_op *op)
{
	return op->state == RECORD_RUNNING || op->state == RECORD_FAILED;
}

struct trace_wait { /* a place in the list of all waits of a rank; { .rank = … } is before the first */
	int rank;           /* who waits */
	int part, op, peer; /* where the search stands */
	const struct trace_part *in;
	const struct trace_op *what;
	const struct trace_message *message; /* of a send/recv: which one nobody meets */
	int whom;                            /* rank of the world */
};

/* The next one; false: there is none. */
bool comm_trace_next_wait(const struct trace *t, struct trace_wait *w);
/* Whether the rank has begun an operation that has not ended well. */
bool comm_trace_rank_waits(const struct trace *t, int rank);

struct message_match {
	enum {
		MATCH_NONE,
		MATCH_FOUND,
		MATCH_ENDED,
		MATCH_UNKNOWN
	} how;                     /* OVER: it ended long ago */
	const struct trace_op *op; /* of the peer, when MET */
	const struct trace_message *message;
};

/* What meets a message of that rank's. */
struct message_match comm_trace_match_message(const struct trace_part *p,
					      const struct trace_message *m);

#endif
