#include "base/auth.h"

#include "base/seal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
	NONCE_BYTES = crypto_scalarmult_BYTES,
	PROOF_BYTES = crypto_auth_BYTES,
	MAGIC_BYTES = 7,
	HELLO_BYTES = NONCE_BYTES + PROOF_BYTES, /* after the magic and how */
};

_Static_assert((int)AUTH_SECRET_BYTES == (int)crypto_auth_KEYBYTES, "the secret keys the HMAC");
_Static_assert((int)AUTH_ABOUT_BYTES == (int)PROOF_BYTES, "a credential is about an HMAC");
_Static_assert((int)SEAL_KEY_BYTES == (int)crypto_auth_BYTES, "an HMAC keys the seal");

static const char magic[MAGIC_BYTES] = { 'M', 'U', 'S', 'T', 'E', 'R', '2' };

enum how { SECRET_ALONE = 0, SECRET_AND_MUNGE = 'M' };

enum state {
	WAIT_MAGIC,
	WAIT_HELLO,
	WAIT_REPLY,
	WAIT_PROOF,
	WAIT_CREDENTIAL,
	VOUCHING,
	READY,
	BROKEN
};

struct channel {
	enum auth_side side;
	enum state state;
	enum how how;
	uint32_t generation;
	unsigned char secret[AUTH_SECRET_BYTES];
	unsigned char own[crypto_scalarmult_SCALARBYTES]; /* the private half of our nonce */
	unsigned char nonce_a[NONCE_BYTES], nonce_s[NONCE_BYTES];
	unsigned char shared[crypto_scalarmult_BYTES]; /* secret of the two key pairs */
	struct vouch vouch;                            /* work to hand out, while `wanting` */
	bool wanting;
	struct seal sending, receiving;
	struct buf in, out;
	size_t taken; /* bytes of `in` that are consumed */
	/* u32 length and opened body of each message sent before the handshake was done */
	struct buf queued;
	struct err why; /* in the state BROKEN */
};

void auth_secret_new(unsigned char secret[AUTH_SECRET_BYTES])
{
	randombytes_buf(secret, AUTH_SECRET_BYTES);
}

void auth_secret_hex(const unsigned char secret[AUTH_SECRET_BYTES], char out[AUTH_SECRET_HEX])
{
	sodium_bin2hex(out, AUTH_SECRET_HEX, secret, AUTH_SECRET_BYTES);
}

int auth_secret_parse(const char *hex, unsigned char secret[AUTH_SECRET_BYTES], struct err *e)
{
	size_t len = 0;
	const char *end = NULL;
	unsigned char read[AUTH_SECRET_BYTES];
	int bad = strlen(hex) != AUTH_SECRET_HEX - 1 ||
		  sodium_hex2bin(read, sizeof read, hex, AUTH_SECRET_HEX - 1, NULL, &len, &end) ||
		  len != AUTH_SECRET_BYTES || *end;
	if (!bad)
		memcpy(secret, read, sizeof read);
	sodium_memzero(read, sizeof read);
	/* The text must not appear in a log. */
	return bad ? err_set(e, ERR_AUTH, "the secret is not %d hex digits", AUTH_SECRET_HEX - 1)
		   : 0;
}

void auth_secret_name(const unsigned char secret[AUTH_SECRET_BYTES], const char *about,
		      char out[AUTH_SECRET_HEX])
{
	unsigned char name[crypto_auth_BYTES];
	crypto_auth(name, (const unsigned char *)about, strlen(about), secret);
	auth_secret_hex(name, out);
}

static void make_nonce(struct channel *c, unsigned char nonce[NONCE_BYTES])
{
	randombytes_buf(c->own, sizeof c->own);
	crypto_scalarmult_base(nonce, c->own);
}

/* HMAC(secret, "H" how nonceA) */
static void prove_hello(const struct channel *c, unsigned char out[PROOF_BYTES])
{
	unsigned char text[2 + NONCE_BYTES] = { 'H', (unsigned char)c->how };
	memcpy(text + 2, c->nonce_a, NONCE_BYTES);
	crypto_auth(out, text, sizeof text, c->secret);
}

/* Queues the agent's first packet, in place of one that is already queued. */
static void say_hello(struct channel *c)
{
	unsigned char how = (unsigned char)c->how, proof[PROOF_BYTES];
	prove_hello(c, proof);
	buf_clear(&c->out);
	buf_add(&c->out, magic, sizeof magic);
	buf_add(&c->out, &how, 1);
	buf_add(&c->out, c->nonce_a, NONCE_BYTES);
	buf_add(&c->out, proof, sizeof proof);
}

