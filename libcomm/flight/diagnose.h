/*
 * diagnose — what the ranks' flight recorders, taken together, say went wrong, in one sentence.
 *
 * The first of these that is found:
 *   mismatch  the ranks of a group called different collectives as the same one: another operation,
 *             size, type, reduction or root; where several differ, the one that began first
 *   message   a send and the recv that it meets are of different sizes
 *   circle    ranks wait for each other in different operations, so that none can go on
 *   missing   ranks wait for one that never came and waits for nobody itself, or has left no dump
 * All ranks in a sentence are ranks of the world. A rank waits in an operation that it has begun
 * and not ended, or that has failed, for every member that has not begun it; in a send/recv for the
 * peers whose recv or send is not there.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_DIAGNOSE_H
#define MUSTER_LIBCOMM_FLIGHT_DIAGNOSE_H

#include "base/buf.h"
#include "libcomm/flight/trace.h"

enum finding { FINDING_NONE, FINDING_MISMATCH, FINDING_MESSAGE, FINDING_CIRCLE, FINDING_MISSING };

struct diagnosis {
	enum finding finding;
	struct buf text;                 /* the sentence; also when there is nothing to find */
	const struct trace_group *group; /* where it shows; of the trace. NULL: nowhere */
	const struct trace_op *op;       /* what waits there, or differs */
	int *ranks, n;                   /* who differs, does not come, or is in the circle */
};

const char *comm_finding_word(enum finding f);
int comm_diagnose(const struct trace *t, struct diagnosis *d, struct err *e);
void comm_diagnosis_fini(struct diagnosis *d);

#endif
