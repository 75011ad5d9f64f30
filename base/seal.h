/*
 * seal — encrypts and authenticates one direction of a channel, frame by frame.
 *
 *     u32 length, little-endian; then that many bytes of XChaCha20-Poly1305 (libsodium)
 *
 * The nonce is the number of earlier frames, so a key serves one direction of one connection only.
 */
#ifndef MUSTER_BASE_SEAL_H
#define MUSTER_BASE_SEAL_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

enum { SEAL_KEY_BYTES = 32, SEAL_TAG_BYTES = 16, SEAL_LENGTH_BYTES = 4 };

struct seal {
	unsigned char key[SEAL_KEY_BYTES];
	uint64_t count;
};

/* Appends a frame; check buf_failed() afterwards. */
void seal_frame(struct seal *s, struct buf *out, const char *body, size_t len);
/* Opens a frame's sealed bytes, of which there are at least SEAL_TAG_BYTES. *body: a string that
 * may contain NULs; the caller frees it. */
int seal_open(struct seal *s, const unsigned char *sealed, size_t len, char **body,
	      struct err *why);

void seal_put_length(unsigned char to[SEAL_LENGTH_BYTES], uint32_t v);
uint32_t seal_length(const unsigned char from[SEAL_LENGTH_BYTES]);

/*
 * Seals a single text for a place where others may read and write: base64 of a random nonce and of
 * the ciphertext with its tag. `about` describes the text (whose it is, of which launch). It is not
 * part of the result, and only a reader that expects the same `about` can open the text.
 * *out: the sealed text; the caller frees it.
 */
int seal_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *text,
	      char **out, struct err *e);
/* *out: the text; the caller frees it. ERR_AUTH: it was not sealed with this key and `about`. */
int seal_open_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *sealed,
		   char **out, struct err *e);

#endif
