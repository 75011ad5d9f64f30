#include "base/ranges.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 60 }; /* bytes of the text that an error quotes */

int ranges_add(struct ranges *r, int64_t first, int64_t count, struct err *e)
{
	if (first < 0 || first >= RANGES_END || count < 1 || count > RANGES_END - first)
		return err_set(e, ERR_USAGE, "%lld numbers from %lld on are not a range",
			       (long long)count, (long long)first);
	struct range add = { first, first + count };
	int at = 0, after;
	while (at < r->n && r->list[at].end < add.first)
		at++;
	for (after = at; after < r->n && r->list[after].first <= add.end; after++) {
		add.first = add.first < r->list[after].first ? add.first : r->list[after].first;
		add.end = add.end > r->list[after].end ? add.end : r->list[after].end;
	}
	if (after == at && r->n == RANGES_MAX)
		return err_set(e, ERR_USAGE, "there are more than %d ranges", RANGES_MAX);
	memmove(&r->list[at + 1], &r->list[after], (size_t)(r->n - after) * sizeof *r->list);
	r->list[at] = add;
	r->n += at + 1 - after;
	return 0;
}

/* Reads a number at *at and moves behind it. */
static int read_number(const char **at, int64_t *out)
{
	int64_t n = 0;
	const char *p = *at;
	for (; *p >= '0' && *p <= '9'; p++) {
		n = n * 10 + (*p - '0');
		if (n >= RANGES_TEXT_END)
			return -1;
	}
	if (p == *at)
		return -1;
	*out = n;
	*at = p;
	return 0;
}

int ranges_parse(const char *text, struct ranges *out, struct err *e)
{
	static const char between[] = ", \t";
	struct ranges r = { 0 };
	for (const char *at = text + strspn(text, between); *at; at += strspn(at, between)) {
		const char *part = at;
		int64_t first, last;
		int rc = read_number(&at, &first);
		last = first;
		if (!rc && *at == '-') {
			at++;
			rc = read_number(&at, &last);
		}
		if (rc || last < first || (*at && !strchr(between, *at)))
			return err_set(e, ERR_USAGE,
				       "\"%.*s\" is neither a number nor a range such as 320-335",
				       (int)strcspn(part, between) < SHOWN
					       ? (int)strcspn(part, between)
					       : SHOWN,
				       part);
		if (ranges_add(&r, first, last - first + 1, e))
			return -1;
	}
	*out = r;
	return 0;
}

void ranges_write(const struct ranges *r, struct buf *out)
{
	for (int i = 0; i < r->n; i++) {
		const struct range *at = &r->list[i];
		buf_printf(out, "%s%lld", i ? "," : "", (long long)at->first);
		if (at->end - at->first > 1)
			buf_printf(out, "-%lld", (long long)at->end - 1);
	}
}

int64_t ranges_count(const struct ranges *r, int64_t from, int64_t to)
{
	int64_t n = 0;
	for (int i = 0; r && i < r->n; i++) {
		int64_t first = r->list[i].first > from ? r->list[i].first : from,
			end = r->list[i].end < to ? r->list[i].end : to;
		n += end > first ? end - first : 0;
	}
	return n;
}

int64_t ranges_skip(const struct ranges *r, int64_t from, int64_t n)
{
	int64_t at = from + n;
	for (int i = 0; r && i < r->n && r->list[i].first <= at; i++)
		if (r->list[i].end > from)
			at += r->list[i].end - (r->list[i].first > from ? r->list[i].first : from);
	return at;
}

int64_t ranges_end(const struct ranges *r, int64_t from, int64_t n)
{
	return n > 0 ? ranges_skip(r, from, n - 1) + 1 : from;
}

int64_t ranges_back(const struct ranges *r, int64_t to, int64_t n)
{
	int64_t at = to;
	for (int i = r ? r->n - 1 : -1; i >= 0 && n > 0; i--) {
		int64_t end = r->list[i].end < at ? r->list[i].end : at;
		if (r->list[i].first >= at)
			continue;
		if (at - end >= n)
			break;
		n -= at - end;
		at = r->list[i].first;
	}
	return at > n ? at - n : 0;
}
