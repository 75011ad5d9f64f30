/*
 * tcp — links over the network, made when they are first used.
 *
 * A link has as many lanes as the world has sockets a pair, each a connection of its own. Of two
 * ranks the lower one connects, the higher one finds the connections among its world's arrivals.
 * Beside the first of them the lower rank makes a side connection (side.h), which tells both what
 * became of the other; a higher rank that waits for long makes one itself: when it ends, or is
 * refused, the lower one has died before it could connect.
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
	struct records *records;     /* of a ready lane; NULL: its bytes go as they are */
	int fd;                      /* of a ready lane; written under the world's lock */
	struct handshake *handshake; /* of the connection to come; NULL: to be begun anew */
	int retries;                 /* how often a greeting ended before its time */
	int64_t since;               /* when the waiting began */
	bool gone;                   /* the peer is no more, known */
	uint32_t round;              /* at this one of the acceptor's rounds */
};

struct tcp_endpoint {
	int lanes;
	struct tcp_lane *lane;
};

int comm_tcp_open(struct tcp_endpoint *t, int lanes, struct err *e);

#endif
