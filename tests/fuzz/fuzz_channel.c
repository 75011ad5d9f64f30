/* A hostile peer. The first byte chooses its role, and how far the honest handshake goes. The
 * remaining bytes are what it sends, in pieces. If the highest bit of the first byte is set, the
 * ends want credentials; the remaining bytes up to a NUL are then the credential that a peer with
 * the secret shows. */
#include "base/auth.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned char secret[AUTH_SECRET_BYTES] = { 1, 2, 3 };

static void drain(struct channel *c)
{
	struct msg m;
	while (channel_next(c, &m, NULL) == 1)
		msg_fini(&m);
}

/* The answers of munged: one credential is good, and another is shown in its place. */
static const char good[] = "good";

static void ask(struct channel *c, const char *shown)
{
	struct vouch v;
	while (channel_wants(c, &v)) {
		struct err why = ERR_INIT;
		int failed = v.theirs && strcmp(v.theirs, good) ? err_set(&why, ERR_AUTH, "no") : 0;
		v.ours = v.make ? strdup(shown) : NULL;
		if (!v.make || v.ours)
			channel_vouched(c, &v, failed ? &why : NULL, NULL);
		vouch_fini(&v);
	}
}

/* Carries what `from` sends. `to` shows its peer a credential if it is asked for one. */
static void carry_bytes(struct channel *from, struct channel *to, const char *shown)
{
	struct buf *b = channel_out(from);
	channel_feed(to, b->data, b->len, NULL);
	buf_clear(b);
	ask(to, shown);
}

static struct channel *opened(enum auth_side side, bool vouched)
{
	struct channel *c;
	if (channel_open(side, secret, 1, &c, NULL))
		abort();
	if (vouched)
		channel_require_vouch(c);
	return c;
}

/* The peer knows the secret and completes the handshake. Only a good credential makes a channel
 * ready. */
static void show(struct channel *agent, struct channel *supervisor, bool to_agent,
		 const char *shown)
{
	struct channel *victim = to_agent ? agent : supervisor;
	for (int turn = 0; turn < 3; turn++) {
		carry_bytes(agent, supervisor, to_agent ? shown : good);
		carry_bytes(supervisor, agent, to_agent ? good : shown);
	}
	drain(victim);
	if (channel_ready(victim) != !strcmp(shown, good))
		abort();
}

static void lie(struct channel *victim, const uint8_t *data, size_t size, size_t piece)
{
	while (size) {
		size_t n = size < piece ? size : piece;
		channel_feed(victim, data, n, NULL);
		drain(victim);
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	bool vouched = *data & 0x80;
	struct channel *agent = opened(AUTH_AGENT, vouched),
		       *supervisor = opened(AUTH_SUPERVISOR, vouched);
	char *shown = strndup((const char *)data + 1, size - 1);
	int honest = *data & 3;
	if (vouched && shown)
		show(agent, supervisor, *data & 4, shown);
	if (honest > 0)
		carry_bytes(agent, supervisor, good);
	if (honest > 1)
		carry_bytes(supervisor, agent, good);
	if (honest > 2)
		carry_bytes(agent, supervisor, good);
	struct channel *victim = *data & 4 ? agent : supervisor;
	bool was_ready = channel_ready(victim);
	lie(victim, data + 1, size - 1, (size_t)(*data >> 3 & 15) + 1);
	/* Only the secret makes a channel ready. */
	if (!was_ready && channel_ready(victim))
		abort();
	free(shown);
	channel_close(agent);
	channel_close(supervisor);
	return 0;
}
