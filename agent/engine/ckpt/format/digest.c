#include "agent/engine/ckpt/format/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct digester {
	XXH3_state_t *state;
};

static struct digest canonical(XXH128_hash_t h)
{
	XXH128_canonical_t c;
	struct digest d;
	XXH128_canonicalFromHash(&c, h);
	memcpy(d.bytes, c.digest, sizeof d.bytes);
	return d;
}

struct digest ckpt_digest_of(const void *data, size_t n)
{
	return canonical(XXH3_128bits(data, n));
}

bool ckpt_digest_equal(const struct digest *a, const struct digest *b)
{
	return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void ckpt_digest_hex(const struct digest *d, char out[DIGEST_HEX])
{
	for (int i = 0; i < DIGEST_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", d->bytes[i]);
}

bool ckpt_digest_parse(const char *hex, struct digest *out)
{
	static const char digits[] = "0123456789abcdef";
	struct digest d;
	if (strlen(hex) != 2 * DIGEST_BYTES)
		return false;
	for (int i = 0; i < DIGEST_BYTES; i++) {
		const char *high = strchr(digits, hex[2 * i]),
			   *low = strchr(digits, hex[2 * i + 1]);
		if (!high || !low)
			return false;
		d.bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
	}
	*out = d;
	return true;
}

struct digester *ckpt_digester_open(void)
{
	struct digester *d = malloc(sizeof *d);
	if (!d)
		return NULL;
	d->state = XXH3_createState();
	if (!d->state) {
		free(d);
		return NULL;
	}
	return d;
}

void ckpt_digester_close(struct digester *d)
{
	if (!d)
		return;
	XXH3_freeState(d->state);
	free(d);
}

void ckpt_digester_start(struct digester *d)
{
	XXH3_128bits_reset(d->state);
}

void ckpt_digester_add(struct digester *d, const void *data, size_t n)
{
	XXH3_128bits_update(d->state, data, n);
}

struct digest ckpt_digester_end(struct digester *d)
{
	return canonical(XXH3_128bits_digest(d->state));
}
