#include "agent/engine/ckpt/format/packed.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 10, SLICE_MAX = 6 * NUMBER_MAX + DIGEST_BYTES };

/* --- base64 --- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Encodes n bytes, 1 to 3. */
static void put_group(const unsigned char *from, size_t n, char out[4])
{
	unsigned bits = (unsigned)from[0] << 16 | (n > 1 ? (unsigned)from[1] << 8 : 0) |
			(n > 2 ? from[2] : 0);
	for (size_t i = 0; i < 4; i++)
		out[i] = i <= n ? letters[bits >> (18 - 6 * i) & 63] : '=';
}

static void write_base64(const unsigned char *from, size_t n, struct buf *out)
{
	size_t groups = (n + 2) / 3;
	char *to = buf_room(out, 4 * groups + 1);
	if (!to)
		return;
	for (size_t i = 0; i < groups; i++)
		put_group(from + 3 * i, n - 3 * i < 3 ? n - 3 * i : 3, to + 4 * i);
	out->len += 4 * groups;
}

/* The value of each letter, 64 for any other byte. */
static void make_values(unsigned char values[256])
{
	memset(values, 64, 256);
	for (unsigned char i = 0; i < 64; i++)
		values[(unsigned char)letters[i]] = i;
}

/* Decodes into out[3 * (n / 4)]. -1: not base64, or bits beyond the end are not 0. */
static int64_t read_base64(const char *text, size_t n, unsigned char *out)
{
	unsigned char values[256];
	size_t pad = n > 1 ? (text[n - 1] == '=') + (text[n - 1] == '=' && text[n - 2] == '=') : 0;
	unsigned bad = n % 4 != 0;
	make_values(values);
	for (size_t i = 0; i < n && !bad; i += 4) {
		unsigned bits = 0;
		size_t here = i + 4 == n ? 4 - pad : 4;
		for (size_t j = 0; j < 4; j++) {
			unsigned v = j < here ? values[(unsigned char)text[i + j]] : 0;
			bad |= v & 64;
			bits = bits << 6 | (v & 63);
		}
		bad |= here == 3 ? bits & 0xff : here == 2 ? bits & 0xffff : 0;
		for (size_t j = 0; j < 3; j++)
			out[i / 4 * 3 + j] = (unsigned char)(bits >> (16 - 8 * j));
	}
	return bad ? -1 : (int64_t)(n / 4 * 3 - pad);
}

/* --- numbers --- */

static unsigned char *put_number(unsigned char *to, uint64_t v)
{
	for (; v >= 128; v >>= 7)
		*to++ = (unsigned char)(v | 128);
	*to++ = (unsigned char)v;
	return to;
}

static uint64_t zigzag(int64_t v)
{
	return ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0);
}

static int64_t unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1 ^ (v & 1 ? UINT64_MAX : 0));
}

/* The rest of the bytes. */
struct input {
	const unsigned char *at, *end;
	bool bad;
};

static uint64_t get_number(struct input *in)
{
	uint64_t v = 0;
	for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
		uint64_t byte = *in->at++;
		v |= (byte & 127) << shift;
		if (byte < 128) {
			/* a last byte of 0 is one too many; the tenth holds one bit */
			in->bad |= (byte == 0 && shift) || (shift == 63 && byte > 1);
			return v;
		}
	}
	in->bad = true;
	return 0;
}

/* A sum that must be from 0 to INT64_MAX. */
static int64_t add_number(struct input *in, int64_t a, int64_t b)
{
	int64_t sum = 0;
	in->bad |= __builtin_add_overflow(a, b, &sum) || sum < 0;
	return in->bad ? 0 : sum;
}

/* --- slices --- */

static size_t pack(const struct manifest_slice *s, const struct manifest_slice *before, int dims,
		   unsigned char *out)
{
	unsigned char *at = put_number(out, zigzag(s->file - before->file));
	at = put_number(at, (uint64_t)s->offset);
	for (int i = 0; i < dims; i++) {
		at = put_number(at, zigzag(s->lo[i] - before->hi[i]));
		at = put_number(at, (uint64_t)(s->hi[i] - s->lo[i]));
	}
	memcpy(at, s->digest.bytes, DIGEST_BYTES);
	return (size_t)(at - out) + DIGEST_BYTES;
}

void ckpt_packed_write(const struct manifest_tensor *t, struct buf *out)
{
	struct buf bytes = BUF_INIT;
	struct manifest_slice before = { 0 };
	for (int64_t i = 0; i < t->n; i++) {
		unsigned char slice[SLICE_MAX];
		buf_add(&bytes, slice, pack(&t->slices[i], &before, t->dims, slice));
		before = t->slices[i];
	}
	if (bytes.len)
		write_base64((const unsigned char *)bytes.data, bytes.len, out);
	out->failed |= buf_failed(&bytes);
	buf_fini(&bytes);
}

static struct manifest_slice unpack(struct input *in, const struct manifest_slice *before, int dims)
{
	struct manifest_slice s = { 0 };
	s.file = add_number(in, before->file, unzigzag(get_number(in)));
	s.offset = add_number(in, 0, (int64_t)get_number(in));
	for (int i = 0; i < dims; i++) {
		s.lo[i] = add_number(in, before->hi[i], unzigzag(get_number(in)));
		s.hi[i] = add_number(in, s.lo[i], (int64_t)get_number(in));
	}
	in->bad |= in->end - in->at < DIGEST_BYTES;
	if (!in->bad) {
		memcpy(s.digest.bytes, in->at, DIGEST_BYTES);
		in->at += DIGEST_BYTES;
	}
	return s;
}

int ckpt_packed_read(const char *text, size_t n, int dims,
		     int (*add)(void *arg, const struct manifest_slice *s, struct err *e),
		     void *arg, struct err *e)
{
	unsigned char *bytes = malloc(n / 4 * 3 + 1);
	struct manifest_slice s = { 0 };
	int rc = 0;
	if (!bytes)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of slices", n);
	int64_t len = read_base64(text, n, bytes);
	struct input in = { bytes, bytes + (len < 0 ? 0 : len), len < 0 };
	while (!in.bad && in.at < in.end && !rc) {
		s = unpack(&in, &s, dims);
		if (!in.bad)
			rc = add(arg, &s, e);
	}
	if (!rc && in.bad)
		rc = err_set(e, ERR_CORRUPT, "its packed slices are not what muster writes");
	free(bytes);
	return rc;
}
