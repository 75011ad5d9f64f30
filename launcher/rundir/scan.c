#include "launcher/rundir/scan.h"

#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/output.h"
#include "launcher/rundir/split.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20, NUMBER_MAX = 400 };

static uint64_t first_bytes(const char *text, size_t len)
{
	uint64_t v = 0;
	memcpy(&v, text, len < sizeof v ? len : sizeof v);
	return v;
}

void rundir_scan_init(struct rundir_scan *s, const char *const *keys, int n)
{
	*s = (struct rundir_scan){ .n = n };
	for (int i = 0; i < n; i++) {
		size_t len = strlen(keys[i]);
		s->keys[i] = (struct rundir_scan_key){ keys[i], len, first_bytes(keys[i], len) };
	}
}

/* The column of a key; -1: it is not wanted. place: how many keys came before it. */
static int column_of(struct rundir_scan *s, int place, const char *key, size_t len)
{
	uint64_t begin = first_bytes(key, len);
	bool held = place < RUNDIR_SCAN_SLOTS && len <= sizeof begin;
	if (held && s->slots[place].known && s->slots[place].begin == begin &&
	    s->slots[place].len == len)
		return s->slots[place].column;
	int column = -1;
	for (int i = 0; i < s->n && column < 0; i++)
		if (s->keys[i].len == len && s->keys[i].begin == begin &&
		    !memcmp(s->keys[i].name, key, len))
			column = i;
	if (held) {
		s->slots[place].begin = begin;
		s->slots[place].len = len;
		s->slots[place].column = column;
		s->slots[place].known = true;
	}
	return column;
}

/* --- Numbers --- */

/* The digits before and after the point, without the point: value = digits * 10^exponent. */
struct decimal {
	uint64_t digits;
	int n, exponent;
};

/* Returns where the number ends, or NULL if the text is no number of JSON that this reads. */
static const char *read_decimal(const char *at, const char *end, struct decimal *d)
{
	const char *begin = at;
	*d = (struct decimal){ 0 };
	for (; at < end && *at >= '0' && *at <= '9'; at++, d->n += d->digits > 0)
		d->digits = d->digits * 10 + (uint64_t)(*at - '0');
	if (at == begin)
		return NULL;
	if (at < end && *at == '.') {
		const char *point = ++at;
		for (; at < end && *at >= '0' && *at <= '9'; at++, d->n += d->digits > 0)
			d->digits = d->digits * 10 + (uint64_t)(*at - '0');
		if (at == point)
			return NULL;
		d->exponent = (int)(point - at);
	}
	if (at < end && (*at == 'e' || *at == 'E')) {
		int sign = 1, power = 0;
		if (++at < end && (*at == '-' || *at == '+'))
			sign = *at++ == '-' ? -1 : 1;
		if (at == end || *at < '0' || *at > '9')
			return NULL;
		for (; at < end && *at >= '0' && *at <= '9'; at++)
			power = power < 10000 ? power * 10 + (*at - '0') : power;
		d->exponent += sign * power;
	}
	return at;
}

static double slow_number(const char *text, size_t n)
{
	char copy[NUMBER_MAX], *long_copy = n < sizeof copy ? copy : malloc(n + 1);
	if (!long_copy)
		return NAN;
	memcpy(long_copy, text, n);
	long_copy[n] = '\0';
	double v = strtod(long_copy, NULL);
	if (long_copy != copy)
		free(long_copy);
	return v;
}

/* With 64 bits of precision a product or quotient by an exact power of ten has one rounding. The
 * second one, to double, is right unless the first result is next to the middle of two doubles.
 * Returns false if that may be so. */
static bool quick_number(const struct decimal *d, double *out)
{
#if LDBL_MANT_DIG == 64
	static const long double powers[] = { 1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
					      1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
					      1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
					      1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L };
	enum { POWERS = sizeof powers / sizeof *powers };
	if (d->n > 19 || d->exponent >= POWERS || d->exponent <= -POWERS)
		return false;
	long double v = (long double)d->digits;
	v = d->exponent < 0 ? v / powers[-d->exponent] : v * powers[d->exponent];
	uint64_t mantissa;
	memcpy(&mantissa, &v, sizeof mantissa);
	unsigned low = (unsigned)(mantissa & 0x7ff);
	*out = (double)v;
	return low < 0x3ff || low > 0x401;
#else
	(void)d;
	(void)out;
	return false;
#endif
}

static const char *read_number(const char *at, const char *end, double *out)
{
	struct decimal d;
	const char *begin = at;
	bool minus = *at == '-';
	const char *after = read_decimal(at + minus, end, &d);
	if (!after)
		return NULL;
	double v;
	if (quick_number(&d, &v))
		*out = minus ? -v : v;
	else
		*out = slow_number(begin, (size_t)(after - begin));
	return after;
}

/* --- Values --- */

