#include "topo/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 9, BRACKETS = 8 };

/* The expansion of one item: the name as far as it is built, and the list that gets the names. */
struct expansion {
	const char *text; /* the whole list, for errors */
	struct hostlist *out;
	char name[HOSTLIST_NAME];
	struct err *e;
};

static int refuse_list(struct expansion *x, const char *why)
{
	return err_set(x->e, ERR_USAGE, "host list \"%.200s\": %s", x->text, why);
}

static int emit_name(struct expansion *x)
{
	struct hostlist *h = x->out;
	if (!x->name[0])
		return refuse_list(x, "a name is empty");
	if (h->n == HOSTLIST_MAX)
		return refuse_list(x, "more than 65536 names");
	if (h->n == h->cap) {
		int cap = h->cap ? 2 * h->cap : 16;
		void *more = realloc(h->names, (size_t)cap * sizeof *h->names);
		if (!more)
			return err_set(x->e, ERR_NOMEM, "host list: no memory for %d names", cap);
		h->names = more;
		h->cap = cap;
	}
	memcpy(h->names[h->n++], x->name, sizeof x->name);
	return 0;
}

/* Reads 1 to DIGITS digits; *width is their number. */
static int read_number(struct expansion *x, const char **at, const char *end, long *value,
		       int *width)
{
	const char *from = *at;
	*value = 0;
	while (*at < end && **at >= '0' && **at <= '9' && *at - from < DIGITS)
		*value = *value * 10 + (*(*at)++ - '0');
	*width = (int)(*at - from);
	return *width ? 0 : refuse_list(x, "a range in brackets is not of the form 1-4,7");
}

static int append_name(struct expansion *x, size_t used, const char *s, size_t len)
{
	if (used + len >= sizeof x->name)
		return refuse_list(x, "a name is longer than 63 characters");
	memcpy(x->name + used, s, len);
	x->name[used + len] = '\0';
	return 0;
}

static int expand_from(struct expansion *x, size_t used, const char *at, const char *end,
		       int depth);

/* [at, end) is the text between brackets, [rest, stop) the text after them. */
static int expand_ranges(struct expansion *x, size_t used, const char *at, const char *end,
			 const char *rest, const char *stop, int depth)
{
	for (;;) {
		long lo, hi;
		int width, ignored;
		if (read_number(x, &at, end, &lo, &width))
			return -1;
		hi = lo;
		if (at < end && *at == '-') {
			at++;
			if (read_number(x, &at, end, &hi, &ignored))
				return -1;
		}
		if (hi < lo)
			return refuse_list(x, "a range runs backwards");
		for (long v = lo; v <= hi; v++) {
			char digits[16];
			int len = snprintf(digits, sizeof digits, "%0*ld", width, v);
			if (append_name(x, used, digits, (size_t)len) ||
			    expand_from(x, used + (size_t)len, rest, stop, depth + 1))
				return -1;
		}
		if (at == end)
			return 0;
		if (*at++ != ',')
			return refuse_list(x, "a range in brackets is not of the form 1-4,7");
	}
}

/* Adds the names of [at, end) to the `used` characters that x->name already has. */
static int expand_from(struct expansion *x, size_t used, const char *at, const char *end, int depth)
{
	const char *open = memchr(at, '[', (size_t)(end - at));
	if (append_name(x, used, at, (size_t)((open ? open : end) - at)))
		return -1;
	if (!open)
		return emit_name(x);
	const char *close = memchr(open, ']', (size_t)(end - open));
	if (!close)
		return refuse_list(x, "a bracket is not closed");
	if (depth == BRACKETS)
		return refuse_list(x, "more than 8 brackets in one name");
	return expand_ranges(x, used + (size_t)(open - at), open + 1, close, close + 1, end, depth);
}

/* The end of the item at `at`: the next comma outside brackets. */
static const char *item_end(const char *at)
{
	int inside = 0;
	for (; *at && (inside || *at != ','); at++)
		inside = *at == '[' ? 1 : *at == ']' ? 0 : inside;
	return at;
}

int topo_hostlist_expand(const char *text, struct hostlist *out, struct err *e)
{
	struct hostlist h = { 0 };
	struct expansion x = { .text = text, .out = &h, .e = e };
	for (const char *at = text;; at++) {
		const char *end = item_end(at);
		if (expand_from(&x, 0, at, end, 0)) {
			topo_hostlist_free(&h);
			return -1;
		}
		at = end;
		if (!*at)
			break;
	}
	*out = h;
	return 0;
}

void topo_hostlist_free(struct hostlist *h)
{
	free(h->names);
	*h = (struct hostlist){ 0 };
}

static int refuse_counts(const char *text, struct err *e)
{
	return err_set(e, ERR_USAGE, "task counts \"%.200s\": not of the form 4(x2),3", text);
}

int topo_hostlist_counts(const char *text, int *counts, int n, struct err *e)
{
	int filled = 0;
	for (const char *at = text;;) {
		int value, repeat = 1, used = 0;
		if (*at < '0' || *at > '9' || sscanf(at, "%7d%n", &value, &used) != 1 ||
		    value > 1000000)
			return refuse_counts(text, e);
		at += used;
		used = 0;
		if (*at == '(') {
			if (sscanf(at, "(x%7d%n", &repeat, &used) != 1 || !used ||
			    at[used] != ')' || repeat < 1)
				return refuse_counts(text, e);
			at += used + 1;
		}
		for (; repeat > 0 && filled < n; repeat--)
			counts[filled++] = value;
		if (repeat > 0 || (*at != '\0' && *at != ','))
			break;
		if (*at++ == '\0')
			return filled == n
				       ? 0
				       : err_set(e, ERR_USAGE,
						 "task counts \"%.200s\": %d of them for %d nodes",
						 text, filled, n);
	}
	return err_set(e, ERR_USAGE, "task counts \"%.200s\": more than the %d nodes, or malformed",
		       text, n);
}
