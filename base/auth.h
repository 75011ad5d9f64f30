/*
 * auth — both ends of the control channel prove who they are, then every
 * frame is sealed.
 *
 * The secret (32 random bytes, new in each generation) reaches the agents in
 * their environment, never on a command line. Handshake, each side with a
 * fresh X25519 key pair whose public half (32 bytes) is its nonce:
 *
 *     agent      -> supervisor   "MUSTER2" how, nonceA, HMAC(secret, "H" how nonceA)
 *                                                           how: 0, or 'M' for the secret and MUNGE
 *     supervisor -> agent        nonceS, HMAC(secret, "S" nonceA nonceS)
 *     agent      -> supervisor   HMAC(secret, "A" nonceA nonceS)
 *     agent      -> supervisor   'M' only: frame of the credential about HMAC(secret, "VA" nonceA nonceS)
 *     supervisor -> agent        'M' only: frame of the credential about HMAC(secret, "VS" nonceA
 *                                nonceS)
 *
 * The two directions' keys are HMAC(secret, "k>" …) and HMAC(secret, "k<" …)
 * of the nonces and of what the two key pairs share. Frames are sealed with
 * XChaCha20-Poly1305 (libsodium) under a counter as the nonce, so a frame that
 * is changed, dropped, repeated or moved does not open. HMAC is crypto_auth
 * (HMAC-SHA512-256).
 *
 * The first packet proves the secret already, so the supervisor tells agents from
 * strangers before it spends anything on them (channel_greeted). It is no proof of
 * freshness: somebody who recorded it can send it again, and gets no further.
 *
 * Under Slurm the secret travels in srun's environment, which who reads
 * Slurm's traffic may come to know. MUNGE credentials (base/munge.h) keep such
 * a one out: each is about the two public keys, so it proves that a process of
 * our user id holds this very connection's key. One of another handshake, one
 * sent back, and one passed on by somebody in the middle who has put his own
 * keys in do not fit; somebody in the middle who changes nothing cannot read.
 * Whether they are asked for is settled before the first byte on either side
 * and never negotiated: a peer that comes with less is refused.
 *
 * A channel does no I/O: bytes are fed in and taken out, and work for MUNGE,
 * which may block, is handed out and its result handed in (channel_wants), so
 * that the agent's thread, the supervisor's loop and the fuzzer use the same code.
 */
#ifndef MUSTER_BASE_AUTH_H
#define MUSTER_BASE_AUTH_H

#include "base/buf.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>

enum {
	AUTH_SECRET_BYTES = 32,
	AUTH_SECRET_HEX = 65,
	AUTH_ABOUT_BYTES = 32,
	AUTH_CREDENTIAL_MAX = 4096,
	AUTH_SOCKET = 108
};

void auth_secret_new(unsigned char secret[AUTH_SECRET_BYTES]);
void auth_secret_hex(const unsigned char secret[AUTH_SECRET_BYTES], char out[AUTH_SECRET_HEX]);
int auth_secret_parse(const char *hex, unsigned char secret[AUTH_SECRET_BYTES], struct err *e);

enum auth_side { AUTH_AGENT, AUTH_SUPERVISOR };

/* What a handshake waits for: the peer's credential checked, then one of our own made. */
struct vouch {
	char *theirs; /* NULL: none to check */
	unsigned char theirs_about[AUTH_ABOUT_BYTES], ours_about[AUTH_ABOUT_BYTES];
	bool make;
	char *ours; /* the one made */
};

void vouch_fini(struct vouch *v);

/* Who does it: munge_parse's, or a test's. */
struct voucher {
	/* any thread; may block */
	int (*work)(const struct voucher *by, struct vouch *v, struct err *e);
	/* munged's; "": where libmunge looks */
	char socket[AUTH_SOCKET];
};

struct channel; /* one connection's state */

/* The secret is copied and wiped at close. */
int channel_open(enum auth_side side, const unsigned char secret[AUTH_SECRET_BYTES],
		 uint32_t generation, struct channel **out, struct err *e);
void channel_close(struct channel *c);
/* The peer must come with a credential, too. At once after channel_open. */
void channel_require_vouch(struct channel *c);

/* Bytes that came from the socket. Fails for good on a wrong proof or frame. */
int channel_feed(struct channel *c, const void *data, size_t len, struct err *e);
/* Work that the handshake waits for: true, once for each, and *v is the caller's; ask after each
 * feed. */
bool channel_wants(struct channel *c, struct vouch *v);
/* It is done; `failed` tells why not, NULL: it went well. The caller calls vouch_fini. */
int channel_vouched(struct channel *c, const struct vouch *v, const struct err *failed,
		    struct err *e);
/* The next whole message: 1 and *m is set, 0 when there is none yet, -1 on error.
 * ERR_STALE leaves the channel usable; every other error does not. */
int channel_next(struct channel *c, struct msg *m, struct err *e);
/* Seals a message into the bytes to send (queued until the handshake is done). */
int channel_send(struct channel *c, enum msg_type type, json_t *body, struct err *e);
/* What is to be written to the socket; the caller drops (buf_drop) what it wrote. */
struct buf *channel_out(struct channel *c);
bool channel_ready(const struct channel *c); /* the handshake is done */
/* The supervisor's end: the peer's first packet has come, and proves that it knows the secret. */
bool channel_greeted(const struct channel *c);

#endif
