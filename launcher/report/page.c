#include "launcher/report/page.h"

#include "base/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char unknown[] = "–";

/* The length of the UTF-8 sequence at s; 0: it is not one, or a control character (U+0080 to
 * U+009F), a direction mark or a surrogate. */
static size_t sequence(const unsigned char *s)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} kinds[] = { { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 } };
	for (size_t k = 0; k < 3; k++) {
		if ((s[0] & kinds[k].mask) != kinds[k].lead)
			continue;
		uint32_t c = s[0] & (unsigned char)~kinds[k].mask;
		for (size_t i = 1; i <= k + 1; i++) {
			if ((s[i] & 0xc0) != 0x80)
				return 0;
			c = c << 6 | (s[i] & 0x3f);
		}
		bool bad = c < kinds[k].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
			   c < 0xa0 || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
		return bad ? 0 : k + 2;
	}
	return 0;
}

void report_text_cut(struct buf *out, const char *text, size_t most)
{
	const unsigned char *s = (const unsigned char *)(text ? text : ""), *begin = s;
	while (*s && (size_t)(s - begin) < most) {
		size_t n = *s < 0x80 ? 1 : sequence(s);
		if (!n)
			buf_puts(out, "\xef\xbf\xbd");
		else if (strchr("<>&\"'", *s))
			buf_printf(out, "&#%d;", *s);
		else if (*s < ' ' || *s == 0x7f)
			buf_puts(out, *s == '\n' ? "\n" : " ");
		else
			buf_add(out, s, n);
		s += n ? n : 1;
	}
	if (*s)
		buf_puts(out, "…");
}

void report_text(struct buf *out, const char *text)
{
	report_text_cut(out, text, SIZE_MAX);
}

const char *report_count(int64_t n, char out[REPORT_WORD])
{
	char digits[32];
	int len = snprintf(digits, sizeof digits, "%" PRIu64,
			   n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
	char *to = out;
	if (n < 0)
		*to++ = '-';
	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return out;
}

const char *report_value(double v, char out[REPORT_WORD])
{
	if (!isfinite(v))
		return strcpy(out, unknown);
	snprintf(out, REPORT_WORD, fabs(v) >= 1000 && fabs(v) < 1e6 ? "%.0f" : "%.4g", v);
	return out;
}

const char *report_rate(double v, char out[REPORT_WORD])
{
	if (!isfinite(v))
		return strcpy(out, unknown);
	return human_count(v, "", out);
}

const char *report_seconds(double s, char out[REPORT_WORD])
{
	if (!isfinite(s))
		return strcpy(out, unknown);
	return fabs(s) < 60 ? human_seconds(s, out) : report_duration(s, out);
}

const char *report_duration(double s, char out[REPORT_WORD])
{
	static const struct {
		double seconds;
		const char *big, *small;
		double of; /* small ones in a big one */
	} steps[] = { { 86400, "d", "h", 24 }, { 3600, "h", "min", 60 }, { 60, "min", "s", 60 } };
	if (!isfinite(s) || fabs(s) > 1e12)
		return strcpy(out, unknown);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		double unit = steps[i].seconds / steps[i].of, small = round(s / unit);
		if (small < steps[i].of)
			continue;
		double big = floor(small / steps[i].of);
		snprintf(out, REPORT_WORD, "%.0f %s %.0f %s", big, steps[i].big,
			 small - big * steps[i].of, steps[i].small);
		return out;
	}
	return human_seconds(s, out);
}

const char *report_after(double s, char out[REPORT_WORD])
{
	return report_duration(fabs(s) < 0.1 ? 0 : s, out);
}

const char *report_bytes(double bytes, char out[REPORT_WORD])
{
	if (!isfinite(bytes))
		return strcpy(out, unknown);
	return human_bytes(bytes, out);
}

const char *report_hours(double s, char out[REPORT_WORD])
{
	double hours = s / 3600;
	if (fabs(hours) >= 1000 && fabs(hours) < 1e15)
		return report_count((int64_t)llround(hours), out);
	return report_value(hours, out);
}

const char *report_device_time(double s, char out[REPORT_WORD])
{
	if (!(fabs(s) >= 3600))
		return report_duration(s, out);
	report_hours(s, out);
	return strcat(out, " h");
}

const char *report_percent(double share, char out[REPORT_WORD])
{
	if (!isfinite(share) || fabs(share) > 1e6)
		return strcpy(out, unknown);
	snprintf(out, REPORT_WORD, "%.*f %%", fabs(share) < 0.0995 ? 2 : 1, 100 * share);
	return out;
}

const char *report_time(double time, char out[REPORT_WORD])
{
	struct tm tm;
	time_t whole = isfinite(time) && fabs(time) < 1e11 ? (time_t)floor(time) : 0;
	if (!(time > 0) || !whole || !gmtime_r(&whole, &tm) ||
	    !strftime(out, REPORT_WORD, "%Y-%m-%d %H:%M:%S", &tm))
		return strcpy(out, unknown);
	return out;
}

const char *report_exact(double v, char out[REPORT_WORD])
{
	if (!isfinite(v))
		return strcpy(out, "null");
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, REPORT_WORD, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	return out;
}

void report_data(struct buf *out, const char *field, double exact, const char *shown)
{
	char word[REPORT_WORD];
	buf_printf(out, "<data class=\"%s\" value=\"%s\">%s</data>", field,
		   report_exact(exact, word), shown);
}
