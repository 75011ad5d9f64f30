#include "libcomm/tcp/records.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <xxhash.h>

enum { TAG = 16 };
_Static_assert(TAG == (int)crypto_aead_aes256gcm_ABYTES &&
		       TAG == (int)crypto_aead_chacha20poly1305_ietf_ABYTES,
	       "the tag");
_Static_assert(RECORD_KEY == (int)crypto_aead_aes256gcm_KEYBYTES &&
		       RECORD_KEY == (int)crypto_aead_chacha20poly1305_ietf_KEYBYTES,
	       "the key");

struct head {
	uint32_t bytes, own;
	unsigned char check[TAG];
};
_Static_assert(sizeof(struct head) == 24, "a head has no padding");

/* One direction. Of the current record, `head_done` bytes of the head and `done` of head.bytes
 * bytes of data have moved. */
struct direction {
	unsigned char key[RECORD_KEY];
	crypto_aead_aes256gcm_state *aes; /* the expanded key; NULL: the other cipher */
	uint64_t seed, head_seed;
	uint64_t number;
	struct head head;
	size_t head_done, done;
	/* sending: encrypted data; receiving: a record that does not fit the caller's buffers */
	unsigned char *held;
	/* receiving: bytes delivered of a verified record in `held` */
	size_t given;
	bool staged, good, broken;
	XXH3_state_t *hash;
};

struct records {
	enum comm_integrity mode;
	struct direction out, in;
};

/* --- Opening --- */

bool comm_records_have_aes(void)
{
	return crypto_aead_aes256gcm_is_available();
}

static int direction_open(struct direction *d, bool aes, const unsigned char key[RECORD_KEY])
{
	memcpy(d->key, key, RECORD_KEY);
	memcpy(&d->seed, key, sizeof d->seed);
	memcpy(&d->head_seed, key + sizeof d->seed, sizeof d->head_seed);
	d->hash = XXH3_createState();
	d->held = malloc(RECORD_MAX);
	if (!d->hash || !d->held)
		return -1;
	if (!aes)
		return 0;
	d->aes = aligned_alloc(64, (sizeof *d->aes + 63) / 64 * 64);
	return d->aes ? crypto_aead_aes256gcm_beforenm(d->aes, key) : -1;
}

static void direction_close(struct direction *d)
{
	if (d->aes)
		sodium_memzero(d->aes, sizeof *d->aes);
	free(d->aes);
	free(d->held);
	XXH3_freeState(d->hash);
}

int comm_records_new(enum comm_integrity mode, bool aes, const unsigned char sending[RECORD_KEY],
		     const unsigned char receiving[RECORD_KEY], struct records **out, struct err *e)
{
	struct records *r = calloc(1, sizeof *r);
	if (r)
		r->mode = mode;
	aes = aes && mode == COMM_INTEGRITY_SEAL;
	if (!r || direction_open(&r->out, aes, sending) || direction_open(&r->in, aes, receiving)) {
		comm_records_free(r);
		return err_set(e, ERR_NOMEM, "no memory to check a connection's data");
	}
	*out = r;
	return 0;
}

void comm_records_free(struct records *r)
{
	if (!r)
		return;
	direction_close(&r->out);
	direction_close(&r->in);
	sodium_memzero(r, sizeof *r);
	free(r);
}

unsigned long long comm_records_number(const struct records *r)
{
	return r->in.number;
}

/* --- Pieces of memory --- */

static size_t total_bytes(const struct iovec *v, int n)
{
	size_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += v[i].iov_len;
	return bytes;
}

/* The pieces of v that hold `bytes` bytes from `skip` on, all of which exist. Returns how many. */
static int cut_pieces(const struct iovec *v, size_t skip, size_t bytes,
		      struct iovec out[RECORD_PIECES])
{
	int n = 0;
	for (; bytes && n < RECORD_PIECES; v++) {
		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		size_t len = v->iov_len - skip < bytes ? v->iov_len - skip : bytes;
		out[n++] = (struct iovec){ (char *)v->iov_base + skip, len };
		bytes -= len;
		skip = 0;
	}
	return n;
}

static void copy_out(const struct iovec *v, int n, const unsigned char *from)
{
	for (int i = 0; i < n; from += v[i++].iov_len)
		memcpy(v[i].iov_base, from, v[i].iov_len);
}

static void copy_in(unsigned char *to, const struct iovec *v, int n)
{
	for (int i = 0; i < n; to += v[i++].iov_len)
		memcpy(to, v[i].iov_base, v[i].iov_len);
}

