/* job: the resolved job, folded, and the keys in which the jobs of several runs differ. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <stdlib.h>
#include <string.h>

void report_job(struct buf *out, const struct report_run *r)
{
	struct buf copy = BUF_INIT;
	if (!r->job.len)
		return;
	buf_add(&copy, r->job.data, r->job.len);
	report_section_open(out, r, "job", "Job");
	buf_puts(out, "<details><summary>The resolved job, with every default</summary><pre "
		      "tabindex=\"0\">");
	report_text(out, buf_str(&copy));
	buf_puts(out, "</pre></details>\n");
	report_section_close(out);
	buf_fini(&copy);
}

/* --- Several runs --------------------------------------------------------------------------- */

enum { KEYS = 1024 };

/* A line of a job.ini: pointers into its text, of these lengths. */
struct key {
	const char *section, *name, *value;
	int section_len, name_len, value_len;
};

static int cut_blanks(const char **text, int len)
{
	while (len && strchr(" \t\r", **text)) {
		(*text)++;
		len--;
	}
	while (len && strchr(" \t\r", (*text)[len - 1]))
		len--;
	return len;
}

static size_t list_keys(const struct buf *job, struct key *keys)
{
	const char *section = "", *at = job->data ? job->data : "", *end = at + job->len;
	int section_len = 0;
	size_t n = 0;
	while (at < end && n < KEYS) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t whole = (size_t)((stop ? stop : end) - at);
		const char *line = at;
		int len = cut_blanks(&line, whole > 4096 ? 4096 : (int)whole);
		const char *equals = len ? memchr(line, '=', (size_t)len) : NULL;
		at += whole + 1;
		if (len > 2 && *line == '[' && line[len - 1] == ']') {
			section = line + 1;
			section_len = len - 2;
		} else if (equals && *line != ';' && *line != '#') {
			struct key *k = &keys[n++];
			*k = (struct key){ section, line, equals + 1, section_len, 0, 0 };
			k->name_len = cut_blanks(&k->name, (int)(equals - line));
			k->value_len = cut_blanks(&k->value, (int)(line + len - equals - 1));
		}
	}
	return n;
}

static bool same(const char *a, int a_len, const char *b, int b_len)
{
	return a_len == b_len && !memcmp(a, b, (size_t)a_len);
}

static const struct key *find_key(const struct key *keys, size_t n, const struct key *like)
{
	for (size_t i = 0; i < n; i++)
		if (same(keys[i].name, keys[i].name_len, like->name, like->name_len) &&
		    same(keys[i].section, keys[i].section_len, like->section, like->section_len))
			return &keys[i];
	return NULL;
}

static void put_piece(struct buf *out, const char *text, int len)
{
	struct buf copy = BUF_INIT;
	buf_add(&copy, text, (size_t)len);
	report_text_cut(out, buf_str(&copy), 200);
	buf_fini(&copy);
}

static bool put_key_row(struct buf *out, const struct key *k, struct key (*all)[KEYS],
			const size_t *counts, int n)
{
	bool differs = false;
	for (int i = 0; i < n; i++) {
		const struct key *other = find_key(all[i], counts[i], k);
		differs |= !other || !same(other->value, other->value_len, k->value, k->value_len);
	}
	if (!differs)
		return false;
	buf_puts(out, "<tr><th scope=\"row\">");
	put_piece(out, k->section, k->section_len);
	buf_puts(out, ".");
	put_piece(out, k->name, k->name_len);
	buf_puts(out, "</th>");
	for (int i = 0; i < n; i++) {
		const struct key *of = find_key(all[i], counts[i], k);
		buf_puts(out, "<td>");
		if (of)
			put_piece(out, of->value, of->value_len);
		else
			buf_puts(out, "–");
		buf_puts(out, "</td>");
	}
	buf_puts(out, "</tr>\n");
	return true;
}

void report_job_differences(struct buf *out, const struct report_run *runs, int n)
{
	struct key(*all)[KEYS] = calloc((size_t)n, sizeof *all);
	size_t counts[REPORT_RUNS] = { 0 };
	bool any = false;
	if (!all)
		return;
	for (int i = 0; i < n; i++)
		counts[i] = list_keys(&runs[i].job, all[i]);
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < counts[i]; k++) {
			bool seen = false;
			for (int before = 0; before < i; before++)
				seen |= find_key(all[before], counts[before], &all[i][k]) != NULL;
			if (!seen)
				any |= put_key_row(out, &all[i][k], all, counts, n);
		}
	if (!any)
		buf_printf(out,
			   "<tr><th scope=\"row\">job</th><td colspan=\"%d\">the same</td></tr>\n",
			   n);
	free(all);
}