int channel_open(enum auth_side side, const unsigned char secret[AUTH_SECRET_BYTES],
		 uint32_t generation, struct channel **out, struct err *e)
{
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL,
			       "libsodium cannot be initialized; is the installed version the one "
			       "that muster was built with?");
	struct channel *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "no memory for the control channel");
	c->side = side;
	c->generation = generation;
	memcpy(c->secret, secret, sizeof c->secret);
	c->state = WAIT_MAGIC;
	if (side == AUTH_AGENT) {
		make_nonce(c, c->nonce_a);
		say_hello(c);
		c->state = WAIT_REPLY;
	}
	if (buf_failed(&c->out)) {
		channel_close(c);
		return err_set(e, ERR_NOMEM, "no memory for the control channel");
	}
	*out = c;
	return 0;
}

void channel_close(struct channel *c)
{
	if (!c)
		return;
	buf_fini(&c->in);
	buf_fini(&c->out);
	buf_fini(&c->queued);
	vouch_fini(&c->vouch);
	sodium_memzero(c, sizeof *c);
	free(c);
}

void channel_require_vouch(struct channel *c)
{
	c->how = SECRET_AND_MUNGE;
	if (c->side == AUTH_AGENT)
		say_hello(c);
}

void vouch_fini(struct vouch *v)
{
	free(v->theirs);
	free(v->ours);
	*v = (struct vouch){ 0 };
}

struct buf *channel_out(struct channel *c)
{
	return &c->out;
}

bool channel_ready(const struct channel *c)
{
	return c->state == READY;
}

bool channel_greeted(const struct channel *c)
{
	return c->side == AUTH_SUPERVISOR && c->state > WAIT_HELLO && c->state < BROKEN;
}

/* Fails for good: every later call returns the first error. */
static int broken(struct channel *c, const struct err *why, struct err *e)
{
	if (c->state != BROKEN) {
		c->state = BROKEN;
		c->why = *why;
	}
	return err_set(e, c->why.code, "%s", c->why.text);
}

static int no_memory(struct channel *c, struct err *e)
{
	struct err why;
	err_set(&why, ERR_NOMEM, "no memory for the control channel");
	return broken(c, &why, e);
}

/* HMAC(secret, label nonceA nonceS), followed by the shared secret if there is one. */
static void prove_with(const struct channel *c, const char *label, const unsigned char *shared,
		       unsigned char out[PROOF_BYTES])
{
	crypto_auth_hmacsha512256_state h;
	crypto_auth_hmacsha512256_init(&h, c->secret, sizeof c->secret);
	crypto_auth_hmacsha512256_update(&h, (const unsigned char *)label, strlen(label));
	crypto_auth_hmacsha512256_update(&h, c->nonce_a, NONCE_BYTES);
	crypto_auth_hmacsha512256_update(&h, c->nonce_s, NONCE_BYTES);
	if (shared)
		crypto_auth_hmacsha512256_update(&h, shared, crypto_scalarmult_BYTES);
	crypto_auth_hmacsha512256_final(&h, out);
	sodium_memzero(&h, sizeof h);
}

static void prove(const struct channel *c, const char *label, unsigned char out[PROOF_BYTES])
{
	prove_with(c, label, NULL, out);
}

/* The handshake is done: sends the queued messages. */
static void become_ready(struct channel *c)
{
	c->state = READY;
	for (size_t at = 0; at < c->queued.len;) {
		uint32_t len = seal_length((unsigned char *)c->queued.data + at);
		seal_frame(&c->sending, &c->out, c->queued.data + at + SEAL_LENGTH_BYTES, len);
		at += SEAL_LENGTH_BYTES + len;
	}
	buf_fini(&c->queued);
}

static void want_own_credential(struct channel *c)
{
	c->vouch.make = true;
	prove(c, c->side == AUTH_AGENT ? "VA" : "VS", c->vouch.ours_about);
}

/* The peer knows the secret: makes the keys. The agent sends its credential first. The supervisor,
 * which anybody can reach, makes one only for an agent whose credential is valid. */
static int trust_secret(struct channel *c, struct err *why)
{
	bool agent = c->side == AUTH_AGENT;
	if (crypto_scalarmult(c->shared, c->own, agent ? c->nonce_s : c->nonce_a))
		return err_set(why, ERR_PROTO,
			       "control channel: the peer's nonce is not a valid public key");
	prove_with(c, agent ? "k>" : "k<", c->shared, c->sending.key);
	prove_with(c, agent ? "k<" : "k>", c->shared, c->receiving.key);
	sodium_memzero(c->own, sizeof c->own);
	sodium_memzero(c->shared, sizeof c->shared);
	if (c->how == SECRET_ALONE) {
		become_ready(c);
	} else if (agent) {
		want_own_credential(c);
		c->wanting = true;
		c->state = VOUCHING;
	} else {
		c->state = WAIT_CREDENTIAL;
	}
	return 0;
}

