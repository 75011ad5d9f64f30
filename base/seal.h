/*
 * seal — one direction of a channel: frames under a key and a counter.
 *
 *     u32 length, little-endian; then so many bytes of XChaCha20-Poly1305 (libsodium)
 *
 * The nonce is the number of frames before this one, so each key serves one
 * direction of one connection.
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

/* Appends a frame; the buf may fail. */
void seal_frame(struct seal *s, struct buf *out, const char *body, size_t len);
/* Opens a frame's `len` (SEAL_TAG_BYTES at least) sealed bytes into a string, which the caller
 * frees; the body may hold NULs. */
int seal_open(struct seal *s, const unsigned char *sealed, size_t len, char **body,
	      struct err *why);

void seal_put_length(unsigned char to[SEAL_LENGTH_BYTES], uint32_t v);
uint32_t seal_length(const unsigned char from[SEAL_LENGTH_BYTES]);

/*
 * A text sealed by itself, for a place where others may read and write: base64 of a random nonce
 * and of the ciphertext with its tag. `about` says what the text is (whose, of which launch); it is
 * not contained, and only a reader who expects the same can open it.
 */

/* *out: the sealed text, to be freed by the caller. */
int seal_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *text,
	      char **out, struct err *e);
/* *out: the text, to be freed by the caller. ERR_AUTH when it was not sealed with this key about
 * this. */
int seal_open_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *sealed,
		   char **out, struct err *e);

#endif
