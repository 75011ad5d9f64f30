/*
 * handshake — two ranks prove to each other that they belong to the same world.
 *
 *     connector -> acceptor   hello, with a nonce
 *     acceptor  -> connector  answer, with a nonce; HMAC(secret, "A" hello answer)
 *     connector -> acceptor   HMAC(secret, "C" hello answer)
 *
 * Both send their [network] integrity, which must be equal. It is never negotiated, and a man in
 * the middle cannot change it. The keys of the two directions' records (records.h) are HMAC(secret,
 * ">" hello answer) and HMAC(secret, "<" …). With seal the nonces are the public halves of fresh
 * X25519 key pairs, and the shared secret of the two also enters the HMAC, so that somebody who
 * learns the secret later cannot decrypt recorded traffic. The cipher is AES-256-GCM if both
 * processors have instructions for it.
 *
 * secret is the acceptor's: 32 random bytes that only the bootstrap distributes. HMAC is
 * libsodium's crypto_auth, compared in constant time. No call waits: comm_handshake_step does what
 * is possible now.
 */
#ifndef MUSTER_LIBCOMM_TCP_HANDSHAKE_H
#define MUSTER_LIBCOMM_TCP_HANDSHAKE_H

#include "libcomm/world.h"

#include <poll.h>

enum hello_kind {
	HELLO_DATA, /* carries a group's messages after the handshake */
	HELLO_OOB,  /* carries notes, see oob.h */
};

struct hello {
	char magic[8];
	uint64_t group;
	uint32_t kind, from, to; /* world ranks */
	uint16_t lane, lanes;    /* HELLO_DATA: which lane of how many */
	uint32_t integrity, aes; /* enum comm_integrity; whether this processor has AES-256-GCM */
	unsigned char nonce[32];
};

struct handshake;
struct records;

/* Starts to connect to world rank what->to. Of `what`, kind must be set too, and for HELLO_DATA
 * group and lane. */
int comm_handshake_connect(const struct world *w, const struct hello *what, struct handshake **out,
			   struct err *e);
/* Starts with an accepted connection. Takes over the descriptor, also on failure. */
int comm_handshake_accept(const struct world *w, int fd, struct handshake **out, struct err *e);
/* 1: both ends have authenticated; 0: not yet; -1: the connection failed. */
int comm_handshake_step(struct handshake *h, struct err *e);
/* Whether the other end has accepted the connection. */
bool comm_handshake_connected(const struct handshake *h);
/* The errno with which connecting failed, or 0. */
int comm_handshake_errno(const struct handshake *h);
int comm_handshake_fd(const struct handshake *h);
void comm_handshake_poll(const struct handshake *h, struct pollfd *p);
/* The connector's hello. NULL: it is not complete yet. */
const struct hello *comm_handshake_hello(const struct handshake *h);
/* Returns the descriptor and frees the rest. *records: what its bytes go through from now on; NULL
 * without integrity. */
int comm_handshake_finish(struct handshake *h, struct records **records);
/* Closes the connection. Takes NULL. */
void comm_handshake_free(struct handshake *h);

#endif
