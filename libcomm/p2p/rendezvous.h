/*
 * handoff — a long message between two ranks of one host, copied once.
 *
 * The frame in the ring does not carry the data but says where it lies (reach.h), and the receiver
 * fetches it from there, chunk by chunk. Meanwhile it tells the sender where it wants the data, and
 * a sender that has nothing better to do takes chunks too and writes them: two cores move a message
 * twice as fast as one, and a busy sender is no obstacle. A word in the segment deals the chunks
 * out. The sender may not leave before the receiver has counted the message as taken.
 *
 * When it fails. The receiver counts no message of a sender that has given up: its buffer may have
 * had another use by then. A receiver that gives up closes the message and then waits for the chunk
 * that the sender may be writing, until that is done, the sender is dead, or GRACE_NS are over;
 * only a sender stopped for so long between its claim and its write, with no signal between them,
 * could write later.
 *
 * Where the kernel forbids all this (comm_cma_works) long messages go through the ring like
 * others, but those in windows. A sender that may not write leaves its chunk to the receiver.
 */
#ifndef MUSTER_LIBCOMM_P2P_RENDEZVOUS_H
#define MUSTER_LIBCOMM_P2P_RENDEZVOUS_H

#include "libcomm/shm/segment.h"

#include <stdbool.h>

struct endpoint;
struct transfer;

/* A link's side of it; links to other hosts have none. */
struct rendezvous_end {
	struct rendezvous *tx, *rx; /* NULL: none */
	uint32_t offered, begun; /* messages so far: told to the peer, fetched or being fetched */
	int oldest;              /* the first transfer that the peer has not taken, -1: none */
	bool open;               /* the peer may write into the buffer of the message begun last */
	bool cannot_write;       /* this rank cannot write into the peer's memory */
};

/* Whether a message of that length may be handed over: then its frame says whether it is. */
bool comm_rendezvous_fits(const struct endpoint *l, size_t bytes);

/* The sender's, in the order of the messages: true when the message is handed over, with its
 * span set. */
bool comm_rendezvous_offer(struct endpoint *l, int transfer);
/* Sees what has been taken. */
void comm_rendezvous_reap(struct endpoint *l);
/* For a sender that has nothing else to move: writes a chunk of the oldest message if its receiver
 * lets it, *moved then. */
void comm_rendezvous_help(struct endpoint *l, bool *moved);

/* The receiver's, once the span has come: fetches a chunk. 1 the message is complete, 0 not yet,
 * -1. */
int comm_rendezvous_fetch(struct endpoint *l, struct transfer *t, bool *moved, struct err *e);

/* At an exchange's end, which may be an early one: from now on nobody writes into this rank's
 * buffers. */
void comm_rendezvous_close(struct endpoint *l);

#endif
