/*
 * rendezvous — the protocol for a long message between two ranks of one host, which copies it once.
 *
 * The frame in the ring does not carry the data but says where it is (struct remote_buffer). The
 * receiver reads it from there, chunk by chunk (peer_memory.h). Meanwhile it publishes where it
 * wants the data. A sender that is otherwise idle takes chunks too and writes them: two cores move
 * a message twice as fast as one, and a busy sender delays nothing. A word in the segment assigns
 * the chunks. The sender may not return before the receiver has counted the message as taken.
 *
 * Failures. The receiver never counts a message whose sender has given up, because the sender's
 * buffer may have been reused by then. A receiver that gives up closes the message, then waits for
 * the chunk that the sender may be writing until that chunk is done, the sender is dead, or
 * GRACE_NS are over. Only a sender that stops for longer than that between its claim and its write
 * could write later.
 *
 * Where the kernel forbids this (comm_cma_works is false), long messages use the ring like others,
 * except those in shared buffers. A sender that may not write leaves its chunk to the receiver.
 */
#ifndef MUSTER_LIBCOMM_P2P_RENDEZVOUS_H
#define MUSTER_LIBCOMM_P2P_RENDEZVOUS_H

#include "libcomm/shm/segment.h"

#include <stdbool.h>

struct endpoint;
struct transfer;

/* An endpoint's state of the protocol. Endpoints on other hosts have none. */
struct rendezvous_end {
	struct rendezvous *tx, *rx; /* NULL: none */
	uint32_t offered, begun;    /* messages so far: announced to the peer; being fetched or
				  * fetched */
	int oldest;                 /* the first transfer that the peer has not taken; -1: none */
	bool open;         /* the peer may write into the buffer of the last begun message */
	bool cannot_write; /* this rank cannot write into the peer's memory */
};

/* Whether a message of that length may use the protocol. If so, its frame says whether it does. */
bool comm_rendezvous_fits(const struct endpoint *ep, size_t bytes);

/* Sender, in the order of the messages: true if the message uses the protocol; then its remote
 * buffer is set. */
bool comm_rendezvous_offer(struct endpoint *ep, int transfer);
/* Sender: removes the messages that the receiver has taken. */
void comm_rendezvous_reap(struct endpoint *ep);
/* Sender, when it has nothing else to move: writes one chunk of the oldest message if its receiver
 * allows it, and sets *moved. */
void comm_rendezvous_help(struct endpoint *ep, bool *moved);

/* Receiver, once the remote buffer has arrived: reads one chunk. 1: the message is complete; 0: not
 * yet; -1: error. */
int comm_rendezvous_fetch(struct endpoint *ep, struct transfer *t, bool *moved, struct err *e);

/* At the end of an exchange, also a failed one: afterwards nobody writes into this rank's
 * buffers. */
void comm_rendezvous_close(struct endpoint *ep);

#endif
