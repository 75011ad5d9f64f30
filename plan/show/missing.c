#include "plan/show/missing.h"

#include <string.h>

static bool is_used(const struct cluster *c, const struct plan *p, int kind)
{
	for (int r = 0; p && r < p->world; r++)
		if (c->nodes[p->ranks[r].node].kind == kind)
			return true;
	for (int i = 0; !p && i < c->n_nodes; i++)
		if (c->nodes[i].kind == kind)
			return true;
	return false;
}

void show_missing_print(const struct cluster *c, const struct plan *p, struct buf *out)
{
	for (int i = 0, said = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		if (!*k->unsaid || !is_used(c, p, i))
			continue;
		buf_puts(out, said++ ? "" : "\nMissing in the description of the machines\n");
		for (const char *at = k->unsaid; *at;) {
			const char *end = strstr(at, "; ");
			size_t len = end ? (size_t)(end - at) : strlen(at);
			buf_printf(out, "  %s  %.*s\n", k->name, (int)len, at);
			at += len + (end ? 2 : 0);
		}
	}
}

json_t *show_missing_json(const struct cluster *c, const struct plan *p)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_kinds; i++)
		if (*c->kinds[i].unsaid && is_used(c, p, i))
			json_array_append_new(list,
					      json_pack("{s:s, s:s}", "kind", c->kinds[i].name,
							"missing", c->kinds[i].unsaid));
	return list;
}
