#include "agent/engine/text/utf8.h"

#include <string.h>

/* For each first byte: the length of the character and the range of its second byte. */
struct lead {
	unsigned char bytes, least, most;
};

static struct lead lead_of(unsigned char c)
{
	if (c < 0x80)
		return (struct lead){ 1, 0, 0 };
	if (c >= 0xc2 && c <= 0xdf)
		return (struct lead){ 2, 0x80, 0xbf };
	if (c >= 0xe0 && c <= 0xef)
		return (struct lead){ 3, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf };
	if (c >= 0xf0 && c <= 0xf4)
		return (struct lead){ 4, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf };
	return (struct lead){ 0, 0, 0 };
}

/* Whether the bytes up to n, but no more than the first byte announces, are valid. */
static bool well_formed(const unsigned char *s, size_t n, const struct lead *l)
{
	if (n > 1 && (s[1] < l->least || s[1] > l->most))
		return false;
	for (size_t i = 2; i < n && i < l->bytes; i++)
		if ((s[i] & 0xc0) != 0x80)
			return false;
	return true;
}

size_t text_utf8_char(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	if (!n)
		return 0;
	struct lead l = lead_of(s[0]);
	if (l.bytes <= 1)
		return l.bytes;
	return l.bytes <= n && well_formed(s, l.bytes, &l) ? l.bytes : 0;
}

bool text_utf8_begun(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	if (!n)
		return false;
	struct lead l = lead_of(s[0]);
	return n < l.bytes && well_formed(s, n, &l);
}

size_t text_utf8_run(const char *text, size_t n)
{
	size_t at = 0;
	while (at < n) {
		uint64_t eight;
		for (; at + sizeof eight <= n; at += sizeof eight) {
			memcpy(&eight, text + at, sizeof eight);
			if (eight & UINT64_C(0x8080808080808080))
				break;
		}
		size_t bytes = text_utf8_char(text + at, n - at);
		if (at < n && !bytes)
			break;
		at += bytes;
	}
	return at;
}

uint32_t text_utf8_value(const char *text, size_t bytes)
{
	static const unsigned char mask[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = (unsigned char)text[0] & mask[bytes];
	for (size_t i = 1; i < bytes; i++)
		c = c << 6 | ((unsigned char)text[i] & 0x3f);
	return c;
}

bool text_utf8_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}

size_t text_utf8_spaces_at_start(const char *text, size_t n)
{
	size_t at = 0, len;
	while ((len = text_utf8_char(text + at, n - at)) &&
	       text_utf8_space(text_utf8_value(text + at, len)))
		at += len;
	return at;
}

size_t text_utf8_spaces_at_end(const char *text, size_t least, size_t n)
{
	for (size_t at = n; at > least; n = at) {
		do
			at--;
		while (at > least && ((unsigned char)text[at] & 0xc0) == 0x80);
		if (text_utf8_char(text + at, n - at) != n - at ||
		    !text_utf8_space(text_utf8_value(text + at, n - at)))
			return n;
	}
	return n;
}
