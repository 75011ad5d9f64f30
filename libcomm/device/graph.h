/*
 * graph — operations of groups inside a graph of the device (comm.h, "Graphs").
 *
 * A thread records at most one graph at a time, and the device captures its calls in the same
 * thread. So what a thread records or repeats is the thread's own. The graph does not include
 * operations that other threads start meanwhile.
 *
 * While a graph is recorded, the stream of a native group joins the capture of the caller's
 * stream, because it waits for a mark's `begin` there. The operation is queued as always, but
 * nothing runs: it gets no number, no flight (native.h) and no entry in the flight recorder, and
 * its events are the capture's, which nobody may query. graph.c notes the operation instead.
 * comm_graph_end joins the streams again.
 *
 * For each launch, every group in the graph gets one flight for all its collectives in it, and one
 * for all its messages. Its `begin` is recorded on the caller's stream before the launch and its
 * `end` after it. All operations get their numbers and their entries in the flight recorder then.
 * A launch counts as called when all of its operations are, and is done when the graph is.
 *
 * A recorded comm_wait of a request from before becomes a place in the graph at which it waits for
 * an event of its own. Before each launch, the same call lets that event stand for the end of its
 * request: a stream that does nothing else waits for that end and then records the event.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_GRAPH_H
#define MUSTER_LIBCOMM_DEVICE_GRAPH_H

#include "libcomm/device/device_group.h"

/* Whether this thread records a graph. */
bool comm_graph_records(void);
/* What becomes of a call of this thread. 1: it runs as always, or is recorded; 0: it was part of
 * the graph whose calls the thread repeats, so there is nothing to do; -1: it cannot be part of a
 * graph. */
int comm_graph_call(struct comm *c, const struct op *op, struct err *e);
/* Whether this thread repeats the calls of a graph. */
bool comm_graph_repeats(void);
/* Lets the graph that is recorded, or whose calls are repeated, wait for an operation from
 * before. */
int comm_graph_await(struct comm *c, struct stream_mark *m, struct err *e);
/* Notes that the operation has been recorded. */
int comm_graph_note(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e);

/* --- native.c --------------------------------------------------------------------------------- */

/* Queues n operations for the capture. */
int comm_native_record(struct comm *c, const struct op *ops, int n, struct stream_mark *m,
		       struct err *e);
/* Waits until the collectives and the messages of a graph can be in flight. */
int comm_native_await_room(struct comm *c, struct err *e);
/* The `count` operations are launched with the next graph. Numbers them and notes them in the
 * flight recorder. others: other groups have operations in that graph. The communicator is kept
 * until one of the two calls below (native.h). */
int comm_native_launch(struct comm *c, const struct op *const *ops, int count, bool others,
		       struct stream_mark *m, struct err *e);
/* The graph is launched. */
int comm_native_launched(struct comm *c, struct stream_mark *m, struct err *e);
/* The graph is not going to be launched, because another group has failed. */
void comm_native_not_launched(struct comm *c);

#endif
