/*
 * records — the bytes of one TCP connection, after its handshake, in records that are checked or
 * sealed.
 *
 * TCP's own checksum is 16 bits wide and ends at each adapter and middlebox that rewrites it. With
 * [network] integrity = none it is the only one, and there are no records. Otherwise the data is
 * cut into records of at most RECORD_MAX bytes:
 *
 *     u32 bytes       of data, 1 to RECORD_MAX
 *     u32 head        hash of the key, the record's number and `bytes`: a wrong length is detected
 *                     before it is waited for
 *     u8  check[16]   checksum: XXH3-128 of `bytes` and the data, seeded by the key and the number
 *                     seal: the AEAD's tag
 *     u8  data[bytes] as it is, or encrypted
 *
 * The number counts the records of a direction from 0 and is not sent. The keys are new for each
 * connection and direction (handshake.h). A record that was changed, dropped, repeated, moved, or
 * taken from another connection is therefore broken. The end of the stream between two messages is
 * not: a rank that ends sends a last note (oob.h).
 *
 *     checksum   detects accidental changes by hardware and software; it misses one with a
 *                probability of about 2^-128. It is no defence against somebody who can change the
 *                traffic: XXH3 is not a cryptographic function.
 *     seal       AES-256-GCM if both processors have instructions for it, otherwise
 *                ChaCha20-Poly1305 (IETF), with the number as the nonce: nobody on the way can read
 *                the data, or change it undetected.
 *
 * No byte is delivered before its record has been verified. Data moves from and to the caller's
 * buffers without another copy, with two exceptions: encrypted data passes through a buffer when it
 * is sent; records that are not contiguous in the receiver's buffer (seal) or larger than what it
 * asks for (both) pass through one when they are received.
 */
#ifndef MUSTER_LIBCOMM_TCP_RECORDS_H
#define MUSTER_LIBCOMM_TCP_RECORDS_H

#include "libcomm/comm.h"

#include <sys/types.h>
#include <sys/uio.h>

/* A record is verified while it is in a core's cache; smaller ones cost more calls. */
enum {
	RECORD_MAX = 128 << 10,
	RECORD_KEY = 32,
	RECORD_PIECES = 40 /* of a caller's iovec per call; more are left for the next call */
};

enum { RECORDS_END = -1, RECORDS_BROKEN = -2 };

struct records; /* both directions of a connection; one thread at a time in each direction */

/* mode: not COMM_INTEGRITY_NONE. aes: the cipher of COMM_INTEGRITY_SEAL is AES-256-GCM. The keys
 * are copied. */
int comm_records_new(enum comm_integrity mode, bool aes, const unsigned char sending[RECORD_KEY],
		     const unsigned char receiving[RECORD_KEY], struct records **out,
		     struct err *e);
/* Takes NULL. */
void comm_records_free(struct records *r);

/* Whether this processor has instructions for AES-256-GCM. */
bool comm_records_have_aes(void);

/* Like sendmsg and recvmsg without waiting: the bytes of v[n] that were moved; 0: none yet;
 * RECORDS_END with errno, which is 0 at the end of the stream. A caller that got 0, or fewer bytes
 * than it asked for, calls again with v from where it stopped, without changing the data.
 * comm_records_get returns RECORDS_BROKEN forever after a broken record. */
ssize_t comm_records_put(struct records *r, int fd, const struct iovec *v, int n);
ssize_t comm_records_get(struct records *r, int fd, const struct iovec *v, int n);
/* The number of complete records so far, which is the number of the broken one if there is one. */
unsigned long long comm_records_number(const struct records *r);

#endif