/* at: after the opening quotation mark. Returns where the closing one is, or NULL. */
static const char *string_end(const char *at, const char *end)
{
	while ((at = memchr(at, '"', (size_t)(end - at)))) {
		const char *back = at;
		while (back[-1] == '\\')
			back--;
		if (!((at - back) & 1))
			return at;
		if (++at >= end)
			return NULL;
	}
	return NULL;
}

/* at: at the bracket. Returns what follows the value, or NULL. */
static const char *skip_nested(const char *at, const char *end)
{
	int64_t depth = 0;
	for (; at < end; at++) {
		if (*at == '"') {
			if (!(at = string_end(at + 1, end)))
				return NULL;
		} else if (*at == '{' || *at == '[') {
			depth++;
		} else if ((*at == '}' || *at == ']') && !--depth) {
			return at + 1;
		}
	}
	return NULL;
}

static const char *skip_word(const char *at, const char *end)
{
	static const char *const words[] = { "null", "true", "false" };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(end - at) >= n && !memcmp(at, words[i], n))
			return at + n;
	}
	return NULL;
}

/* Digits of a number that nobody wants. */
static const char *skip_number(const char *at, const char *end)
{
	struct decimal d;
	return read_decimal(at + (*at == '-'), end, &d);
}

/* Returns what follows the value, or NULL. */
static const char *read_value(const char *at, const char *end, double *out)
{
	if (at == end)
		return NULL;
	if (out)
		*out = NAN;
	if (*at == '"') {
		at = string_end(at + 1, end);
		return at ? at + 1 : NULL;
	}
	if (*at == '{' || *at == '[')
		return skip_nested(at, end);
	if (*at == '-' || (*at >= '0' && *at <= '9'))
		return out ? read_number(at, end, out) : skip_number(at, end);
	return skip_word(at, end);
}

static const char *skip_blanks(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
		at++;
	return at;
}

bool rundir_scan_line(struct rundir_scan *s, const char *line, size_t len, double *values)
{
	const char *end = line + len, *at = skip_blanks(line, end);
	for (int i = 0; i < s->n; i++)
		values[i] = NAN;
	if (at == end || *at != '{')
		return false;
	at = skip_blanks(at + 1, end);
	if (at < end && *at == '}')
		return skip_blanks(at + 1, end) == end;
	for (int place = 0; at < end && *at == '"'; place++) {
		const char *key = at + 1, *close = string_end(key, end);
		if (!close)
			return false;
		int column = column_of(s, place, key, (size_t)(close - key));
		at = skip_blanks(close + 1, end);
		if (at == end || *at != ':')
			return false;
		at = read_value(skip_blanks(at + 1, end), end,
				column >= 0 ? &values[column] : NULL);
		at = at ? skip_blanks(at, end) : end;
		if (at == end)
			return false;
		if (*at == '}')
			return skip_blanks(at + 1, end) == end;
		if (*at != ',')
			return false;
		at = skip_blanks(at + 1, end);
	}
	return false;
}

/* --- metrics.jsonl --- */

struct scanning {
	struct rundir_scan scan;
	struct rundir_split split;
	struct segments_reader reader;
	double values[RUNDIR_SCAN_KEYS];
	void (*each)(void *arg, const double *values);
	void *arg;
	int64_t damaged;
	int newer; /* the version of a newer muster; 0: none */
	char data[READ_BYTES];
};

static void scan_line(void *scanning, const char *line, size_t n)
{
	struct scanning *s = scanning;
	struct rundir_head head;
	json_t *doc;
	if (!n)
		return;
	if (rundir_head_read(line, n, &head, &doc)) {
		if (head.version > RUNDIR_VERSION)
			s->newer = head.version;
		json_decref(doc);
	} else if (rundir_scan_line(&s->scan, line, n, s->values)) {
		s->each(s->arg, s->values);
	} else {
		s->damaged++;
	}
}

int rundir_metrics_scan(const char *run, const char *const *keys, int n,
			void (*each)(void *arg, const double *values), void *arg, int64_t *damaged,
			struct err *e)
{
	struct scanning *s = calloc(1, sizeof *s);
	ssize_t got = 0;
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory to read its metrics", run);
	rundir_scan_init(&s->scan, keys, n);
	segments_reader_init(&s->reader, run, RUN_METRICS);
	s->each = each;
	s->arg = arg;
	while (!s->newer && (got = segments_read(&s->reader, s->data, sizeof s->data, e)) > 0)
		rundir_split_feed(&s->split, s->data, (size_t)got, scan_line, s);
	int rc = got < 0 ? -1 : 0;
	if (s->newer)
		rc = rundir_head_check(&(struct rundir_head){ .format = RUN_METRICS,
							      .version = s->newer },
				       run, e);
	if (!rc)
		*damaged = s->damaged + s->split.too_long + (s->split.part.len > 0);
	rundir_split_fini(&s->split);
	segments_reader_fini(&s->reader);
	free(s);
	return rc;
}
