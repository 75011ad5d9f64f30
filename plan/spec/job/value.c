/* Reads, writes and describes one value by the type that the table gives it. */
#include "plan/spec/job/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(const struct job_key *key, struct job *job)
{
	return (char *)job + key->offset;
}

static const void *field_const(const struct job_key *key, const struct job *job)
{
	return (const char *)job + key->offset;
}

static void put_number(double x, struct buf *out)
{
	char text[40];
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, x);
		if (strtod(text, NULL) == x)
			break;
	}
	buf_puts(out, text);
}

static void put_words(const struct job_key *key, const char *last, struct buf *out)
{
	for (int i = 0; key->words[i]; i++)
		buf_printf(out, "%s%s", !i ? "" : key->words[i + 1] ? ", " : last, key->words[i]);
}

/* Prints limits of whole numbers as whole numbers, not as 1e+12. */
static void put_limit(const struct job_key *key, double x, struct buf *out)
{
	if (key->type == JOB_INT || key->type == JOB_RANGE)
		buf_printf(out, "%.0f", x);
	else
		put_number(x, out);
}

void job_value_domain(const struct job_key *key, struct buf *out)
{
	bool open = job_key_open(key);
	switch (key->type) {
	case JOB_INT:
	case JOB_RANGE:
	case JOB_REAL:
		buf_printf(out, "%s %s ", key->type == JOB_REAL ? "number" : "whole number",
			   key->above ? "above" : "from");
		put_limit(key, key->lo, out);
		buf_puts(out, key->below ? " to below " : " to ");
		put_limit(key, key->hi, out);
		if (key->type == JOB_RANGE)
			buf_puts(out, ", or two of them as MIN-MAX without blanks");
		break;
	case JOB_SEED:
		buf_printf(out, "whole number from 0 to %" PRIu64, UINT64_MAX);
		break;
	case JOB_BOOL:
		buf_puts(out, open ? "yes, no" : "yes or no");
		break;
	case JOB_ENUM:
	case JOB_WORD:
		put_words(key, open ? ", " : " or ", out);
		break;
	case JOB_NAME:
		buf_puts(out,
			 "letters, digits, '.', '_' and '-', beginning with a letter or digit");
		break;
	case JOB_ATOM:
		buf_puts(out, "text without blanks");
		break;
	case JOB_TIME:
		buf_puts(out,
			 "minutes, [hours:]minutes:seconds, or days-hours[:minutes[:seconds]]");
		break;
	case JOB_LINE:
		buf_puts(out, "text");
		break;
	}
	if (open)
		buf_puts(out, " or auto");
}

/* "cause; use a whole number from 1 to 9" */
static int bad(const struct job_key *key, const char *text, const char *cause, struct buf *why)
{
	char shown[JOB_SHOWN];
	buf_printf(why, "\"%s\" %s; use ", job_shown(text, shown), cause);
	if (key->type == JOB_INT || key->type == JOB_RANGE || key->type == JOB_REAL ||
	    key->type == JOB_SEED)
		buf_puts(why, "a ");
	job_value_domain(key, why);
	return -1;
}

static bool in_range(const struct job_key *key, double x)
{
	return (key->above ? x > key->lo : x >= key->lo) &&
	       (key->below ? x < key->hi : x <= key->hi);
}

/* Whether the text is decimal digits with at most one sign, and nothing more. */
static bool is_whole(const char *text)
{
	text += *text == '-' || *text == '+';
	return *text && !text[strspn(text, "0123456789")];
}

static int read_int(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	if (!is_whole(text))
		return bad(key, text, "is not a whole number", why);
	errno = 0;
	int64_t x = strtoll(text, NULL, 10);
	if (errno || !in_range(key, (double)x))
		return bad(key, text, "is out of range", why);
	memcpy(field(key, job), &x, sizeof x);
	return 0;
}

/* Reads digits up to one of the characters `ends` or the end of the text, and moves *text there. */
static bool read_digits(const char **text, const char *ends, int64_t *out)
{
	size_t n = strspn(*text, "0123456789");
	if (!n || !strchr(ends, (*text)[n]))
		return false;
	errno = 0;
	*out = strtoll(*text, NULL, 10);
	if (errno)
		*out = INT64_MAX;
	*text += n;
	return true;
}

