/*
 * waits — which rank waits for which, as far as a trace shows.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_WAITS_H
#define MUSTER_LIBCOMM_FLIGHT_WAITS_H

#include "libcomm/flight/trace.h"

static inline bool trace_op_waits(const struct trace_op *op)
{
	return op->state == RECORD_RUNNING || op->state == RECORD_FAILED;
}

struct trace_wait { /* an iterator over all waits of a rank; { .rank = … } is before the first
		     * one */
	int rank;   /* the rank that waits */
	int part, op, peer; /* the position of the search */
	const struct trace_part *in;
	const struct trace_op *what;
	const struct trace_message *message; /* of a send/recv: the message without a match */
	int whom;                            /* the world rank it waits for */
};

/* Moves to the next wait. false: there is none. */
bool comm_trace_next_wait(const struct trace *t, struct trace_wait *w);
/* Whether the rank has begun an operation that has not ended well. */
bool comm_trace_rank_waits(const struct trace *t, int rank);

struct message_match {
	enum {
		MATCH_NONE,
		MATCH_FOUND,
		MATCH_ENDED,
		MATCH_UNKNOWN
	} how;                     /* MATCH_ENDED: the peer's operation ended long ago */
	const struct trace_op *op; /* the peer's, if MATCH_FOUND */
	const struct trace_message *message;
};

/* Finds the peer's message that matches one of this rank's. */
struct message_match comm_trace_match_message(const struct trace_part *p,
					      const struct trace_message *m);

#endif
