#include "topo/draw/internal.h"

#include "base/human.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *topo_node_name(const struct cluster *c, int index)
{
	return c->nodes[index].name;
}

const char *topo_switch_name(const struct cluster *c, int index)
{
	return c->switches[index].name;
}

int topo_nodes_of_kind(const struct cluster *c, int kind)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += c->nodes[i].kind == kind;
	return n;
}

void topo_draw_plain(struct buf *out, const char *text)
{
	char copy[512];
	snprintf(copy, sizeof copy, "%s", text);
	human_plain(copy);
	buf_puts(out, copy);
}

/* The length of a name without its trailing digits, of which at most 9 count so that they fit a
 * long. */
static size_t stem_length(const char *name)
{
	size_t len = strlen(name), at = len;
	while (at > 0 && len - at < 9 && isdigit((unsigned char)name[at - 1]))
		at--;
	return at;
}

/* Whether b follows a in a range: it has the same stem and the next number, and both numbers have
 * the same width or no leading zeros. */
static bool follows_number(const char *a, const char *b)
{
	size_t s = stem_length(a);
	if (s != stem_length(b) || !a[s] || !b[s] || memcmp(a, b, s))
		return false;
	bool as_wide = strlen(a) == strlen(b);
	return (as_wide || (a[s] != '0' && b[s] != '0')) && atol(b + s) == atol(a + s) + 1;
}

static bool same_stem(const char *a, const char *b)
{
	size_t s = stem_length(a);
	return s == stem_length(b) && a[s] && b[s] && !memcmp(a, b, s);
}

/* The number of names from `at` on that form one range. */
static int run_from(const struct cluster *c, name_of *name, const int *indices, int n, int at)
{
	int end = at + 1;
	while (end < n && follows_number(name(c, indices[end - 1]), name(c, indices[end])))
		end++;
	return end - at;
}

void topo_names_fold(const struct cluster *c, name_of *name, const int *indices, int n, size_t most,
		     struct buf *out)
{
	size_t from = out->len;
	bool open = false;
	for (int i = 0, run; i < n; i += run) {
		const char *first = name(c, indices[i]);
		size_t s = stem_length(first);
		run = run_from(c, name, indices, n, i);
		const char *last = name(c, indices[i + run - 1]);
		if (out->len - from > most) {
			buf_printf(out, "%s, %d more", open ? "]" : "", n - i);
			return;
		}
		bool goes_on = i + run < n && same_stem(last, name(c, indices[i + run]));
		if (!open) {
			buf_puts(out, i ? "," : "");
			char head[TOPO_NAME + 1];
			snprintf(head, sizeof head, "%.*s", (int)s, first);
			topo_draw_plain(out, head);
			open = goes_on || run > 1;
			buf_puts(out, open ? "[" : "");
		} else {
			buf_puts(out, ",");
		}
		buf_puts(out, first + s);
		if (run > 1)
			buf_printf(out, "-%s", last + s);
		if (open && !goes_on) {
			buf_puts(out, "]");
			open = false;
		}
	}
}
