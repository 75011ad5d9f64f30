/*
 * auth — both ends of the control channel prove who they are; then every frame is sealed.
 * launcher/connections.h lists all checks that an agent passes.
 *
 * The secret, 32 random bytes, is new in each generation. It reaches the agents in their
 * environment, never on a command line. In the handshake each side makes a fresh X25519 key pair;
 * its public half (32 bytes) is the side's nonce:
 *
 *     agent      -> supervisor   "MUSTER2" how, nonceA, HMAC(secret, "H" how nonceA)
 *                                how: 0 for the secret alone, 'M' for the secret and MUNGE
 *     supervisor -> agent        nonceS, HMAC(secret, "S" nonceA nonceS)
 *     agent      -> supervisor   HMAC(secret, "A" nonceA nonceS)
 *
 * With 'M' two frames follow:
 *
 *     agent      -> supervisor   the credential about HMAC(secret, "VA" nonceA nonceS)
 *     supervisor -> agent        the credential about HMAC(secret, "VS" nonceA nonceS)
 *
 * The keys of the two directions are HMAC(secret, "k>" …) and HMAC(secret, "k<" …) of the nonces
 * and of the secret that the two key pairs share. Frames are sealed with XChaCha20-Poly1305
 * (libsodium) under a counter as the nonce, so a frame that is changed, dropped, repeated or moved
 * does not open. HMAC is crypto_auth (HMAC-SHA512-256).
 *
 * The first packet already proves the secret, so the supervisor can distinguish agents from
 * strangers at little cost (channel_greeted). It does not prove freshness: whoever recorded it can
 * send it again, but cannot complete the handshake.
 *
 * Under Slurm the secret travels in srun's environment, which somebody who reads Slurm's traffic
 * may learn. MUNGE credentials (base/munge.h) protect against that: each is about the two public
 * keys, so it proves that a process of our user id holds the keys of this very connection. A
 * credential of another handshake, a reflected one, and one forwarded by somebody in the middle who
 * substituted keys do not fit. Somebody in the middle who changes nothing cannot read.
 *
 * Each side knows before the first byte whether credentials are required. This is never negotiated:
 * a peer that offers less is refused.
 *
 * A channel does no I/O. The caller feeds received bytes and takes bytes to send. MUNGE work, which
 * may block, is handed out and its result handed in (channel_wants). Therefore the agent's thread,
 * the supervisor's loop and the fuzzer use the same code.
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
/* A name that only those who know the secret can find: the hex digits of HMAC(secret, about). It says
 * nothing about the secret. `about` must not begin as a text of the handshake. */
void auth_secret_name(const unsigned char secret[AUTH_SECRET_BYTES], const char *about,
		      char out[AUTH_SECRET_HEX]);

enum auth_side { AUTH_AGENT, AUTH_SUPERVISOR };

/* Work that a handshake waits for: check the peer's credential, then make our own. */
struct vouch {
	char *theirs; /* NULL: none to check */
	unsigned char theirs_about[AUTH_ABOUT_BYTES], ours_about[AUTH_ABOUT_BYTES];
	bool make;  /* whether to make one */
	char *ours; /* result */
};

void vouch_fini(struct vouch *v);

/* The implementation of that work: munge_parse() sets it; tests have their own. */
struct voucher {
	/* any thread; may block */
	int (*work)(const struct voucher *by, struct vouch *v, struct err *e);
	/* the socket of munged; "": libmunge's default */
	char socket[AUTH_SOCKET];
};

struct channel; /* the state of one connection */

/* Copies the secret; channel_close() wipes the copy. */
int channel_open(enum auth_side side, const unsigned char secret[AUTH_SECRET_BYTES],
		 uint32_t generation, struct channel **out, struct err *e);
void channel_close(struct channel *c);
/* Requires a credential of the peer. Call directly after channel_open(). */
void channel_require_vouch(struct channel *c);

/* Takes bytes that came from the socket. After an error (a wrong proof or frame) the channel is
 * unusable. */
int channel_feed(struct channel *c, const void *data, size_t len, struct err *e);
/* Whether the handshake waits for work, which *v describes and the caller owns. Call it after each
 * channel_feed(); it returns true once per piece of work. */
bool channel_wants(struct channel *c, struct vouch *v);
/* Hands in the result of the work; failed: its error, or NULL. The caller calls vouch_fini(). */
int channel_vouched(struct channel *c, const struct vouch *v, const struct err *failed,
		    struct err *e);
/* 1: *m is the next whole message. 0: there is none yet. -1: an error; after ERR_STALE the channel
 * is still usable, after any other it is not. */
int channel_next(struct channel *c, struct msg *m, struct err *e);
/* Queues a sealed message, until the handshake is done if need be. Borrows `body`. */
int channel_send(struct channel *c, enum msg_type type, json_t *body, struct err *e);
/* The same for a message that msg_pack() has packed, with the generation of the channel: for one that
 * goes to many peers. */
int channel_send_packed(struct channel *c, const struct buf *packed, struct err *e);
/* From now on messages are of this generation, in both directions. Both ends call it between the same
 * two messages of the supervisor. */
void channel_renew(struct channel *c, uint32_t generation);
/* The bytes to write to the socket; the caller removes (buf_drop) what it wrote. */
struct buf *channel_out(struct channel *c);
bool channel_ready(const struct channel *c); /* the handshake is done */
/* At the supervisor: the peer's first packet has come and proves that it knows the secret. */
bool channel_greeted(const struct channel *c);

#endif
