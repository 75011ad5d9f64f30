/*
 * sodium — replaces libsodium's header where it is not installed, only for make check-gpu. It has
 * as much of it as the ranks of one host need. The proof for a connection cannot be computed, so
 * there is no TCP.
 */
#ifndef MUSTER_TESTS_GPU_SODIUM_H
#define MUSTER_TESTS_GPU_SODIUM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define crypto_auth_BYTES               32U
#define crypto_auth_hmacsha512256_BYTES 32U
#define crypto_auth_KEYBYTES            32U

static inline int sodium_init(void)
{
	return 0;
}

static inline void randombytes_buf(void *out, size_t bytes)
{
	if (getrandom(out, bytes, 0) != (ssize_t)bytes)
		abort();
}

static inline void sodium_memzero(void *p, size_t bytes)
{
	explicit_bzero(p, bytes);
}

static inline int sodium_memcmp(const void *a, const void *b, size_t bytes)
{
	return memcmp(a, b, bytes) ? -1 : 0;
}

static inline char *sodium_bin2hex(char *hex, size_t room, const unsigned char *bin, size_t bytes)
{
	for (size_t i = 0; i < bytes && 2 * i + 2 < room; i++)
		snprintf(hex + 2 * i, 3, "%02x", bin[i]);
	return hex;
}

static inline int sodium_hex2bin(unsigned char *bin, size_t room, const char *hex, size_t length,
				 const char *ignore, size_t *bytes, const char **end)
{
	(void)ignore;
	(void)end;
	unsigned byte;
	for (*bytes = 0; 2 * *bytes + 1 < length && *bytes < room; ++*bytes) {
		if (sscanf(hex + 2 * *bytes, "%2x", &byte) != 1)
			return -1;
		bin[*bytes] = (unsigned char)byte;
	}
	return 2 * *bytes == length ? 0 : -1;
}

static inline int crypto_auth(unsigned char *out, const unsigned char *in, unsigned long long bytes,
			      const unsigned char *key)
{
	(void)out;
	(void)in;
	(void)bytes;
	(void)key;
	abort();
}

/* For the handshake over TCP, which is never called. */
#define crypto_scalarmult_BYTES       32U
#define crypto_scalarmult_SCALARBYTES 32U

typedef struct {
	int none;
} crypto_auth_hmacsha512256_state;

static inline int crypto_auth_hmacsha512256_init(crypto_auth_hmacsha512256_state *s,
						 const unsigned char *key, size_t bytes)
{
	(void)s;
	(void)key;
	(void)bytes;
	abort();
}

static inline int crypto_auth_hmacsha512256_update(crypto_auth_hmacsha512256_state *s,
						   const unsigned char *in,
						   unsigned long long bytes)
{
	(void)s;
	(void)in;
	(void)bytes;
	abort();
}

static inline int crypto_auth_hmacsha512256_final(crypto_auth_hmacsha512256_state *s,
						  unsigned char *out)
{
	(void)s;
	(void)out;
	abort();
}

static inline int crypto_scalarmult_base(unsigned char *out, const unsigned char *scalar)
{
	(void)out;
	(void)scalar;
	abort();
}

static inline int crypto_scalarmult(unsigned char *out, const unsigned char *scalar,
				    const unsigned char *point)
{
	(void)out;
	(void)scalar;
	(void)point;
	abort();
}

#endif
