/*
 * rank_rows — the rows of the message node_progress: what the messages progress and times of one rank
 * say, as lists, because a large run sends many and names would cost more than the numbers.
 *
 *     progress   [rank, step, phase, count, active, done, own, delay, stalled]
 *     times      [rank, step, peak_bytes, us]
 *
 * The values are those of the message's fields; own, delay and stalled are in nanoseconds.
 */
#ifndef MUSTER_BASE_RANK_ROWS_H
#define MUSTER_BASE_RANK_ROWS_H

#include "base/err.h"
#include "base/messages.h"

/* A new reference. NULL: no memory, or the phase is not UTF-8. m->us is borrowed. */
json_t *msg_progress_row(int rank, const struct msg_progress *m);
json_t *msg_times_row(int rank, const struct msg_times *m);
/* *m borrows from the row. ERR_PROTO: it is no such row; *rank and *m are not set. */
int msg_progress_row_read(const json_t *row, int *rank, struct msg_progress *m, struct err *e);
int msg_times_row_read(const json_t *row, int *rank, struct msg_times *m, struct err *e);

#endif
