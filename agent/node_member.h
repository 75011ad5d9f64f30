/*
 * node_member — a rank's end of the relay of its node (agent/node_relay.h), if its node has several ranks
 * and it is not the first of them.
 *
 * The rank reports to the relay while that acknowledges its packets. Otherwise it reports to the
 * supervisor itself, and tries the relay again: when it cannot be reached, when it closes, and when a
 * packet has waited for two heartbeats. A rank that the relay has not acknowledged yet does both.
 *
 * The rank keeps what it must not lose until the relay has acknowledged it: its times and its reports.
 *
 * It has no thread: the control thread calls it (agent/control_report.c). No call waits.
 */
#ifndef MUSTER_AGENT_NODE_MEMBER_H
#define MUSTER_AGENT_NODE_MEMBER_H

#include "agent/engine/train/times.h"
#include "base/err.h"
#include "base/msg.h"
#include "base/rank_rows.h"

#include <stdbool.h>

struct node_member;

/* *out is NULL if the rank needs no relay. */
int agent_node_member_open(const struct msg_welcome *w, struct node_member **out, struct err *e);
void agent_node_member_close(struct node_member *m); /* takes NULL */

/* Connects if need be, and reads what the relay has acknowledged. To be called before each report. True:
 * the relay hands on what this rank reports. now: base/clock.h. */
bool agent_node_member_look(struct node_member *m, double now);
/* Sends the relay a report. times: NULL: none. False: the relay has enough unread packets; the next report
 * says more. */
bool agent_node_member_report(struct node_member *m, const struct msg_progress *p,
			      const struct train_times *times, double now);

/* Hands the relay a message of MSG_REPORTS, by its numbers of base/rank_rows.h and of agent/reports.h, unless it
 * has it. False: it hands nothing on, or the text is too long: the rank must send the message itself. */
bool agent_node_member_hand(struct node_member *m, int report, int64_t number, const json_t *body,
			    double now);
/* Whether the relay has handed on the message of this number. */
bool agent_node_member_has_handed(const struct node_member *m, int report, int64_t number);

/* The next report has new times. */
void agent_node_member_owe(struct node_member *m);
/* Whether the relay has acknowledged them; true only once. */
bool agent_node_member_settles(struct node_member *m);

#endif
