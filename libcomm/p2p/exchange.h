/*
 * exchange — messages between the ranks of a group, all at once.
 *
 * An algorithm lists what it sends and receives, then comm_exchange_run moves all of
 * it, in whatever order bytes get through: nothing waits for anything else, so
 * no order of the list can lock up. Messages between two ranks arrive in the
 * order in which they were listed. Each carries a frame; one that does not fit
 * what the receiver expects is an error that tells both sides.
 *
 * A link is the way to one peer, over one lane or more: see lanes.h. Every lane goes through the
 * link's messages on its own, and they are done when all lanes are through. To add a transport:
 * write its struct transport_ops and its state in struct endpoint, and choose it in comm_endpoints_open.
 */
#ifndef MUSTER_LIBCOMM_P2P_EXCHANGE_H
#define MUSTER_LIBCOMM_P2P_EXCHANGE_H

#include "libcomm/group.h"
#include "libcomm/p2p/rendezvous.h"
#include "libcomm/tcp/tcp.h"

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

/* What follows a frame on lane 0. */
enum delivery {
	DELIVER_STREAM,  /* the data, or the lane's share of it */
	DELIVER_REMOTE,  /* where the data lies: handoff.h */
	DELIVER_UNKNOWN, /* the receiver's: what the frame says */
};

struct frame {
	uint16_t magic;
	uint8_t kind, delivery;
	uint32_t seq;
	/* call: what else the ranks must agree on, type, reduction and root, in short */
	uint64_t bytes : 48, call : 16;
};

struct transfer {
	bool send;
	bool begun, fetched; /* handoff.c: it has a number; its data is here */
	enum delivery delivery;
	int peer, next; /* next of the same peer and direction, -1: the last */
	char *data;
	size_t bytes;
	struct frame frame, got;
	struct remote_buffer remote;
	uint32_t number; /* among the messages of its link and direction that are handed over */
};

/* How far a lane has come in one direction. */
struct cursor {
	int at;      /* transfer, -1: through */
	size_t done; /* of the lane's share of it; on lane 0 the frame comes first and counts too */
};

struct lane {
	struct cursor out, in;
};

struct transport_ops {
	/* Moves what goes over the lane without waiting: bytes moved, 0 for none, -1 on error. */
	ssize_t (*put)(struct endpoint *l, int lane, const struct iovec *v, int n, struct err *e);
	ssize_t (*get)(struct endpoint *l, int lane, const struct iovec *v, int n, struct err *e);
	/* What to poll for while the lane waits; false: nothing, its peer rings the bell. */
	bool (*poll)(const struct endpoint *l, int lane, struct pollfd *p);
	/* Ends the connection for its users; from any thread, under the world's lock. */
	void (*interrupt)(struct endpoint *l);
	void (*close)(struct endpoint *l);
};

struct ring_endpoint {
	struct ring *tx, *rx;
	struct seg_line *line; /* the peer's */
	size_t bytes;          /* in a ring */
	uint64_t tail, head;   /* of tx, of rx, when they were last looked at */
	int wakeup;            /* the peer's, -1: it sleeps on its doorbell */
};

struct endpoint {
	const struct transport_ops *ops; /* NULL: this rank itself */
	struct comm *c;
	int peer;
	int lanes;
	struct lane *lane;
	int out_tail, in_tail; /* the last transfers, -1: none */
	bool active;
	int next_active;
	struct rendezvous_end rendezvous;
	union {
		struct ring_endpoint ring;
		struct tcp_endpoint tcp;
	};
};

extern const struct transport_ops comm_ring_transport, comm_tcp_transport;

/* The peer looks at what this rank has changed in the segment, if it sleeps. */
void comm_ring_wake_peer(const struct endpoint *l);

int comm_endpoints_open(struct comm *c, const struct card *cards, struct err *e);
void comm_endpoints_interrupt(struct comm *c);
void comm_endpoints_close(struct comm *c);

/* The list, for one operation. Buffers stay the caller's until comm_exchange_run returns. */
void comm_exchange_begin(struct comm *c);
int comm_exchange_send(struct comm *c, const struct op *op, int peer, const void *data,
		       size_t bytes, struct err *e);
int comm_exchange_recv(struct comm *c, const struct op *op, int peer, void *data, size_t bytes,
		       struct err *e);
int comm_exchange_run(struct comm *c, struct err *e);

#endif
