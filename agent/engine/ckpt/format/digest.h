/*
 * digest — XXH3-128 in its canonical (big-endian) form. It detects what a disk or a network changed.
 * It is not a signature: whoever can write the files can write the digests.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_DIGEST_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_BYTES = 16, DIGEST_HEX = 33 };

struct digest {
	unsigned char bytes[DIGEST_BYTES];
};

struct digest ckpt_digest_of(const void *data, size_t n);
bool ckpt_digest_equal(const struct digest *a, const struct digest *b);
void ckpt_digest_hex(const struct digest *d, char out[DIGEST_HEX]);
/* Accepts exactly 32 lower-case hex digits. */
bool ckpt_digest_parse(const char *hex, struct digest *out);

/* Computes the digest of bytes that are passed in pieces. */
struct digester;
struct digester *ckpt_digester_open(void); /* NULL: no memory */
void ckpt_digester_close(struct digester *d);
void ckpt_digester_start(struct digester *d);
void ckpt_digester_add(struct digester *d, const void *data, size_t n);
struct digest ckpt_digester_end(struct digester *d);

#endif
