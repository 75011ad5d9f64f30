/*
 * diagnose — finds what went wrong from all ranks' flight recorders, and says it in one sentence.
 * The main header of libcomm/flight: recorder.h records, dump.h writes the files, trace.h reads
 * them, waits.h follows who waits for whom.
 *
 * The result is the first of these that applies:
 *   mismatch   the ranks of a group called different collectives as the same one: another
 *              operation, size, type, reduction or root; if there are several, the one that began
 *              first
 *   message    a send and the recv that matches it have different sizes
 *   deadlock   ranks wait for each other in different operations, so that none can continue
 *   missing    ranks wait for one that never came and waits for nobody itself, or has left no dump
 * Ranks in a sentence are world ranks. In an operation that it has begun and not ended, or that
 * failed, a rank waits for every member that has not begun it; in a send/recv, for the peers whose
 * recv or send is missing.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_DIAGNOSE_H
#define MUSTER_LIBCOMM_FLIGHT_DIAGNOSE_H

#include "base/buf.h"
#include "libcomm/flight/trace.h"

enum comm_finding {
	COMM_FINDING_NONE,
	COMM_FINDING_MISMATCH,
	COMM_FINDING_MESSAGE,
	COMM_FINDING_DEADLOCK,
	COMM_FINDING_MISSING
};

struct diagnosis {
	enum comm_finding finding;
	struct buf text;                 /* the sentence; also set if nothing was found */
	const struct trace_group *group; /* where it shows, in the trace; NULL: nowhere */
	const struct trace_op *op;       /* the operation that waits there, or differs */
	int *ranks, n;                   /* the ranks that differ, are missing, or form the
					  * deadlock; the one that is alone in its operation
					  * comes first */
};

const char *comm_finding_word(enum comm_finding f);
int comm_diagnose(const struct trace *t, struct diagnosis *d, struct err *e);
void comm_diagnosis_fini(struct diagnosis *d);

#endif
