/*
 * tcp — endpoints over the network, connected when first used. The main header of libcomm/tcp:
 * acceptor.h accepts connections, handshake.h authenticates them, records.h checks or encrypts
 * their bytes, oob.h carries what is not data, root_cause.h finds the cause of a failure.
 *
 * An endpoint has as many lanes as the world has sockets per pair; each lane is one connection. Of
 * two ranks the lower one connects; the higher one takes the connections from its world's arrivals.
 * Besides the first of them the lower rank makes an out-of-band connection (oob.h), which
 * notifies both of the other's state. A higher rank that waits for long makes one itself: if it
 * ends or is refused, the lower rank died before it could connect.
 */
#ifndef MUSTER_LIBCOMM_TCP_TCP_H
#define MUSTER_LIBCOMM_TCP_TCP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct handshake;
struct records;

enum tcp_state { TCP_IDLE, TCP_CONNECTING, TCP_ACCEPTING, TCP_READY };

struct tcp_lane {
	enum tcp_state state;
	struct records *records;     /* of a ready lane; NULL: its bytes are sent as they are */
	int fd;                      /* of a ready lane; written under the world's lock */
	struct handshake *handshake; /* of the connection being made; NULL: to be started again */
	int retries;                 /* how often a handshake ended early */
	int64_t since;               /* when the wait began */
	bool gone;                   /* the peer is known to be gone */
	uint32_t round;              /* the acceptor's round at that moment */
};

struct tcp_endpoint {
	int lanes;
	struct tcp_lane *lane;
};

int comm_tcp_open(struct tcp_endpoint *t, int lanes, struct err *e);

#endif
