/*
 * exchange — messages between the ranks of a group, many at once. The main header of libcomm/p2p:
 * it holds endpoints and messages; rendezvous.h holds the protocol for long messages within a host,
 * lanes.h the division of a message over several connections, wakeup.h the pipe that ends a sleep.
 *
 * An algorithm lists what it sends and receives, then comm_exchange_run moves all of it in whatever
 * order bytes get through. No transfer waits for another one, so no order of the list can deadlock.
 * Messages between two ranks arrive in the order in which they were listed. Each message carries a
 * frame. If a message does not match what the receiver expects, both ranks fail.
 *
 * An endpoint is the way to one peer, over one or more lanes (lanes.h). Each lane goes through the
 * endpoint's messages independently; they are done when all lanes are through.
 *
 * There are three things to do to add a transport:
 *   1. Add its state to the union in struct endpoint.
 *   2. Write its struct transport_ops, as shm_ring.c and tcp/tcp.c do, and declare it below.
 *   3. Choose it in comm_endpoints_open (endpoint.c).
 */
#ifndef MUSTER_LIBCOMM_P2P_EXCHANGE_H
#define MUSTER_LIBCOMM_P2P_EXCHANGE_H

#include "libcomm/group.h"
#include "libcomm/p2p/rendezvous.h"
#include "libcomm/tcp/tcp.h"

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

/* What follows the frame on lane 0. */
enum delivery {
	DELIVER_STREAM,  /* the data, or the lane's share of it */
	DELIVER_REMOTE,  /* a struct remote_buffer that says where the data is: rendezvous.h */
	DELIVER_UNKNOWN, /* receiver only: the frame will say which */
};

struct frame {
	uint16_t magic;
	uint8_t kind, delivery;
	uint32_t seq;
	/* call: a hash of what else the ranks must agree on: type, reduction and root */
	uint64_t bytes : 48, call : 16;
};

struct transfer {
	bool send;
	bool begun, fetched; /* rendezvous.c: it has a number; its data is here */
	enum delivery delivery;
	int peer, next; /* next transfer of the same peer and direction; -1: this is the last */
	union {
		char *data;
		const char *source; /* the same pointer; a send only reads it */
	};
	size_t bytes;
	struct frame frame, got;
	struct remote_buffer remote;
	uint32_t number; /* among the rendezvous messages of its endpoint and direction */
};

/* How far a lane has come in one direction. */
struct cursor {
	int at;      /* transfer; -1: all are done */
	size_t done; /* bytes of the lane's share of it; on lane 0 including the frame, which comes
		      * first */
};

struct lane {
	struct cursor out, in;
};

struct transport_ops {
	/* Move what the lane takes without waiting. Return the bytes moved, 0 for none, -1 on
	 * error. */
	ssize_t (*put)(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e);
	ssize_t (*get)(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e);
	/* Sets what to poll for while the lane waits. false: nothing, the peer signals the wake-up
	 * pipe. */
	bool (*poll)(const struct endpoint *ep, int lane, struct pollfd *p);
	/* Ends the connection for its users. From any thread, under the world's lock. */
	void (*interrupt)(struct endpoint *ep);
	void (*close)(struct endpoint *ep);
};

struct ring_endpoint {
	struct ring *tx, *rx;
	struct seg_line *line; /* the peer's */
	size_t bytes;          /* capacity of a ring */
	uint64_t tail, head;   /* of tx and of rx, when last read */
	int wakeup;            /* the peer's pipe; -1: the peer sleeps on its doorbell */
};

struct endpoint {
	const struct transport_ops *ops; /* NULL: this rank itself */
	struct comm *c;
	int peer;
	int lanes;
	struct lane *lane;
	int out_tail, in_tail; /* the last transfers of the list; -1: none */
	bool active;
	int next_active;
	struct rendezvous_end rendezvous;
	union {
		struct ring_endpoint ring;
		struct tcp_endpoint tcp;
	};
};

extern const struct transport_ops comm_ring_transport, comm_tcp_transport;

/* If the peer sleeps, makes it check what this rank has changed in the segment. */
void comm_ring_wake_peer(const struct endpoint *ep);

int comm_endpoints_open(struct comm *c, const struct card *cards, struct err *e);
void comm_endpoints_interrupt(struct comm *c);
void comm_endpoints_close(struct comm *c);

/* The list, for one operation. The caller keeps its buffers unchanged until comm_exchange_run
 * returns. */
void comm_exchange_begin(struct comm *c);
int comm_exchange_send(struct comm *c, const struct op *op, int peer, const void *data,
		       size_t bytes, struct err *e);
int comm_exchange_recv(struct comm *c, const struct op *op, int peer, void *data, size_t bytes,
		       struct err *e);
int comm_exchange_run(struct comm *c, struct err *e);

#endif
