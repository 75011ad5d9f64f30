/*
 * node_packet — what a rank reports to the relay of its node (agent/node_relay.h). A packet is one of two,
 * and both begin with struct node_head:
 *   - a struct node_packet, of a fixed size: what the messages progress and times would say;
 *   - a report: the head, and the body of a message of MSG_REPORTS (base/rank_rows.h) in JSON.
 * The relay answers with the number of the last packet that it has handed on, a uint64_t.
 *
 * Both ends are on one host and of one version of muster, so numbers are in the host's byte order. The
 * relay trusts no packet.
 */
#ifndef MUSTER_AGENT_NODE_PACKET_H
#define MUSTER_AGENT_NODE_PACKET_H

#include "agent/engine/train/times.h"
#include "base/err.h"
#include "base/messages.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	NODE_PHASE = 32,
	NODE_REPORT = 16 << 10, /* bytes of a report's text, at most */
	NODE_NO_REPORT = -1
};

struct node_head {
	uint32_t version; /* MSG_VERSION */
	int32_t rank;
	uint64_t number; /* of the rank's packets, from 1 */
	int64_t report; /* its number (base/rank_rows.h); NODE_NO_REPORT: it is a struct node_packet */
};

struct node_packet {
	struct node_head head;
	int64_t step, count, active, done;
	double own_s, delay_s, stalled_s;
	char phase[NODE_PHASE];
	int64_t has_times;                                 /* 0 or 1 */
	int64_t times_step, peak_bytes, us[TIME_REPORTED]; /* 0 if not */
};

struct node_report {
	struct node_head head;
	char text[NODE_REPORT]; /* as much of it as the packet has */
};

/* False: no packet that an agent sends begins so; *head is undefined. */
bool agent_node_head_read(const void *data, size_t len, struct node_head *head);

/* Bytes that the body has as a report's text. */
size_t agent_node_report_size(const json_t *body);
/* Returns the packet's size; 0: the text is too long. */
size_t agent_node_report_fill(struct node_report *p, int rank, int report, const json_t *body);
/* The body of a packet whose head was read, a new reference. NULL: it is none, or there is no memory. Whether
 * the message is valid is for the supervisor. */
json_t *agent_node_report_body(const void *data, size_t len);

/* times: NULL: none. */
void agent_node_packet_fill(struct node_packet *p, int rank, const struct msg_progress *m,
			    const struct train_times *times);
/* False: it is no packet that an agent sends; *p is undefined. */
bool agent_node_packet_read(const void *data, size_t len, struct node_packet *p);
/* What it says. m->phase is a part of the packet. False: it has no times. */
void agent_node_packet_progress(const struct node_packet *p, struct msg_progress *m);
bool agent_node_packet_times(const struct node_packet *p, struct train_times *times);

/* The address of the relay of the rank's node in this generation: an abstract Unix socket, of which
 * nothing stays behind. Only those who know the generation's secret can find it. *len: its size. */
int agent_node_address(const struct msg_welcome *w, struct sockaddr_un *out, socklen_t *len,
		       struct err *e);

#endif
