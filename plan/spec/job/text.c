/* Text from outside: which characters are printable, and how an error message shows it. */
#include "plan/spec/job/keys.h"

#include <string.h>

const char *job_shown(const char *text, char out[JOB_SHOWN])
{
	size_t n = 0;
	for (; text[n] && n < JOB_SHOWN - 4; n++) {
		unsigned char c = (unsigned char)text[n];
		out[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
	}
	if (!text[n]) {
		out[n] = '\0';
		return out;
	}
	/* Not in the middle of a UTF-8 character. */
	while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	memcpy(out + n, "...", 4);
	return out;
}

/* Length of the UTF-8 character at s; 0 if it is not one or is a control character other than a
 * tab. */
static size_t text_utf8_char(const unsigned char *s, size_t n)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} forms[] = {
		{ 0xe0, 0xc0, 0xa0 /* below are controls */ },
		{ 0xf0, 0xe0, 0x800 },
		{ 0xf8, 0xf0, 0x10000 },
	};
	if (*s < 0x80)
		return *s == '\t' || (*s >= 0x20 && *s < 0x7f);
	for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
		if ((*s & forms[f].mask) != forms[f].lead)
			continue;
		if (n < f + 2)
			return 0;
		uint32_t c = (uint32_t)(*s & ~forms[f].mask);
		for (size_t i = 1; i <= f + 1; i++) {
			if ((s[i] & 0xc0) != 0x80)
				return 0;
			c = c << 6 | (s[i] & 0x3f);
		}
		return c >= forms[f].least && c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff) ? f + 2
											     : 0;
	}
	return 0;
}

const char *job_unprintable(const char *s, size_t n)
{
	while (n) {
		size_t c = text_utf8_char((const unsigned char *)s, n);
		if (!c)
			return s;
		s += c;
		n -= c;
	}
	return NULL;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

const char *job_trim(const char *s, size_t *n)
{
	while (*n && blank(*s)) {
		s++;
		--*n;
	}
	while (*n && blank(s[*n - 1]))
		--*n;
	return s;
}

void job_copy(char *to, size_t size, const char *from, size_t n)
{
	if (n > size - 1)
		n = size - 1;
	memcpy(to, from, n);
	to[n] = '\0';
}
