/*
 * connections — the supervisor's end of the control connections, on the event loop.
 *
 * A connection is a socket and a channel (base/auth.h). It is a stranger until
 * launcher_connection_claim(), which the receiver of its hello calls. A stranger must be claimed
 * within `patience` seconds.
 *
 * Four checks decide who may connect. An agent must pass all of them, in this order:
 *
 * 1. The user. A connection that another user of this host made is closed at once (base/owner.h).
 *    The embedded PMIx server does the same (launcher/pmix/gate.h). The user of a process on
 *    another host is unknown here, so such a connection continues to the next check.
 * 2. The generation's secret, from the agent's environment. A stranger whose first packet does not
 *    prove it is closed at once (base/auth.h).
 * 3. The user id across hosts. If `voucher` is set, as under Slurm with munged, both ends must
 *    present a MUNGE credential for this very connection (base/munge.h).
 * 4. The hello. It must name this version of muster and a rank of the plan that is not connected
 *    yet (launcher/supervise/messages.c).
 *
 * What agents publish through PMIx is not covered by these checks; it is sealed with a secret that
 * only the welcome carries (agent/boot.h).
 *
 * Strangers cannot keep the agents out. The number of strangers that have not proved the secret is
 * limited, in total and for each address. The oldest one is closed to make room for the next, so
 * the listener never waits for any of them.
 *
 * A frame that does not open, or that the receiver refuses, ends its connection and nothing else.
 *
 * If there is no descriptor or memory for a new connection, `trouble` reports this once per
 * generation; otherwise the agents would seem not to connect. The listener then pauses until the
 * next tick, or until a connection closes.
 *
 * A new generation (launcher_connections_renew) closes every connection of the last one, except those
 * that were advanced to it, and admits only agents that know the new secret.
 *
 * A connection may also have no socket: whoever attaches it carries its messages, such as a simulation
 * of a run. Checks 2 and 4 decide about it, too.
 */
#ifndef MUSTER_LAUNCHER_CONNECTIONS_H
#define MUSTER_LAUNCHER_CONNECTIONS_H

#include "base/auth.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdint.h>
#include <uv.h>

struct connections;
struct connection;

struct connections_options {
	uv_loop_t *loop;
	/* Non-blocking; closed by launcher_connections_close(). -1: there is none, and connections
	 * come by launcher_connections_adopt(). */
	int listener;
	int most;             /* silent strangers at the same time, in total */
	int most_per_address; /* and from one address */
	double patience;      /* seconds */
	/* Agents must present a MUNGE credential; NULL: the secret is enough. Borrowed. */
	const struct voucher *voucher;
	/* A whole message, valid only during the call. */
	void (*message)(void *arg, struct connection *c, const struct msg *m);
	/* The other end closed the connection or broke the protocol. Not called for
	 * launcher_connection_drop(). rank: as claimed, or -1. */
	void (*closed)(void *arg, int rank, const struct err *why);
	/* All that was queued for a claimed connection has left. Called from the loop. NULL: none. */
	void (*drained)(void *arg, struct connection *c);
	/* A connection cannot be accepted; the first time in a generation. */
	void (*trouble)(void *arg, const struct err *why);
	void *arg;
};

int launcher_connections_open(const struct connections_options *o, struct connections **out,
			      struct err *e);
/* Frees everything once the loop has run its closing callbacks. Takes NULL. */
void launcher_connections_close(struct connections *all);

void launcher_connections_renew(struct connections *all,
				const unsigned char secret[AUTH_SECRET_BYTES], uint32_t generation,
				double now);
/* Takes over a connected socket; on failure it is closed. */
int launcher_connections_adopt(struct connections *all, int fd, struct err *e);
/* Closes strangers that have exceeded their patience. now: seconds of any monotonic clock. */
void launcher_connections_tick(struct connections *all, double now);
/* The number of strangers. */
int launcher_connections_strangers(const struct connections *all);

/* The other end of a connection without a socket. */
struct connection_carrier {
	/* A message of the supervisor. Borrows body; NULL stands for {}. */
	void (*sent)(void *arg, uint32_t generation, enum msg_type type, json_t *body);
	/* Optional. Delivers what has arrived but was not delivered yet: launcher_connection_read_out(). */
	void (*read_out)(void *arg);
	/* The supervisor has closed the connection; nothing is called after that. */
	void (*closed)(void *arg);
	void *arg;
};

/* The connection of an agent that knows this secret. *out is valid until it is closed. ERR_AUTH: it is
 * not the present one; `closed` was called, as it was for any other failure. */
int launcher_connections_attach(struct connections *all, const struct connection_carrier *by,
				const unsigned char secret[AUTH_SECRET_BYTES],
				struct connection **out, struct err *e);
/* A message of the other end of an attached connection. It is ignored if it is of another generation
 * than the connection. The callbacks may drop the connection. */
void launcher_connection_deliver(struct connection *c, const struct msg *m);
/* The connection is lost, or is given up: reports it to `closed` unless it is closed already. */
void launcher_connection_lose(struct connection *c, const struct err *why);

void launcher_connection_claim(struct connection *c, int rank);
/* From now on messages are of this generation. launcher_connections_renew() for that generation keeps
 * the connection. */
void launcher_connection_advance(struct connection *c, uint32_t generation);
int launcher_connection_rank(const struct connection *c); /* -1: not claimed */
/* Borrows body. What the socket does not take now is queued and sent later. */
int launcher_connection_send(struct connection *c, enum msg_type type, json_t *body, struct err *e);
/* The same for a message that msg_pack() has packed, with the present generation. */
int launcher_connection_send_packed(struct connection *c, const struct buf *packed, struct err *e);
/* Whether nothing is queued. */
bool launcher_connection_is_drained(const struct connection *c);
/* Delivers the messages that have already arrived, such as the last ones of a process that has
 * ended. The callbacks may drop the connection. */
void launcher_connection_read_out(struct connection *c);
void launcher_connection_drop(struct connection *c);

#endif
