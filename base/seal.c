#include "base/seal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { NONCE_BYTES = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES };

_Static_assert((int)SEAL_KEY_BYTES == (int)crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
	       "the cipher's key");
_Static_assert((int)SEAL_TAG_BYTES == (int)crypto_aead_xchacha20poly1305_ietf_ABYTES,
	       "the cipher's tag");

static void next_nonce(struct seal *s, unsigned char nonce[NONCE_BYTES])
{
	uint64_t count = s->count++;
	memset(nonce, 0, NONCE_BYTES);
	for (int i = 0; i < 8; i++)
		nonce[i] = (unsigned char)(count >> 8 * i);
}

void seal_put_length(unsigned char to[SEAL_LENGTH_BYTES], uint32_t v)
{
	for (int i = 0; i < SEAL_LENGTH_BYTES; i++)
		to[i] = (unsigned char)(v >> 8 * i);
}

uint32_t seal_length(const unsigned char from[SEAL_LENGTH_BYTES])
{
	return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

void seal_frame(struct seal *s, struct buf *out, const char *body, size_t len)
{
	size_t sealed = len + SEAL_TAG_BYTES;
	unsigned char *to = (unsigned char *)buf_room(out, SEAL_LENGTH_BYTES + sealed);
	if (!to)
		return;
	unsigned char nonce[NONCE_BYTES];
	next_nonce(s, nonce);
	seal_put_length(to, (uint32_t)sealed);
	crypto_aead_xchacha20poly1305_ietf_encrypt(to + SEAL_LENGTH_BYTES, NULL,
						   (const unsigned char *)body, len, NULL, 0, NULL,
						   nonce, s->key);
	out->len += SEAL_LENGTH_BYTES + sealed;
}

int seal_open(struct seal *s, const unsigned char *sealed, size_t len, char **body, struct err *why)
{
	char *to = malloc(len - SEAL_TAG_BYTES + 1);
	if (!to)
		return err_set(why, ERR_NOMEM,
			       "control channel: no memory for a message of %zu bytes", len);
	unsigned char nonce[NONCE_BYTES];
	next_nonce(s, nonce);
	if (crypto_aead_xchacha20poly1305_ietf_decrypt((unsigned char *)to, NULL, NULL, sealed, len,
						       NULL, 0, nonce, s->key)) {
		free(to);
		return err_set(
			why, ERR_AUTH,
			"control channel: frame %llu was changed, repeated, dropped or moved",
			(unsigned long long)s->count - 1);
	}
	to[len - SEAL_TAG_BYTES] = '\0';
	*body = to;
	return 0;
}

enum { BASE64 = sodium_base64_VARIANT_ORIGINAL };

int seal_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *text,
	      char **out, struct err *e)
{
	size_t len = strlen(text), bytes = NONCE_BYTES + len + SEAL_TAG_BYTES,
	       room = sodium_base64_ENCODED_LEN(bytes, BASE64);
	unsigned char *sealed = malloc(bytes);
	char *words = malloc(room);
	if (!sealed || !words) {
		free(sealed);
		free(words);
		return err_set(e, ERR_NOMEM, "no memory to seal a text of %zu bytes", len);
	}
	randombytes_buf(sealed, NONCE_BYTES);
	crypto_aead_xchacha20poly1305_ietf_encrypt(sealed + NONCE_BYTES, NULL,
						   (const unsigned char *)text, len,
						   (const unsigned char *)about, strlen(about),
						   NULL, sealed, key);
	sodium_bin2base64(words, room, sealed, bytes, BASE64);
	free(sealed);
	*out = words;
	return 0;
}

int seal_open_text(const unsigned char key[SEAL_KEY_BYTES], const char *about, const char *sealed,
		   char **out, struct err *e)
{
	size_t len = strlen(sealed), bytes = 0;
	unsigned char *raw = malloc(len + 1); /* base64 is longer than the bytes that it encodes */
	char *text = malloc(len + 1);
	int rc = -1;
	if (!raw || !text)
		err_set(e, ERR_NOMEM, "no memory to open a text of %zu bytes", len);
	else if (sodium_base642bin(raw, len + 1, sealed, len, NULL, &bytes, NULL, BASE64) ||
		 bytes < NONCE_BYTES + SEAL_TAG_BYTES ||
		 crypto_aead_xchacha20poly1305_ietf_decrypt(
			 (unsigned char *)text, NULL, NULL, raw + NONCE_BYTES, bytes - NONCE_BYTES,
			 (const unsigned char *)about, strlen(about), raw, key))
		err_set(e, ERR_AUTH, "the text was not sealed for this launch");
	else
		rc = 0;
	free(raw);
	if (rc) {
		free(text);
		return -1;
	}
	text[bytes - NONCE_BYTES - SEAL_TAG_BYTES] = '\0';
	*out = text;
	return 0;
}
