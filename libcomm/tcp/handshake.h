/*
 * handshake — two ranks prove to each other that they belong to one world.
 *
 *     connector -> acceptor   hello, with a nonce
 *     acceptor  -> connector  answer, with a nonce; HMAC(secret, "A" hello answer)
 *     connector -> acceptor   HMAC(secret, "C" hello answer)
 *
 * Both say their [network] integrity, which must be the same: it is never negotiated, and who is in
 * the middle cannot change it. The keys of the two directions' records (records.h) are HMAC(secret,
 * ">" hello answer) and HMAC(secret, "<" …); with seal the nonces are the public halves of fresh
 * X25519 key pairs, and what these share goes into the HMAC too, so that whoever comes to know the
 * secret later cannot open what was recorded before. The cipher is AES-256-GCM when both say that
 * their processor has instructions for it.
 *
 * secret is the acceptor's, 32 random bytes that only the bootstrap tells; HMAC
 * is libsodium's crypto_auth, compared in constant time. Neither side
 * waits: comm_handshake_step does what can be done now.
 */
#ifndef MUSTER_LIBCOMM_TCP_HANDSHAKE_H
#define MUSTER_LIBCOMM_TCP_HANDSHAKE_H

#include "libcomm/world.h"

#include <poll.h>

enum hello_kind {
	HELLO_DATA, /* carries a group's messages from here on */
	HELLO_OOB,  /* carries notes, see side.h */
};

struct hello {
	char magic[8];
	uint64_t group;
	uint32_t kind, from, to; /* world ranks */
	uint16_t lane, lanes;    /* of a link: which of how many */
	uint32_t integrity, aes; /* enum comm_integrity; whether this processor has AES-256-GCM */
	unsigned char nonce[32];
};

struct handshake;
struct records;

/* Begins to connect to world rank what->to; of `what` also kind, and for a link group and lane,
 * are set. */
int comm_handshake_connect(const struct world *w, const struct hello *what, struct handshake **out,
			   struct err *e);
/* Begins with a connection that came in; the descriptor is taken over in any case. */
int comm_handshake_accept(const struct world *w, int fd, struct handshake **out, struct err *e);
/* 1 both have proved themselves, 0 not yet, -1 the connection is of no use. */
int comm_handshake_step(struct handshake *h, struct err *e);
/* The other end is there, or was: it accepted the connection. */
bool comm_handshake_connected(const struct handshake *h);
/* The errno with which the other end could not be reached, or 0. */
int comm_handshake_errno(const struct handshake *h);
int comm_handshake_fd(const struct handshake *h);
void comm_handshake_poll(const struct handshake *h, struct pollfd *p);
/* What the connector said; NULL: it has not said all of it yet. */
const struct hello *comm_handshake_hello(const struct handshake *h);
/* Frees the rest and returns the descriptor; *records: what its bytes go through from now on,
 * NULL without integrity. */
int comm_handshake_finish(struct handshake *h, struct records **records);
/* Closes the connection. Takes NULL. */
void comm_handshake_free(struct handshake *h);

#endif
