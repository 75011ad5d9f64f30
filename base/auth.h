/*
 * auth — both ends of the control channel prove who they are, then every
 * frame is sealed.
 *
 * The secret (32 random bytes, new in each generation) reaches the agents in
 * their environment, never on a command line. Handshake, each side with a
 * fresh 32-byte nonce:
 *
 *     agent      -> supervisor   "MUSTER1\0" nonceA
 *     supervisor -> agent        nonceS, HMAC(secret, "S" nonceA nonceS)
 *     agent      -> supervisor   HMAC(secret, "A" nonceA nonceS)
 *
 * The two directions' keys are HMAC(secret, "k>" …) and HMAC(secret, "k<" …)
 * of the nonces. Frames are sealed with XChaCha20-Poly1305 (libsodium) under a
 * counter as the nonce, so a frame that is changed, dropped, repeated or moved
 * does not open. HMAC is crypto_auth (HMAC-SHA512-256).
 *
 * A channel does no I/O: bytes are fed in and taken out, so that the agent's
 * thread, the supervisor's loop and the fuzzer use the same code.
 */
#ifndef MUSTER_BASE_AUTH_H
#define MUSTER_BASE_AUTH_H

#include "base/buf.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>

enum { AUTH_SECRET_BYTES = 32, AUTH_SECRET_HEX = 65 };

void auth_secret_new(unsigned char secret[AUTH_SECRET_BYTES]);
void auth_secret_hex(const unsigned char secret[AUTH_SECRET_BYTES], char out[AUTH_SECRET_HEX]);
int auth_secret_parse(const char *hex, unsigned char secret[AUTH_SECRET_BYTES], struct err *e);

enum auth_side { AUTH_AGENT, AUTH_SUPERVISOR };

struct channel; /* one connection's state */

/* The secret is copied and wiped at close. */
int channel_open(enum auth_side side, const unsigned char secret[AUTH_SECRET_BYTES],
		 uint32_t generation, struct channel **out, struct err *e);
void channel_close(struct channel *c);

/* Bytes that came from the socket. Fails for good on a wrong proof or frame. */
int channel_feed(struct channel *c, const void *data, size_t len, struct err *e);
/* The next whole message: 1 and *m is set, 0 when there is none yet, -1 on error.
 * ERR_STALE leaves the channel usable; every other error does not. */
int channel_next(struct channel *c, struct msg *m, struct err *e);
/* Seals a message into the bytes to send (queued until the handshake is done). */
int channel_send(struct channel *c, enum msg_type type, json_t *body, struct err *e);
/* What is to be written to the socket; the caller drops (buf_drop) what it wrote. */
struct buf *channel_out(struct channel *c);
bool channel_ready(const struct channel *c); /* the handshake is done */

#endif
