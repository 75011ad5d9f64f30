/*
 * records — the bytes of one TCP connection in records that are checked or sealed, after its
 * handshake.
 *
 * TCP's own checksum is 16 bits wide and ends at each adapter and middlebox that rewrites it. With
 * [network] integrity = none it is all there is, and no record is made. Otherwise what is sent is
 * cut into records of RECORD_MOST bytes at most:
 *
 *     u32 bytes       of data, 1 to RECORD_MOST
 *     u32 head        of the key, the record's number and `bytes`: a wrong length is seen before it
 *                     is waited for
 *     u8  check[16]   checksum: XXH3-128 of `bytes` and the data, seeded by the key and the number
 *                     seal: the AEAD's tag
 *     u8  data[bytes] as it is, or encrypted
 *
 * The number counts the records of a direction from 0 and is not sent; the keys are new for each
 * connection and direction (handshake.h). So a record that is changed, dropped, repeated, moved, or
 * of another connection is broken. The end of the stream between two messages is not: a rank that
 * ends has its own words for that (side.h).
 *
 *     checksum   finds what hardware and software do by accident: a missed change has odds of about
 *                2^-128. It is no defence against somebody who can change the traffic: XXH3 is no
 *                cryptographic function.
 *     seal       AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305
 *                (IETF), with the number as the nonce: nobody on the way reads or changes the data
 *                unseen.
 *
 * No byte is given out before its record is found good. Data goes from and to the caller's buffers
 * without another copy, but for: what is encrypted, which goes through a buffer when it is sent;
 * records that do not lie in one piece in the receiver's buffer (seal) or do not fit into what it
 * asks for (both).
 */
#ifndef MUSTER_LIBCOMM_TCP_RECORDS_H
#define MUSTER_LIBCOMM_TCP_RECORDS_H

#include "libcomm/comm.h"

#include <sys/types.h>
#include <sys/uio.h>

/* A record is checked while it lies in a core's cache; smaller ones cost more calls. */
enum {
	RECORD_MOST = 128 << 10,
	RECORD_KEY = 32,
	RECORD_PIECES = 40 /* more of a caller's are left for the next call */
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

/* This processor has instructions for AES-256-GCM. */
bool comm_records_have_aes(void);

/* As sendmsg and recvmsg without waiting: the bytes of v[n] that were moved, 0: none yet,
 * RECORDS_END with errno, 0 at the end of the stream. Whoever got 0 or fewer bytes than he asked
 * for comes back with v from where it stopped, and has not changed what it holds. comm_records_get:
 * RECORDS_BROKEN for good after a broken record. */
ssize_t comm_records_put(struct records *r, int fd, const struct iovec *v, int n);
ssize_t comm_records_get(struct records *r, int fd, const struct iovec *v, int n);
/* Records that came whole so far; the number of the broken one. */
unsigned long long comm_records_number(const struct records *r);

#endif
