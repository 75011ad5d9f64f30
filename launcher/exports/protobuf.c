#include "launcher/exports/protobuf.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_varint(struct buf *b, uint64_t value)
{
	unsigned char out[10];
	size_t n = 0;
	do {
		out[n] = (unsigned char)(value & 0x7f);
		value >>= 7;
		out[n++] |= value ? 0x80 : 0;
	} while (value);
	buf_add(b, out, n);
}

static void put_key(struct buf *b, int field, enum wire wire)
{
	put_varint(b, (uint64_t)field << 3 | wire);
}

/* Little-endian, whatever this machine is. */
static void put_fixed(struct buf *b, uint64_t bits, size_t n)
{
	unsigned char out[8];
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)(bits >> 8 * i);
	buf_add(b, out, n);
}

void exports_pb_int(struct buf *b, int field, int64_t value)
{
	put_key(b, field, WIRE_VARINT);
	put_varint(b, (uint64_t)value);
}

void exports_pb_float(struct buf *b, int field, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	put_key(b, field, WIRE_32);
	put_fixed(b, bits, sizeof bits);
}

void exports_pb_double(struct buf *b, int field, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	put_key(b, field, WIRE_64);
	put_fixed(b, bits, sizeof bits);
}

void exports_pb_bytes(struct buf *b, int field, const void *data, size_t n)
{
	put_key(b, field, WIRE_BYTES);
	put_varint(b, n);
	if (n)
		buf_add(b, data, n);
}

void exports_pb_text(struct buf *b, int field, const char *text)
{
	exports_pb_bytes(b, field, text, strlen(text));
}

void exports_pb_message(struct buf *b, int field, struct buf *message)
{
	if (buf_failed(message))
		b->failed = true;
	else
		exports_pb_bytes(b, field, message->data, message->len);
	buf_fini(message);
}