static int wrong_proof(struct err *why)
{
	return err_set(why, ERR_AUTH,
		       "control channel: the peer does not know this launch's secret; "
		       "is it an agent or a supervisor of another launch?");
}

static const char *how_words(int how)
{
	return how == SECRET_AND_MUNGE ? "the secret and a MUNGE credential" : "the secret alone";
}

static int take_magic(struct channel *c, const unsigned char *in, struct err *why)
{
	if (memcmp(in, magic, MAGIC_BYTES))
		return err_set(
			why, ERR_PROTO,
			"control channel: the peer does not speak muster's protocol, version 2");
	if (in[MAGIC_BYTES] != c->how)
		return err_set(why, ERR_AUTH,
			       "control channel: the peer offers %s, but this launch requires %s",
			       how_words(in[MAGIC_BYTES]), how_words(c->how));
	c->state = WAIT_HELLO;
	return 0;
}

static int take_hello(struct channel *c, const unsigned char *in, struct err *why)
{
	unsigned char proof[PROOF_BYTES];
	memcpy(c->nonce_a, in, NONCE_BYTES);
	prove_hello(c, proof);
	if (sodium_memcmp(proof, in + NONCE_BYTES, PROOF_BYTES))
		return wrong_proof(why);
	make_nonce(c, c->nonce_s); /* made only now, so that a stranger does not cost a key pair */
	prove(c, "S", proof);
	buf_add(&c->out, c->nonce_s, NONCE_BYTES);
	buf_add(&c->out, proof, sizeof proof);
	c->state = WAIT_PROOF;
	return 0;
}

static int take_reply(struct channel *c, const unsigned char *in, struct err *why)
{
	unsigned char proof[PROOF_BYTES];
	memcpy(c->nonce_s, in, NONCE_BYTES);
	prove(c, "S", proof);
	if (sodium_memcmp(proof, in + NONCE_BYTES, PROOF_BYTES))
		return wrong_proof(why);
	prove(c, "A", proof);
	buf_add(&c->out, proof, sizeof proof);
	return trust_secret(c, why);
}

static int take_proof(struct channel *c, const unsigned char *in, struct err *why)
{
	unsigned char proof[PROOF_BYTES];
	prove(c, "A", proof);
	if (sodium_memcmp(proof, in, PROOF_BYTES))
		return wrong_proof(why);
	return trust_secret(c, why);
}

static bool credential_fits(uint32_t len)
{
	return len > SEAL_TAG_BYTES && len <= AUTH_CREDENTIAL_MAX + SEAL_TAG_BYTES;
}

static int take_credential(struct channel *c, const unsigned char *in, struct err *why)
{
	uint32_t len = seal_length(in);
	if (!credential_fits(len))
		return err_set(why, ERR_PROTO,
			       "control channel: a credential of %u bytes; %d are allowed", len,
			       AUTH_CREDENTIAL_MAX);
	if (seal_open(&c->receiving, in + SEAL_LENGTH_BYTES, len, &c->vouch.theirs, why))
		return -1;
	if (strlen(c->vouch.theirs) != len - SEAL_TAG_BYTES)
		return err_set(why, ERR_PROTO, "control channel: the credential contains a NUL");
	prove(c, c->side == AUTH_AGENT ? "VS" : "VA", c->vouch.theirs_about);
	if (c->side == AUTH_SUPERVISOR)
		want_own_credential(c);
	c->wanting = true;
	c->state = VOUCHING;
	return 0;
}

/* The bytes that each state of the handshake waits for. */
static const struct {
	size_t bytes;
	int (*take)(struct channel *c, const unsigned char *in, struct err *why);
} steps[] = {
	[WAIT_MAGIC] = { MAGIC_BYTES + 1, take_magic },
	[WAIT_HELLO] = { HELLO_BYTES, take_hello },
	[WAIT_REPLY] = { NONCE_BYTES + PROOF_BYTES, take_reply },
	[WAIT_PROOF] = { PROOF_BYTES, take_proof },
	[WAIT_CREDENTIAL] = { SEAL_LENGTH_BYTES,
			      take_credential }, /* a length, then that many bytes */
};

static size_t step_bytes(const struct channel *c, const unsigned char *in, size_t have)
{
	size_t least = steps[c->state].bytes;
	if (c->state != WAIT_CREDENTIAL || have < least || !credential_fits(seal_length(in)))
		return least;
	return least + seal_length(in);
}

/* Continues the handshake as far as the received bytes permit. */
static int shake(struct channel *c, struct err *e)
{
	size_t have;
	while (c->state < VOUCHING && (have = c->in.len - c->taken) > 0) {
		const unsigned char *at = (unsigned char *)c->in.data + c->taken;
		struct err why = ERR_INIT;
		size_t bytes = step_bytes(c, at, have);
		if (have < bytes)
			break;
		c->taken += bytes;
		if (steps[c->state].take(c, at, &why))
			return broken(c, &why, e);
	}
	return buf_failed(&c->out) ? no_memory(c, e) : 0;
}

