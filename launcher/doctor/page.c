#include "launcher/doctor/doctor.h"

#include "base/human.h"

#include <stdio.h>
#include <string.h>

enum { NAMED = 3, OBJECT_WIDTH = 22, INDENT = 4 + 2 + OBJECT_WIDTH + 2 };

struct page {
	const struct doctor_node *nodes;
	int n, columns;
	bool colour, quiet;
	struct buf *out;
};

static const char *const inks[FINDING_LEVELS] = { "\033[32m", "\033[33m", "\033[31m" };

/* Two findings with the level FINDING_OK are equal whatever their text is. Other findings are equal
 * if their texts are. */
static bool same_finding(const struct finding *a, const struct finding *b)
{
	return a->level == b->level && !strcmp(a->check, b->check) &&
	       !strcmp(a->object, b->object) &&
	       (a->level == FINDING_OK ||
		(!strcmp(a->found, b->found) && !strcmp(a->remedy, b->remedy)));
}

static const struct finding *find_finding(const struct findings *f, const struct finding *x)
{
	for (int i = 0; i < f->n; i++)
		if (same_finding(&f->rows[i], x))
			return &f->rows[i];
	return NULL;
}

/* The number of characters, not bytes, so that columns are aligned. */
static int text_width(const char *text)
{
	int n = 0;
	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Prints the text, broken at blanks. The first line starts with `lead`; the others are indented. */
static void print_wrapped(struct page *p, const char *lead, const char *text)
{
	const int room = p->columns - INDENT < 30 ? 30 : p->columns - INDENT;
	int used = 0;
	buf_puts(p->out, lead);
	while (*text) {
		char word[512];
		size_t len = strcspn(text, " ");
		snprintf(word, sizeof word, "%.*s",
			 (int)(len < sizeof word ? len : sizeof word - 1), text);
		if (used && used + 1 + text_width(word) > room) {
			buf_printf(p->out, "\n%*s", INDENT, "");
			used = 0;
		}
		buf_printf(p->out, "%s%s", used ? " " : "", word);
		used += text_width(word) + (used > 0);
		text += len + (text[len] == ' ');
	}
	buf_puts(p->out, "\n");
}

/* The nodes with this finding, such as "n1, n2 and 6 more: ". It is "" for a single node, for a
 * finding about all nodes together, and for a FINDING_OK of every node. */
static void format_names(struct page *p, const struct finding *x, char *out, size_t size)
{
	int count = 0, at = 0;
	out[0] = '\0';
	if (x->whole)
		return;
	for (int i = 0; i < p->n; i++) {
		if (!find_finding(&p->nodes[i].found, x))
			continue;
		if (count++ < NAMED)
			at += snprintf(out + at, size - (size_t)at, "%s%s", count > 1 ? ", " : "",
				       p->nodes[i].name);
	}
	if (p->n == 1 || count == p->n)
		snprintf(out, size, "%s",
			 p->n == 1 || x->level == FINDING_OK ? "" : "every node: ");
	else if (count > NAMED)
		snprintf(out + at, size - (size_t)at, " and %d more: ", count - NAMED);
	else
		snprintf(out + at, size - (size_t)at, ": ");
}

static void print_finding(struct page *p, const struct finding *x)
{
	char names[4 * HOSTLIST_NAME + 32], text[sizeof names + sizeof x->found];
	format_names(p, x, names, sizeof names);
	snprintf(text, sizeof text, "%s%s", names, x->found);
	buf_printf(p->out, "%s%-4s%s  %s", p->colour ? inks[x->level] : "",
		   doctor_finding_word(x->level), p->colour ? "\033[0m" : "", x->object);
	int over = text_width(x->object) - OBJECT_WIDTH;
	if (over > 0)
		buf_printf(p->out, "\n%*s", INDENT, "");
	else
		buf_printf(p->out, "%*s", 2 - over, "");
	print_wrapped(p, "", text);
	if (*x->remedy) {
		buf_printf(p->out, "%*s", INDENT - 2, "");
		print_wrapped(p, "→ ", x->remedy);
	}
}

/* Whether an earlier node has an equal finding, which is printed already. */
static bool printed_before(const struct page *p, int node, int row)
{
	const struct finding *x = &p->nodes[node].found.rows[row];
	for (int i = 0; i < node; i++)
		if (find_finding(&p->nodes[i].found, x))
			return true;
	return false;
}

static void print_summary(struct page *p, bool apart)
{
	int counts[FINDING_LEVELS] = { 0 }, sick = 0;
	for (int i = 0; i < p->n; i++) {
		for (int r = 0; r < p->nodes[i].found.n; r++)
			counts[p->nodes[i].found.rows[r].level]++;
		sick += doctor_findings_worst(&p->nodes[i].found) == FINDING_FAIL;
	}
	buf_printf(p->out, "%s%d ok, %d warning%s, %d failure%s", apart ? "\n" : "",
		   counts[FINDING_OK], counts[FINDING_WARN], human_s(counts[FINDING_WARN]),
		   counts[FINDING_FAIL], human_s(counts[FINDING_FAIL]));
	if (p->n > 1)
		buf_printf(p->out, "; %d of %d nodes can be used", p->n - sick, p->n);
	buf_puts(p->out, "\n");
}

void doctor_print(const struct doctor_node *nodes, int n, bool colour, bool quiet, int columns,
		  struct buf *out)
{
	struct page p = { .nodes = nodes,
			  .n = n,
			  .colour = colour,
			  .quiet = quiet,
			  .columns = columns,
			  .out = out };
	buf_printf(out, "muster doctor: %s", nodes[0].name);
	if (n > 1)
		buf_printf(out, " and %d other node%s", n - 1, human_s(n - 1));
	buf_puts(out, "\n\n");
	size_t before = out->len;
	for (int i = 0; i < n; i++)
		for (int r = 0; r < nodes[i].found.n; r++) {
			const struct finding *x = &nodes[i].found.rows[r];
			if (!(quiet && x->level == FINDING_OK) && !printed_before(&p, i, r))
				print_finding(&p, x);
		}
	print_summary(&p, out->len > before);
}

json_t *doctor_json(const struct doctor_node *nodes, int n)
{
	enum finding_level worst = FINDING_OK;
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		enum finding_level level = doctor_findings_worst(&nodes[i].found);
		worst = level > worst ? level : worst;
		json_t *node = json_pack("{s:s, s:s}", "name", nodes[i].name, "level",
					 doctor_finding_word(level)),
		       *found = doctor_findings_json(&nodes[i].found);
		json_object_update(node, found);
		json_decref(found);
		json_array_append_new(list, node);
	}
	return json_pack("{s:s, s:s, s:o}", "format", "muster doctor 1", "level",
			 doctor_finding_word(worst), "nodes", list);
}