/* --- Checks --- */

static uint32_t head_check(const struct direction *d)
{
	uint64_t text[2] = { d->number, d->head.bytes };
	return (uint32_t)XXH3_64bits_withSeed(text, sizeof text, d->head_seed);
}

static void hash_record(struct direction *d, const struct iovec *v, int n, unsigned char out[TAG])
{
	XXH128_canonical_t sum;
	XXH3_128bits_reset_withSeed(d->hash, d->seed + d->number * 0x9e3779b97f4a7c15u);
	XXH3_128bits_update(d->hash, &d->head.bytes, sizeof d->head.bytes);
	for (int i = 0; i < n; i++)
		XXH3_128bits_update(d->hash, v[i].iov_base, v[i].iov_len);
	XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(d->hash));
	memcpy(out, sum.digest, TAG);
}

/* Each number is used once in a direction, and each key in one direction of one connection. */
static void make_nonce(const struct direction *d,
		       unsigned char nonce[crypto_aead_aes256gcm_NPUBBYTES])
{
	_Static_assert((int)crypto_aead_aes256gcm_NPUBBYTES ==
			       (int)crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
		       "one nonce");
	memset(nonce, 0, crypto_aead_aes256gcm_NPUBBYTES);
	for (int i = 0; i < 8; i++)
		nonce[i] = (unsigned char)(d->number >> 8 * i);
}

static void encrypt(struct direction *d, const unsigned char *from)
{
	unsigned char nonce[crypto_aead_aes256gcm_NPUBBYTES], *tag = d->head.check;
	const unsigned char *about = (const unsigned char *)&d->head.bytes;
	make_nonce(d, nonce);
	if (d->aes)
		crypto_aead_aes256gcm_encrypt_detached_afternm(d->held, tag, NULL, from,
							       d->head.bytes, about,
							       sizeof d->head.bytes, NULL, nonce,
							       d->aes);
	else
		crypto_aead_chacha20poly1305_ietf_encrypt_detached(d->held, tag, NULL, from,
								   d->head.bytes, about,
								   sizeof d->head.bytes, NULL,
								   nonce, d->key);
}

/* Decrypts in place. -1: the data is not what was sealed. */
static int decrypt(struct direction *d, unsigned char *at)
{
	unsigned char nonce[crypto_aead_aes256gcm_NPUBBYTES];
	const unsigned char *about = (const unsigned char *)&d->head.bytes;
	make_nonce(d, nonce);
	if (d->aes)
		return crypto_aead_aes256gcm_decrypt_detached_afternm(at, NULL, at, d->head.bytes,
								      d->head.check, about,
								      sizeof d->head.bytes, nonce,
								      d->aes);
	return crypto_aead_chacha20poly1305_ietf_decrypt_detached(at, NULL, at, d->head.bytes,
								  d->head.check, about,
								  sizeof d->head.bytes, nonce,
								  d->key);
}

/* --- Sending --- */

static void begin_record(struct records *r, const struct iovec *v, int n)
{
	struct direction *d = &r->out;
	struct iovec part[RECORD_PIECES];
	size_t bytes = total_bytes(v, n < RECORD_PIECES ? n : RECORD_PIECES);
	d->head.bytes = (uint32_t)(bytes < RECORD_MAX ? bytes : RECORD_MAX);
	d->head.own = head_check(d);
	d->head_done = d->done = 0;
	int pieces = cut_pieces(v, 0, d->head.bytes, part);
	if (r->mode == COMM_INTEGRITY_CHECKSUM) {
		hash_record(d, part, pieces, d->head.check);
	} else if (pieces == 1) {
		encrypt(d, part[0].iov_base);
	} else {
		copy_in(d->held, part, pieces);
		encrypt(d, d->held);
	}
}

/* `n` bytes of head and data have moved. Returns how many of them are data. */
static size_t count_moved(struct direction *d, size_t n)
{
	size_t head = sizeof d->head - d->head_done, part = n < head ? n : head;
	d->head_done += part;
	d->done += n - part;
	return n - part;
}

