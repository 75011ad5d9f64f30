#include "topo/discover/internal.h"
#include "topo/json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slurm's step manager passes on lines of up to a kilobyte in one piece. */
enum { PART = 800, PARTS_MOST = 100000 };

int report_print(const char *node, const struct cluster *local, const char *fabric, struct buf *out, struct err *e)
{
	json_t *doc = topo_json(local, e);
	if (!doc)
		return -1;
	struct buf text = BUF_INIT;
	char *dump = json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(doc);
	buf_printf(&text, "%s %s", *fabric ? fabric : "-", dump ? dump : "");
	int parts = (int)((text.len + PART - 1) / PART);
	for (int i = 0; i < parts; i++)
		buf_printf(out, "muster-topo %s %d %d %.*s\n", node, i, parts, PART, buf_str(&text) + (size_t)i * PART);
	bool bad = !dump || buf_failed(&text) || buf_failed(out);
	free(dump);
	buf_fini(&text);
	return bad ? err_set(e, ERR_NOMEM, "this host: no memory to tell what it is") : 0;
}

/* A node's parts as they come; -1 parts: broken. */
struct pieces {
	struct buf text;
	int next, parts;
};

struct entry {
	const char *name;
	int index;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void take_line(const char *line, size_t len, const struct entry *index, int n, struct pieces *all)
{
	char name[HOSTLIST_NAME];
	int part, parts, at = 0;
	char head[HOSTLIST_NAME + 64];
	snprintf(head, sizeof head, "%.*s", (int)(len < sizeof head - 1 ? len : sizeof head - 1), line);
	if (sscanf(head, "muster-topo %63s %6d %6d%n", name, &part, &parts, &at) != 3 || head[at] != ' ' || parts < 1 || parts > PARTS_MOST)
		return;
	struct entry key = { .name = name };
	const struct entry *found = bsearch(&key, index, (size_t)n, sizeof *index, by_name);
	if (!found)
		return;
	struct pieces *p = &all[found->index];
	if (part != p->next || (part && parts != p->parts)) {
		p->parts = -1;
		return;
	}
	p->parts = parts;
	p->next++;
	buf_add(&p->text, line + at + 1, len - (size_t)at - 1);
}

static void take_report(const char *node, struct pieces *p, struct report *r)
{
	const char *text = buf_str(&p->text), *blank = strchr(text, ' ');
	struct cluster c;
	if (p->parts < 1 || p->next != p->parts || !blank || (size_t)(blank - text) >= sizeof r->fabric)
		return;
	if (topo_json_read(node, blank + 1, strlen(blank + 1), &c, NULL))
		return;
	if (c.n_kinds == 1 && c.n_nodes == 1) {
		r->there = true;
		r->kind = c.kinds[0];
		c.kinds[0] = (struct node_kind){ .devices = 0 };
		snprintf(r->fabric, sizeof r->fabric, "%.*s", text[0] == '-' ? 0 : (int)(blank - text), text);
	}
	cluster_free(&c);
}

int report_parse(const char *text, const struct hostlist *nodes, struct report *reports, struct err *e)
{
	struct pieces *all = calloc((size_t)nodes->n + 1, sizeof *all);
	struct entry *index = calloc((size_t)nodes->n + 1, sizeof *index);
	int rc = all && index ? 0 : err_set(e, ERR_NOMEM, "no memory for the reports of %d nodes", nodes->n);
	for (int i = 0; !rc && i < nodes->n; i++)
		index[i] = (struct entry){ nodes->names[i], i };
	if (!rc)
		qsort(index, (size_t)nodes->n, sizeof *index, by_name);
	for (const char *at = text; !rc && *at;) {
		size_t len = strcspn(at, "\n");
		take_line(at, len, index, nodes->n, all);
		at += len + (at[len] == '\n');
	}
	for (int i = 0; all && i < nodes->n; i++) {
		if (!rc)
			take_report(nodes->names[i], &all[i], &reports[i]);
		buf_fini(&all[i].text);
	}
	free(all);
	free(index);
	return rc;
}
