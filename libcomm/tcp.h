/*
 * tcp — links over the network, made when they are first used.
 *
 * Of two ranks the lower one connects, the higher one finds the connection
 * among its world's arrivals. A higher rank that waits for long watches the
 * lower one's listener through a connection that carries nothing: when that
 * ends, the lower one has died before it could connect.
 */
#ifndef MUSTER_LIBCOMM_TCP_H
#define MUSTER_LIBCOMM_TCP_H

#include <stdbool.h>
#include <stdint.h>

struct handshake;

enum tcp_state { TCP_IDLE, TCP_GREETING, TCP_AWAITING, TCP_READY };

struct tcp_link {
	enum tcp_state state;
	int fd;                       /* of a ready link; written under the world's lock */
	struct handshake *greeting;   /* of the connection to come, or of the watch; NULL: to be begun anew */
	int shut_out;                 /* how often a greeting ended before its time */
	int watch;                    /* -1: none yet */
	int64_t since;                /* when the waiting began */
	bool gone;                    /* the watch has ended, */
	uint32_t round;               /* at this one of the acceptor's rounds */
};

void tcp_init(struct tcp_link *t);

#endif
