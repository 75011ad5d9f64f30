/*
 * node_relay — the first rank of a node hands on what the other ranks of the node report, so that the
 * supervisor gets one message of the node and not one of each rank.
 *
 * Each rank keeps its own connection to the supervisor: it closes at once when the rank dies, and all
 * other messages take it. Only what comes again and again goes through the relay, over an abstract Unix
 * socket of the host (agent/node_packet.h): progress, times, and the messages of MSG_REPORTS
 * (base/rank_rows.h). The other end is agent/node_member.h. The relay
 *   - keeps the newest packet of each kind and rank, so its memory is bounded and nothing queues;
 *   - hands them on in the message node_progress, together with its own progress;
 *   - then acknowledges them. A rank that gets no acknowledgement reports to the supervisor itself, so a
 *     relay that is gone, stopped or cut off makes no other rank look silent, and loses none of its reports.
 *
 * What the relay has acknowledged is in the queue of its connection. It is lost only with that connection, and
 * then the generation is over: in the next one each rank reports anew.
 *
 * Where it cannot be reached, as when each rank of a node has a network namespace of its own, every rank
 * reports itself.
 *
 * It accepts only processes of its own user, one connection for each of the node's other ranks. What
 * sends it something else loses its connection.
 *
 * It has no thread: the control thread calls it once per look (agent/control_report.c), so that packets
 * wake nobody. No call waits.
 */
#ifndef MUSTER_AGENT_NODE_RELAY_H
#define MUSTER_AGENT_NODE_RELAY_H

#include "agent/engine/train/times.h"
#include "base/err.h"
#include "base/msg.h"
#include "base/rank_rows.h"

#include <stdbool.h>

struct node_relay;

/* Listens, if this rank is the first of several on its node. *out is NULL if it is not, or if the host
 * offers no such socket. ERR_PROTO: the welcome's list of the node's ranks is invalid. */
int agent_node_relay_open(const struct msg_welcome *w, struct node_relay **out, struct err *e);
void agent_node_relay_close(struct node_relay *r); /* takes NULL */

/* Takes what the ranks have sent since the last call. True: some have news. */
bool agent_node_relay_take(struct node_relay *r);
/* What this rank reports itself. */
struct node_own {
	struct msg_progress progress;
	const struct train_times *times; /* NULL: none */
	json_t *reports[REPORTS_COUNT];  /* bodies, borrowed; NULL: none */
};
/* The body of the message node_progress, a new reference: what this rank reports, and the others that have
 * news. NULL: no memory. */
json_t *agent_node_relay_body(struct node_relay *r, const struct node_own *own);
/* That message is queued: there is no news any more. */
void agent_node_relay_acknowledge(struct node_relay *r);

#endif
