/* A lying peer: the first byte says whom it plays and how far the honest
 * handshake goes; the rest is what it sends, in pieces. */
#include "base/auth.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned char secret[AUTH_SECRET_BYTES] = { 1, 2, 3 };

static void drain(struct channel *c)
{
	struct msg m;
	while (channel_next(c, &m, NULL) == 1)
		msg_fini(&m);
}

static void carry(struct channel *from, struct channel *to)
{
	struct buf *b = channel_out(from);
	channel_feed(to, b->data, b->len, NULL);
	buf_clear(b);
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
	struct channel *agent, *supervisor;
	if (channel_open(AUTH_AGENT, secret, 1, &agent, NULL))
		abort();
	if (channel_open(AUTH_SUPERVISOR, secret, 1, &supervisor, NULL))
		abort();
	int honest = *data & 3;
	if (honest > 0)
		carry(agent, supervisor);
	if (honest > 1)
		carry(supervisor, agent);
	if (honest > 2)
		carry(agent, supervisor);
	struct channel *victim = *data & 4 ? agent : supervisor;
	bool was_ready = channel_ready(victim);
	lie(victim, data + 1, size - 1, (size_t)(*data >> 3) + 1);
	/* Nothing but the secret makes a channel ready. */
	if (!was_ready && channel_ready(victim))
		abort();
	channel_close(agent);
	channel_close(supervisor);
	return 0;
}
