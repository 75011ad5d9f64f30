#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Divides n until it is printed with at most three digits before the point, or four when the
 * divisor is 1024. Returns the number of divisions. */
static int scale(double *n, double by, int most)
{
	int u = 0;
	for (; fabs(*n) >= by - 0.5 && u < most; u++)
		*n /= by;
	return u;
}

const char *human_bytes(double bytes, char out[HUMAN])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	int u = scale(&bytes, 1024, 6);
	snprintf(out, HUMAN, "%.*f %s", u && fabs(bytes) < 9.95 ? 1 : 0, bytes, units[u]);
	return out;
}

const char *human_count(double n, const char *unit, char out[HUMAN])
{
	static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
	int u = scale(&n, 1000, 5);
	snprintf(out, HUMAN, "%.*f%s%s%.16s", u && fabs(n) < 99.95 ? 1 : 0, n,
		 u || *unit ? " " : "", prefixes[u], unit);
	return out;
}

const char *human_seconds(double seconds, char out[HUMAN])
{
	static const char *const units[] = { "s", "ms", "µs", "ns" };
	int u = 0;
	for (; seconds != 0 && fabs(seconds) < 0.9995 && u < 3; u++)
		seconds *= 1000;
	snprintf(out, HUMAN, "%.*f %s",
		 seconds == 0 || fabs(seconds) >= 99.95 ? 0
		 : fabs(seconds) >= 9.995               ? 1
							: 2,
		 seconds, units[u]);
	return out;
}

const char *human_span(double seconds, char out[HUMAN])
{
	static const struct {
		double least, scale;
		const char *unit;
	} forms[] = {
		{ 2 * 86400, 86400, "days" },
		{ 2 * 3600, 3600, "h" },
		{ 120, 60, "min" },
	};
	if (!(seconds < HUMAN_FOR_EVER)) {
		snprintf(out, HUMAN, "for ever");
		return out;
	}
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (seconds >= forms[i].least) {
			snprintf(out, HUMAN, "%.*f %s", seconds < 100 * forms[i].scale,
				 seconds / forms[i].scale, forms[i].unit);
			return out;
		}
	return human_seconds(seconds, out);
}

void human_bar(double share, int width, struct buf *out)
{
	int full = (int)lround(fmin(fmax(share, 0), 1) * width);
	for (int i = 0; i < width; i++)
		buf_puts(out, i < full ? "█" : "·");
}

const char *human_s(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* --- Characters --- */

/* The length of the character of UTF-8 at `s`; 0: there is none. */
static size_t char_length(const unsigned char *s)
{
	/* Lead bytes, and the range of the byte that follows: no surrogates, nothing overlong. */
	static const struct {
		unsigned char first, last, low, high, length;
	} rows[] = {
		{ 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	size_t i = 0, rows_n = sizeof rows / sizeof *rows;
	while (i < rows_n && (*s < rows[i].first || *s > rows[i].last))
		i++;
	if (i == rows_n)
		return 0;
	for (size_t k = 1; k < rows[i].length; k++)
		if (s[k] < (k == 1 ? rows[i].low : 0x80) || s[k] > (k == 1 ? rows[i].high : 0xbf))
			return 0;
	return rows[i].length;
}

/* The length of the control character at `s`; 0: another one is there. *next: how far the next one
 * is. */
static size_t control_length(const unsigned char *s, size_t *next)
{
	size_t n = char_length(s);
	*next = n ? n : 1;
	if (n == 1)
		return *s < ' ' || *s == 0x7f;
	if (n == 2)
		return s[0] == 0xc2 && s[1] < 0xa0 ? 2 : 0;
	return !n && *s >= 0x80 && *s < 0xa0;
}

size_t human_printable(const char *s)
{
	size_t n;
	size_t control = control_length((const unsigned char *)s, &n);
	return control ? 0 : char_length((const unsigned char *)s);
}

size_t human_character(const char *s)
{
	return char_length((const unsigned char *)s);
}

void human_plain(char *text)
{
	size_t n;
	for (unsigned char *s = (unsigned char *)text; *s; s += n)
		memset(s, ' ', control_length(s, &n));
}

void human_shell_word(const char *word, struct buf *out)
{
	static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				   "0123456789_@%+=:,./-";
	if (*word && !word[strspn(word, safe)]) {
		buf_puts(out, word);
		return;
	}
	size_t n;
	buf_puts(out, "'");
	for (const unsigned char *s = (const unsigned char *)word; *s; s += n) {
		size_t control = control_length(s, &n);
		if (!control && *s != '\'') {
			buf_add(out, s, n);
			continue;
		}
		buf_puts(out, control ? "'$'" : "'\\'");
		for (size_t i = 0; i < control; i++)
			buf_printf(out, "\\%03o", s[i]);
		buf_puts(out, control ? "''" : "'");
	}
	buf_puts(out, "'");
}