int channel_feed(struct channel *c, const void *data, size_t len, struct err *e)
{
	struct err why = ERR_INIT;
	if (c->state == BROKEN)
		return broken(c, &c->why, e);
	buf_drop(&c->in, c->taken);
	c->taken = 0;
	buf_add(&c->in, data, len);
	if (buf_failed(&c->in))
		return no_memory(c, e);
	/* Nothing is consumed meanwhile, so the buffer is limited. */
	if (c->state == VOUCHING && c->in.len > MSG_MAX) {
		err_set(&why, ERR_PROTO,
			"control channel: the peer does not wait for the end of the handshake");
		return broken(c, &why, e);
	}
	return shake(c, e);
}

bool channel_wants(struct channel *c, struct vouch *v)
{
	if (c->state != VOUCHING || !c->wanting)
		return false;
	c->wanting = false;
	*v = c->vouch;
	c->vouch = (struct vouch){ 0 };
	return true;
}

int channel_vouched(struct channel *c, const struct vouch *v, const struct err *failed,
		    struct err *e)
{
	struct err why = ERR_INIT;
	if (c->state == BROKEN)
		return broken(c, &c->why, e);
	if (c->state != VOUCHING || c->wanting)
		return err_set(e, ERR_INTERNAL,
			       "control channel: got a credential result that it did not request");
	if (failed) {
		err_set(&why, failed->code, "control channel: %s", failed->text);
		return broken(c, &why, e);
	}
	if (v->make)
		seal_frame(&c->sending, &c->out, v->ours, strlen(v->ours));
	if (v->theirs)
		become_ready(c);
	else
		c->state = WAIT_CREDENTIAL;
	return shake(c, e);
}

/* Opens the frame's `len` sealed bytes and reads the message in it. */
static int open_frame(struct channel *c, const unsigned char *sealed, size_t len, struct msg *m,
		      struct err *why)
{
	char *body;
	if (seal_open(&c->receiving, sealed, len, &body, why))
		return -1;
	int rc = msg_unpack(body, len - SEAL_TAG_BYTES, c->generation, m, why);
	free(body);
	return rc;
}

int channel_next(struct channel *c, struct msg *m, struct err *e)
{
	if (c->state == BROKEN)
		return broken(c, &c->why, e);
	size_t have = c->in.len - c->taken;
	if (c->state != READY || have < SEAL_LENGTH_BYTES)
		return 0;
	const unsigned char *at = (unsigned char *)c->in.data + c->taken;
	struct err why = ERR_INIT;
	uint32_t len = seal_length(at);
	if (len > MSG_MAX || len < SEAL_TAG_BYTES) {
		err_set(&why, ERR_PROTO,
			"control channel: a frame of %u bytes; %d to %d are allowed", len,
			SEAL_TAG_BYTES, MSG_MAX);
		return broken(c, &why, e);
	}
	if (have - SEAL_LENGTH_BYTES < len)
		return 0;
	struct msg got = { 0 };
	c->taken += SEAL_LENGTH_BYTES + len;
	if (open_frame(c, at + SEAL_LENGTH_BYTES, len, &got, &why)) {
		msg_fini(&got);
		return why.code == ERR_STALE ? err_set(e, why.code, "%s", why.text)
					     : broken(c, &why, e);
	}
	*m = got;
	return 1;
}

int channel_send_packed(struct channel *c, const struct buf *packed, struct err *e)
{
	if (c->state == BROKEN)
		return broken(c, &c->why, e);
	if (packed->len > MSG_MAX - SEAL_TAG_BYTES)
		return err_set(e, ERR_PROTO, "a message has %zu bytes; %d are allowed", packed->len,
			       MSG_MAX - SEAL_TAG_BYTES);
	if (c->state == READY) {
		seal_frame(&c->sending, &c->out, packed->data, packed->len);
	} else {
		unsigned char len[SEAL_LENGTH_BYTES];
		seal_put_length(len, (uint32_t)packed->len);
		buf_add(&c->queued, len, sizeof len);
		buf_add(&c->queued, packed->data, packed->len);
	}
	return buf_failed(&c->out) || buf_failed(&c->queued) ? no_memory(c, e) : 0;
}

void channel_renew(struct channel *c, uint32_t generation)
{
	c->generation = generation;
}

int channel_send(struct channel *c, enum msg_type type, json_t *body, struct err *e)
{
	struct buf packed = BUF_INIT;
	int rc = msg_pack(type, c->generation, body, &packed, e);
	if (!rc && channel_send_packed(c, &packed, e))
		rc = c->state == BROKEN ? -1 : err_prefix(e, "message %s", msg_word(type));
	buf_fini(&packed);
	return rc;
}
