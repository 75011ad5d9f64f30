/*
 * rank_rows — the rows of the message node_progress: what other messages of one rank say. Those of progress
 * and times are lists of values, because a large run sends many and names would cost more than the numbers.
 *
 *     progress   [rank, step, phase, count, active, done, own, delay, stalled]
 *     times      [rank, step, peak_bytes, us]
 *     reports    [rank, name of the message, its body]
 *
 * The values are those of the message's fields; own, delay and stalled are in nanoseconds.
 *
 * To let another message be a row of reports:
 *   1. add it to MSG_REPORTS below, and MSG_REPORT_FIELDS to its fields (base/messages.h);
 *   2. send it with agent_control_report_later() instead of agent_control_send().
 * The relay and the supervisor need no change: the supervisor calls the message's handler.
 */
#ifndef MUSTER_BASE_RANK_ROWS_H
#define MUSTER_BASE_RANK_ROWS_H

#include "base/err.h"
#include "base/messages.h"

/* Only the newest one of each type and rank matters, and it may be some seconds old. */
#define MSG_REPORTS(X) \
	X(MSG_HEALTH) \
	X(MSG_LINKS)

/* Their numbers, from 0. */
enum {
#define MSG_REPORT_ENUM(type) REPORT_##type,
	MSG_REPORTS(MSG_REPORT_ENUM)
#undef MSG_REPORT_ENUM
		REPORTS_COUNT
};
/* -1: the message is none. */
int msg_report_index(enum msg_type type);
enum msg_type msg_report_type(int index);

/* A new reference. NULL: no memory, or the phase is not UTF-8. m->us and body are borrowed. */
json_t *msg_progress_row(int rank, const struct msg_progress *m);
json_t *msg_times_row(int rank, const struct msg_times *m);
json_t *msg_report_row(int rank, enum msg_type type, json_t *body);
/* *m and *body borrow from the row. ERR_PROTO: the row is not valid, and nothing is set. The
 * message's own reader checks the body of a report. */
int msg_progress_row_read(const json_t *row, int *rank, struct msg_progress *m, struct err *e);
int msg_times_row_read(const json_t *row, int *rank, struct msg_times *m, struct err *e);
int msg_report_row_read(const json_t *row, int *rank, enum msg_type *type, const json_t **body,
			struct err *e);

#endif
