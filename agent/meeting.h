/*
 * meeting — where the tasks of a program meet: the address of rank 0's node, and two free ports there.
 *
 * Rank 0's agent chooses the ports and keeps each one bound, without listening, until the close. The
 * kernel then gives them to nobody who asks for any free port, neither for bind(2) nor for connect(2).
 * The task of rank 0 can still bind them, because both sockets have SO_REUSEADDR and the agent's one does
 * not listen; PyTorch's store and gRPC set that option, as servers do. A program that binds its port
 * without SO_REUSEADDR gets EADDRINUSE.
 *
 * Source: socket(7), SO_REUSEADDR; inet_csk_get_port() of Linux.
 */
#ifndef MUSTER_AGENT_MEETING_H
#define MUSTER_AGENT_MEETING_H

#include "agent/control.h"
#include "base/err.h"
#include "base/net.h"

#include <stdbool.h>

enum { MEETING_PORTS = 2 };

struct meeting {
	char address[NET_ADDR_MAX];
	/* of PyTorch's store (MASTER_PORT), and of JAX's coordinator */
	int ports[MEETING_PORTS];
	int held[MEETING_PORTS]; /* rank 0: the sockets; otherwise -1 */
};

/* For agent_meeting_close() of one that was never opened. */
#define MEETING_INIT \
	{ \
		.held = { -1, -1 } \
	}

/* Every rank calls it. It returns when all ranks have connected to the supervisor and rank 0 has
 * published the meeting point. one_host: all ranks are on this host, so they meet at the loopback
 * address. interface: [network] interface; "": that which leads to the supervisor. */
int agent_meeting_open(struct control *c, int rank, bool one_host, const char *interface,
		       struct meeting *out, struct err *e);
void agent_meeting_close(struct meeting *m);

#endif