static int read_range(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	struct job_range r;
	const char *at = text;
	bool whole = read_digits(&at, "-", &r.min);
	r.max = r.min;
	if (!whole || (*at && (at++, !read_digits(&at, "", &r.max))))
		return bad(key, text, "is neither a whole number nor a range", why);
	if (!in_range(key, (double)r.min) || !in_range(key, (double)r.max))
		return bad(key, text, "is out of range", why);
	if (r.min > r.max) {
		buf_printf(why,
			   "\"%" PRId64 "-%" PRId64 "\" begins with the larger number; use "
			   "%" PRId64 "-%" PRId64,
			   r.min, r.max, r.max, r.min);
		return -1;
	}
	memcpy(field(key, job), &r, sizeof r);
	return 0;
}

static int read_seed(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	if (!is_whole(text))
		return bad(key, text, "is not a whole number", why);
	errno = 0;
	uint64_t x = strtoull(text, NULL, 10);
	if (errno || *text == '-')
		return bad(key, text, "is out of range", why);
	memcpy(field(key, job), &x, sizeof x);
	return 0;
}

static int read_real(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	char *end;
	/* This also refuses hexadecimal, nan and inf, which strtod would accept. */
	bool digits = !text[strspn(text, "0123456789+-.eE")];
	errno = 0;
	double x = strtod(text, &end);
	if (end != text && !*end && !isfinite(x) && !digits)
		return bad(key, text, "is not a finite number", why);
	if (!digits || end == text || *end)
		return bad(key, text, "is not a number", why);
	if (errno || !isfinite(x) || !in_range(key, x))
		return bad(key, text, "is out of range", why);
	memcpy(field(key, job), &x, sizeof x);
	return 0;
}

static int word_place(const struct job_key *key, const char *text)
{
	for (int i = 0; key->words[i]; i++)
		if (!strcmp(text, key->words[i]))
			return i;
	return -1;
}

static int read_word(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	int place = word_place(key, text);
	char shown[JOB_SHOWN];
	if (place < 0) {
		const char *near = key->type == JOB_BOOL ? NULL : job_nearest(text, key->words);
		buf_printf(why, "\"%s\" is not ", job_shown(text, shown));
		job_value_domain(key, why);
		if (near)
			buf_printf(why, "; did you mean %s?", near);
		else
			buf_puts(why, "; use one of these");
		return -1;
	}
	if (key->type == JOB_BOOL)
		*(bool *)field(key, job) = place % 2; /* the words come in pairs, no before yes */
	else if (key->type == JOB_ENUM)
		memcpy(field(key, job), &place, sizeof place);
	else
		strncpy(field(key, job), text, key->size - 1); /* fills the rest with zeros */
	return 0;
}

int64_t job_time_seconds(const char *text)
{
	/* [days-]a[:b[:c]]: with days a is hours; without, a alone or a:b counts in minutes. */
	int64_t part[4] = { 0 };
	int n = 0;
	bool days = false;
	if (!strcmp(text, "UNLIMITED") || !strcmp(text, "infinite"))
		return 0;
	for (;; text++) {
		size_t digits = strspn(text, "0123456789");
		if (!digits || digits > 9 || n == (days ? 4 : 3))
			return -1;
		part[n++] = strtoll(text, NULL, 10);
		text += digits;
		if (!*text)
			break;
		if (*text == '-' && n == 1)
			days = true;
		else if (*text != ':')
			return -1;
	}
	if (days)
		return part[0] * 86400 + part[1] * 3600 + part[2] * 60 + part[3];
	return n == 3 ? part[0] * 3600 + part[1] * 60 + part[2] : part[0] * 60 + part[1];
}

