#include "base/human.h"

#include <math.h>
#include <stdio.h>

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

const char *human_s(int64_t n)
{
	return n == 1 ? "" : "s";
}

void human_plain(char *text)
{
	for (unsigned char *s = (unsigned char *)text; *s; s++) {
		if (*s < ' ' || *s == 0x7f)
			*s = ' ';
		else if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
			s[0] = s[1] = ' ';
	}
}
