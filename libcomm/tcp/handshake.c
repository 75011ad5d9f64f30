#include "libcomm/tcp/handshake.h"

#include "libcomm/tcp/records.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char magic[8] = "MUSTCOM";

enum { NONCE = 32, TAG = crypto_auth_BYTES };

struct reply {
	unsigned char nonce[NONCE];
	uint32_t integrity, aes;
	unsigned char tag[TAG]; /* over all fields before it: the acceptor's proof */
};
_Static_assert(sizeof(struct reply) == NONCE + 8 + TAG, "a reply has no padding");
_Static_assert(NONCE == crypto_scalarmult_BYTES && (int)TAG == (int)RECORD_KEY,
	       "nonces are public keys, tags are keys");
_Static_assert(sizeof(struct hello) == 72, "a hello has no padding");
_Static_assert(crypto_auth_KEYBYTES == SECRET_BYTES, "a secret is a key");

struct handshake {
	const struct world *w;
	const char *address;         /* connector: address of the peer */
	const unsigned char *secret; /* the acceptor's */
	int fd, phase, error;
	const struct phase *phases;
	struct hello hello;
	struct reply reply;
	/* seal: the private half of this end's nonce */
	unsigned char own[crypto_scalarmult_SCALARBYTES];
	struct records *records;  /* once both ends have authenticated */
	unsigned char proof[TAG]; /* the connector's */
	size_t done;              /* bytes of this phase */
};

/* One message of the handshake, or the wait for the connection (size 0). */
struct phase {
	bool out;
	size_t offset, size;
	int (*finish)(struct handshake *h, struct err *e);
};

static void make_tag_with(const struct handshake *h, char side, const unsigned char *shared,
			  unsigned char tag[TAG])
{
	crypto_auth_hmacsha512256_state s;
	crypto_auth_hmacsha512256_init(&s, h->secret, SECRET_BYTES);
	crypto_auth_hmacsha512256_update(&s, (const unsigned char *)&side, 1);
	crypto_auth_hmacsha512256_update(&s, (const unsigned char *)&h->hello, sizeof h->hello);
	crypto_auth_hmacsha512256_update(&s, (const unsigned char *)&h->reply,
					 offsetof(struct reply, tag));
	if (shared)
		crypto_auth_hmacsha512256_update(&s, shared, crypto_scalarmult_BYTES);
	crypto_auth_hmacsha512256_final(&s, tag);
	sodium_memzero(&s, sizeof s);
}

static void make_tag(const struct handshake *h, char side, unsigned char tag[TAG])
{
	make_tag_with(h, side, NULL, tag);
}

/* This end's nonce: the public half of a key pair if one is needed. */
static void make_nonce(struct handshake *h, unsigned char nonce[NONCE])
{
	randombytes_buf(nonce, NONCE);
	if (h->w->integrity != COMM_INTEGRITY_SEAL)
		return;
	memcpy(h->own, nonce, NONCE);
	crypto_scalarmult_base(nonce, h->own);
}

/* Called once the other end has authenticated. */
static int make_records(struct handshake *h, bool connects, struct err *e)
{
	unsigned char shared[crypto_scalarmult_BYTES], to[TAG], back[TAG];
	enum comm_integrity mode = h->w->integrity;
	bool seal = mode == COMM_INTEGRITY_SEAL;
	if (mode == COMM_INTEGRITY_NONE)
		return 0;
	if (seal && crypto_scalarmult(shared, h->own, connects ? h->reply.nonce : h->hello.nonce))
		return err_set(e, ERR_PROTO, "the other end's nonce is not a public key");
	make_tag_with(h, '>', seal ? shared : NULL, to);
	make_tag_with(h, '<', seal ? shared : NULL, back);
	int rc = comm_records_new(mode, h->hello.aes && h->reply.aes, connects ? to : back,
				  connects ? back : to, &h->records, e);
	sodium_memzero(shared, sizeof shared);
	sodium_memzero(h->own, sizeof h->own);
	sodium_memzero(to, sizeof to);
	sodium_memzero(back, sizeof back);
	return rc;
}

static int report_integrity(const struct handshake *h, int rank, uint32_t its, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "rank %d on host %s has [network] integrity = %s, this one %s; it must be "
		       "the same on all ranks",
		       rank, world_host(h->w, rank),
		       its < COMM_INTEGRITY_COUNT ? comm_integrity_name(its) : "?",
		       comm_integrity_name(h->w->integrity));
}

static int check_tag(const struct handshake *h, char side, const unsigned char *got, struct err *e)
{
	unsigned char want[TAG];
	make_tag(h, side, want);
	if (sodium_memcmp(want, got, TAG))
		return err_set(e, ERR_AUTH, "the other end does not know this job's secret");
	return 0;
}

static int finish_connect(struct handshake *h, struct err *e)
{
	int rc = net_connect_done(h->fd, h->address, e);
	h->error = rc < 0 ? errno : 0;
	return rc;
}

static int check_reply(struct handshake *h, struct err *e)
{
	if (check_tag(h, 'A', h->reply.tag, e))
		return -1;
	if (h->reply.integrity != h->w->integrity)
		return report_integrity(h, (int)h->hello.to, h->reply.integrity, e);
	make_tag(h, 'C', h->proof);
	return make_records(h, true, e);
}