ssize_t comm_records_put(struct records *r, int fd, const struct iovec *v, int n)
{
	struct direction *d = &r->out;
	if (!total_bytes(v, n))
		return 0;
	if (!d->head.bytes)
		begin_record(r, v, n);
	struct iovec part[1 + RECORD_PIECES];
	int pieces = 0;
	if (d->head_done < sizeof d->head)
		part[pieces++] = (struct iovec){ (char *)&d->head + d->head_done,
						 sizeof d->head - d->head_done };
	if (r->mode == COMM_INTEGRITY_CHECKSUM)
		pieces += cut_pieces(v, 0, d->head.bytes - d->done, part + pieces);
	else
		part[pieces++] = (struct iovec){ d->held + d->done, d->head.bytes - d->done };
	struct msghdr m = { .msg_iov = part, .msg_iovlen = (size_t)pieces };
	ssize_t put = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (put < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : RECORDS_END;
	size_t moved = count_moved(d, (size_t)put);
	if (d->done == d->head.bytes) {
		d->head.bytes = 0;
		d->number++;
	}
	return (ssize_t)moved;
}

/* --- Receiving --- */

static ssize_t mark_broken(struct direction *d)
{
	d->broken = true;
	return RECORDS_BROKEN;
}

/* Delivers data from a verified record in `held`. */
static ssize_t give_out(struct direction *d, const struct iovec *v, int n)
{
	struct iovec part[RECORD_PIECES];
	size_t room = total_bytes(v, n < RECORD_PIECES ? n : RECORD_PIECES),
	       left = d->head.bytes - d->given;
	size_t bytes = left < room ? left : room;
	copy_out(part, cut_pieces(v, 0, bytes, part), d->held + d->given);
	d->given += bytes;
	if (d->given == d->head.bytes)
		d->good = d->staged = false;
	return (ssize_t)bytes;
}

/* Called when the head is complete. Returns whether it is valid, and decides where the data
 * goes. */
static bool take_head(struct records *r, const struct iovec *v, int n)
{
	struct direction *d = &r->in;
	if (!d->head.bytes || d->head.bytes > RECORD_MAX || d->head.own != head_check(d))
		return false;
	bool fits = d->head.bytes <= total_bytes(v, n < RECORD_PIECES ? n : RECORD_PIECES);
	d->staged = !fits || (r->mode == COMM_INTEGRITY_SEAL && d->head.bytes > v[0].iov_len);
	return true;
}

/* Called when the record is complete. Delivers it if it is valid. */
static ssize_t take_record(struct records *r, const struct iovec *v, int n)
{
	struct direction *d = &r->in;
	struct iovec part[RECORD_PIECES] = { { d->held, d->head.bytes } };
	unsigned char sum[TAG];
	int pieces = d->staged ? 1 : cut_pieces(v, 0, d->head.bytes, part);
	if (r->mode == COMM_INTEGRITY_CHECKSUM)
		hash_record(d, part, pieces, sum);
	if (r->mode == COMM_INTEGRITY_CHECKSUM ? memcmp(sum, d->head.check, TAG)
					       : decrypt(d, part[0].iov_base))
		return mark_broken(d);
	d->number++;
	d->head_done = d->done = d->given = 0;
	d->good = d->staged;
	return d->staged ? give_out(d, v, n) : (ssize_t)d->head.bytes;
}

/* The memory for the next bytes. */
static int find_destination(struct direction *d, const struct iovec *v,
			    struct iovec part[RECORD_PIECES])
{
	if (d->head_done < sizeof d->head) {
		part[0] = (struct iovec){ (char *)&d->head + d->head_done,
					  sizeof d->head - d->head_done };
		return 1;
	}
	if (!d->staged)
		return cut_pieces(v, d->done, d->head.bytes - d->done, part);
	part[0] = (struct iovec){ d->held + d->done, d->head.bytes - d->done };
	return 1;
}

ssize_t comm_records_get(struct records *r, int fd, const struct iovec *v, int n)
{
	struct direction *d = &r->in;
	if (d->broken)
		return RECORDS_BROKEN;
	if (d->good)
		return give_out(d, v, n);
	for (;;) {
		struct iovec part[RECORD_PIECES];
		struct msghdr m = { .msg_iov = part };
		m.msg_iovlen = (size_t)find_destination(d, v, part);
		ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (got <= 0) {
			errno = got < 0 ? errno : 0;
			return RECORDS_END;
		}
		bool head = d->head_done < sizeof d->head;
		count_moved(d, (size_t)got);
		if (head && d->head_done == sizeof d->head && !take_head(r, v, n))
			return mark_broken(d);
		if (d->head_done == sizeof d->head && d->done == d->head.bytes)
			return take_record(r, v, n);
	}
}