static const char *text_fault(const struct job_key *key, const char *text)
{
	static const char in_names[] =
		"._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t n = strlen(text);
	switch (key->type) {
	case JOB_NAME:
		if (strchr("._-", text[0]) || strspn(text, in_names) != n)
			return "cannot be the name of a folder";
		break;
	case JOB_ATOM:
		if (text[strcspn(text, " \t\"'\\$`;")])
			return "has blanks or shell characters";
		break;
	case JOB_TIME:
		if (n && job_time_seconds(text) < 0)
			return "is not a time limit";
		break;
	default:
		break;
	}
	return NULL;
}

/* Finds a comment or quotes that would become part of the value. */
static const char *text_trap(const char *text)
{
	size_t n = strlen(text);
	if (n > 1 && (*text == '"' || *text == '\'') && text[n - 1] == *text)
		return "is in quotes, which would be part of it; write it without";
	for (size_t i = 0; i < n; i++)
		if ((text[i] == '#' || text[i] == ';') &&
		    (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t'))
			return "contains the start of a comment; write comments on lines of their "
			       "own, and values without \" #\" and \" ;\"";
	return NULL;
}

static int read_text(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	size_t n = strlen(text);
	if (n >= key->size) {
		buf_printf(why, "is %zu bytes long; use at most %zu", n, key->size - 1);
		return -1;
	}
	const char *fault = text_fault(key, text);
	if (fault)
		return bad(key, text, fault, why);
	memset(field(key, job), 0, key->size); /* equal jobs are equal bytes */
	memcpy(field(key, job), text, n);
	return 0;
}

int job_value_read(const struct job_key *key, const char *text, struct job *job, struct buf *why)
{
	static int (*const readers[])(const struct job_key *, const char *, struct job *,
				      struct buf *) = {
		[JOB_INT] = read_int,   [JOB_RANGE] = read_range, [JOB_SEED] = read_seed,
		[JOB_REAL] = read_real, [JOB_BOOL] = read_word,   [JOB_ENUM] = read_word,
		[JOB_WORD] = read_word, [JOB_NAME] = read_text,   [JOB_ATOM] = read_text,
		[JOB_TIME] = read_text, [JOB_LINE] = read_text,
	};
	if (!*text && *key->def) {
		buf_printf(why, "has no value; give one, or delete the line for the default (%s)",
			   key->def);
		return -1;
	}
	uint32_t open = job_key_open(key);
	job->open &= ~open;
	if (open && !strcmp(text, "auto")) {
		job->open |= open;
		text = key->def;
	}
	char shown[JOB_SHOWN];
	const char *trap = text_trap(text);
	if (trap) {
		buf_printf(why, "\"%s\" %s", job_shown(text, shown), trap);
		return -1;
	}
	return readers[key->type](key, text, job, why);
}

void job_value_write(const struct job_key *key, const struct job *job, struct buf *out)
{
	const void *from = field_const(key, job);
	int64_t whole;
	struct job_range range;
	uint64_t seed;
	double real;
	int place;
	if (job->open & job_key_open(key)) {
		buf_puts(out, "auto");
		return;
	}
	switch (key->type) {
	case JOB_INT:
		memcpy(&whole, from, sizeof whole);
		buf_printf(out, "%" PRId64, whole);
		break;
	case JOB_RANGE:
		memcpy(&range, from, sizeof range);
		buf_printf(out, "%" PRId64, range.min);
		if (range.max > range.min)
			buf_printf(out, "-%" PRId64, range.max);
		break;
	case JOB_SEED:
		memcpy(&seed, from, sizeof seed);
		buf_printf(out, "%" PRIu64, seed);
		break;
	case JOB_REAL:
		memcpy(&real, from, sizeof real);
		put_number(real, out);
		break;
	case JOB_BOOL:
		buf_puts(out, *(const bool *)from ? "yes" : "no");
		break;
	case JOB_ENUM:
		memcpy(&place, from, sizeof place);
		buf_puts(out, key->words[place]);
		break;
	default:
		buf_puts(out, from);
		break;
	}
}

const char *job_word(const struct job *job, size_t offset)
{
	int place;
	memcpy(&place, (const char *)job + offset, sizeof place);
	return job_enum_word(offset, place);
}

const char *job_enum_word(size_t offset, int value)
{
	return job_keys[job_key_at(offset)].words[value];
}