static int check_hello(struct handshake *h, struct err *e)
{
	const struct hello *l = &h->hello;
	/* comm_card_get() checked that this is equal on all ranks */
	int lanes = l->kind == HELLO_DATA ? h->w->sockets : 0;
	if (memcmp(l->magic, magic, sizeof magic) || l->kind > HELLO_OOB || l->lanes != lanes ||
	    (l->lane && l->lane >= lanes) || l->to != (uint32_t)h->w->rank ||
	    l->from >= (uint32_t)h->w->size || l->from == l->to)
		return err_set(e, ERR_PROTO, "not a hello to this rank");
	make_nonce(h, h->reply.nonce);
	h->reply.integrity = h->w->integrity;
	h->reply.aes = comm_records_have_aes();
	/* a different integrity is refused only after the other end has authenticated */
	make_tag(h, 'A', h->reply.tag);
	return 0;
}

static int check_proof(struct handshake *h, struct err *e)
{
	if (check_tag(h, 'C', h->proof, e))
		return -1;
	if (h->hello.integrity != h->w->integrity)
		return report_integrity(h, (int)h->hello.from, h->hello.integrity, e);
	return make_records(h, false, e);
}

#define FIELD(f) offsetof(struct handshake, f), sizeof(((struct handshake *)0)->f)

static const struct phase connector[] = {
	{ true, 0, 0, finish_connect },
	{ true, FIELD(hello), NULL },
	{ false, FIELD(reply), check_reply },
	{ true, FIELD(proof), NULL },
	{ 0 },
};

static const struct phase acceptor[] = {
	{ false, FIELD(hello), check_hello },
	{ true, FIELD(reply), NULL },
	{ false, FIELD(proof), check_proof },
	{ 0 },
};

static bool is_over(const struct handshake *h)
{
	return !h->phases[h->phase].size && !h->phases[h->phase].finish;
}

static struct handshake *handshake_new(const struct world *w, const struct phase *phases,
				       struct err *e)
{
	struct handshake *h = calloc(1, sizeof *h);
	if (!h) {
		err_set(e, ERR_NOMEM, "no memory for a connection");
		return NULL;
	}
	h->w = w;
	h->phases = phases;
	h->fd = -1;
	return h;
}

int comm_handshake_connect(const struct world *w, const struct hello *what, struct handshake **out,
			   struct err *e)
{
	struct handshake *h = handshake_new(w, connector, e);
	if (!h)
		return -1;
	h->address = w->peers[what->to].address;
	h->secret = w->peers[what->to].secret;
	h->hello = *what;
	h->hello.from = (uint32_t)w->rank;
	memcpy(h->hello.magic, magic, sizeof magic);
	h->hello.integrity = w->integrity;
	h->hello.aes = comm_records_have_aes();
	make_nonce(h, h->hello.nonce);
	if (net_connect_start(h->address, &h->fd, e)) {
		comm_handshake_free(h);
		return -1;
	}
	*out = h;
	return 0;
}

int comm_handshake_accept(const struct world *w, int fd, struct handshake **out, struct err *e)
{
	struct handshake *h = handshake_new(w, acceptor, e);
	if (!h) {
		close(fd);
		return -1;
	}
	h->fd = fd;
	h->secret = w->peers[w->rank].secret;
	*out = h;
	return 0;
}

/* 1: all bytes of the phase have moved; 0: not yet; -1: error. */
static int move_bytes(struct handshake *h, const struct phase *p, struct err *e)
{
	if (!p->size) {
		struct pollfd ready = { .fd = h->fd, .events = POLLOUT };
		return poll(&ready, 1, 0) == 1;
	}
	while (h->done < p->size) {
		unsigned char *at = (unsigned char *)h + p->offset + h->done;
		ssize_t n = p->out ? send(h->fd, at, p->size - h->done, MSG_DONTWAIT | MSG_NOSIGNAL)
				   : recv(h->fd, at, p->size - h->done, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return err_errno(e, ERR_NET, "the connection ended in its handshake");
		if (n == 0)
			return err_set(e, ERR_NET,
				       "the other end closed the connection in its handshake");
		h->done += (size_t)n;
	}
	return 1;
}

int comm_handshake_step(struct handshake *h, struct err *e)
{
	while (!is_over(h)) {
		const struct phase *p = &h->phases[h->phase];
		int rc = move_bytes(h, p, e);
		if (rc <= 0)
			return rc;
		if (p->finish && p->finish(h, e))
			return -1;
		h->phase++;
		h->done = 0;
	}
	return 1;
}

bool comm_handshake_connected(const struct handshake *h)
{
	return h->phases[h->phase].size || is_over(h);
}

int comm_handshake_errno(const struct handshake *h)
{
	return h->error;
}

int comm_handshake_fd(const struct handshake *h)
{
	return h->fd;
}

void comm_handshake_poll(const struct handshake *h, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = h->fd, .events = h->phases[h->phase].out ? POLLOUT : POLLIN };
}

const struct hello *comm_handshake_hello(const struct handshake *h)
{
	return h->phases == acceptor && h->phase == 0 ? NULL : &h->hello;
}

int comm_handshake_finish(struct handshake *h, struct records **records)
{
	int fd = h->fd;
	*records = h->records;
	free(h);
	return fd;
}

void comm_handshake_free(struct handshake *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		close(h->fd);
	comm_records_free(h->records);
	sodium_memzero(h->own, sizeof h->own);
	free(h);
}
