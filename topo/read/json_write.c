#include "topo/internal.h"
#include "topo/read/json.h"
#include "topo/read/found.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(type, member) \
	{ \
#member, FIELD_TEXT, offsetof(struct type, member), \
			sizeof((struct type *)0)->member, 0, false \
	}
#define NEEDED(type, member) \
	{ \
#member, FIELD_TEXT, offsetof(struct type, member), \
			sizeof((struct type *)0)->member, 0, true \
	}
#define COUNT(type, member, most) \
	{ \
#member, FIELD_COUNT, offsetof(struct type, member), 0, most, false \
	}
#define INDEX(type, member, most) \
	{ \
#member, FIELD_INDEX, offsetof(struct type, member), 0, most, false \
	}
#define FIGURE(type, member) \
	{ \
#member, FIELD_FIGURE, offsetof(struct type, member), 0, 0, false \
	}
#define FLAG(type, member) \
	{ \
#member, FIELD_FLAG, offsetof(struct type, member), 0, 0, false \
	}
#define LINK(type, member) \
	{ \
#member, FIELD_LINK, offsetof(struct type, member), 0, 0, false \
	}
#define END \
	{ \
		NULL, FIELD_TEXT, 0, 0, 0, false \
	}

/* clang-format off */
const struct field topo_fields_kind[] = {
	NEEDED(node_kind, name), TEXT(node_kind, device),
	{ "devices", FIELD_COUNT, offsetof(struct node_kind, devices), 0, MACHINE_CORES, true },
	COUNT(node_kind, cores, MACHINE_CORES), COUNT(node_kind, numa, MACHINE_NUMA),
	COUNT(node_kind, packages, MACHINE_NUMA), COUNT(node_kind, caches, MACHINE_CORES), FIGURE(node_kind, cache),
	FIGURE(node_kind, memory), FIGURE(node_kind, device_memory), FIGURE(node_kind, device_flops), FIGURE(node_kind, device_bandwidth),
	FIGURE(node_kind, link_bandwidth), FIGURE(node_kind, link_latency), FIGURE(node_kind, net_bandwidth), FIGURE(node_kind, net_latency),
	FLAG(node_kind, switched), TEXT(node_kind, unsaid), END,
};
/* clang-format on */
const struct field topo_fields_device[] = {
	TEXT(topo_device, name),
	TEXT(topo_device, bus),
	INDEX(topo_device, numa, MACHINE_NUMA - 1),
	TEXT(topo_device, cpus),
	INDEX(topo_device, nic, MACHINE_NICS - 1),
	LINK(topo_device, nic_link),
	COUNT(topo_device, pcie, 9),
	COUNT(topo_device, pcie_width, 64),
	COUNT(topo_device, nvlink, 99),
	FLAG(topo_device, mig),
	END,
};
const struct field topo_fields_nic[] = {
	TEXT(topo_nic, name),
	TEXT(topo_nic, bus),
	INDEX(topo_nic, numa, MACHINE_NUMA - 1),
	FIGURE(topo_nic, bandwidth),
	END,
};
const struct field topo_fields_link[] = {
	LINK(topo_link, kind),
	COUNT(topo_link, lanes, 100000),
	FIGURE(topo_link, bandwidth),
	FIGURE(topo_link, latency),
	END,
};
const struct field topo_fields_node[] = {
	COUNT(cluster_node, kind, NODES_MAX),
	INDEX(cluster_node, leaf, NODES_MAX),
	INDEX(cluster_node, domain, NODES_MAX),
	END,
};
const struct field topo_fields_switch[] = {
	TEXT(cluster_switch, name),
	INDEX(cluster_switch, parent, NODES_MAX),
	FIGURE(cluster_switch, up),
	END,
};

static json_t *value_of(const struct field *f, const void *from)
{
	const char *at = (const char *)from + f->offset;
	switch (f->type) {
	case FIELD_TEXT:
		return json_string(at);
	case FIELD_COUNT:
	case FIELD_INDEX:
		return json_integer(*(const int *)at);
	case FIELD_FIGURE:
		return *(const double *)at > 0 ? json_real(*(const double *)at) : json_null();
	case FIELD_FLAG:
		return json_boolean(*(const bool *)at);
	case FIELD_LINK:
		return json_string(topo_link_word(*(const enum link_kind *)at));
	}
	return NULL;
}

/* NULL: there is no memory, or a text is not UTF-8. */
static json_t *object_of(const struct field *fields, const void *from)
{
	json_t *o = json_object();
	for (const struct field *f = fields; f->key; f++)
		if (json_object_set_new(o, f->key, value_of(f, from))) {
			json_decref(o);
			return NULL;
		}
	return o;
}

static json_t *array_of(const struct field *fields, const void *rows, size_t n, size_t size)
{
	json_t *a = json_array();
	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(a, object_of(fields, (const char *)rows + i * size))) {
			json_decref(a);
			return NULL;
		}
	return a;
}

static int by_value(const void *a, const void *b)
{
	const struct topo_link *x = *(const struct topo_link *const *)a,
			       *y = *(const struct topo_link *const *)b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? 1 : -1;
	if (x->lanes != y->lanes)
		return x->lanes < y->lanes ? 1 : -1;
	if (x->bandwidth != y->bandwidth)
		return x->bandwidth < y->bandwidth ? 1 : -1;
	return (x->latency > y->latency) - (x->latency < y->latency);
}

/* Writes each different link once, nearest first, and for each pair its index among these. */
static int links_json(const struct node_kind *k, json_t *to)
{
	size_t n = (size_t)k->devices, all = n * n;
	const struct topo_link **sorted = calloc(all, sizeof *sorted);
	int *place = calloc(all, sizeof *place), types = 0;
	json_t *legend = json_array(), *rows = json_array();
	for (size_t i = 0; sorted && i < all; i++)
		sorted[i] = &k->links[i];
	if (sorted)
		qsort(sorted, all, sizeof *sorted, by_value);
	for (size_t i = 0; sorted && place && i < all; i++) {
		if (!i || by_value(&sorted[i - 1], &sorted[i])) {
			json_array_append_new(legend, object_of(topo_fields_link, sorted[i]));
			types++;
		}
		place[sorted[i] - k->links] = types - 1;
	}
	for (size_t i = 0; place && i < n; i++) {
		json_t *row = json_array();
		for (size_t j = 0; j < n; j++)
			json_array_append_new(row, json_integer(place[i * n + j]));
		json_array_append_new(rows, row);
	}
	int bad = !sorted || !place;
	free(sorted);
	free(place);
	bad |= json_object_set_new(to, "link_types", legend);
	return json_object_set_new(to, "links", rows) || bad;
}

static json_t *kind_json(const struct node_kind *k, int nodes)
{
	json_t *o = object_of(topo_fields_kind, k);
	int bad = json_object_set_new(o, "nodes", json_integer(nodes));
	if (k->parts)
		bad |= json_object_set_new(o, "parts",
					   array_of(topo_fields_device, k->parts,
						    (size_t)k->devices, sizeof *k->parts));
	if (k->parts || k->nics)
		bad |= json_object_set_new(o, "nics",
					   array_of(topo_fields_nic, k->nics, (size_t)k->n_nics,
						    sizeof *k->nics));
	if (k->links)
		bad |= links_json(k, o);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* Reads the number at the end of a name. Returns its digits; 0: there is no number that a range can
 * count. */
static int digits_of(const char *name, int *value)
{
	int len = (int)strlen(name), n = 0;
	while (n < len && n < 8 && isdigit((unsigned char)name[len - 1 - n]))
		n++;
	*value = n ? atoi(name + len - n) : 0;
	return n;
}

/* Whether `next` follows `name` in a range that began with `digits` digits. */
static bool follows(const char *name, const char *next, int digits)
{
	int value, len = (int)strlen(name), own = digits_of(name, &value);
	char want[TOPO_NAME + 16];
	snprintf(want, sizeof want, "%.*s%0*d", len - own, name, digits, value + 1);
	return own && !strcmp(want, next);
}

/* Appends names as Slurm writes them: n[0-7,9],login. -1: a name contains ",", "[" or "]". */
static int json_names(const struct cluster_node *nodes, int n, struct buf *out)
{
	for (int i = 0; i < n;) {
		const char *name = nodes[i].name;
		int value, last, digits = digits_of(name, &value), end = i + 1;
		if (!name[0] || strpbrk(name, ",[] \t"))
			return -1;
		while (digits && end < n && follows(nodes[end - 1].name, nodes[end].name, digits))
			end++;
		if (i)
			buf_puts(out, ",");
		if (end - i == 1) {
			buf_puts(out, name);
		} else {
			int wide = digits_of(nodes[end - 1].name, &last);
			buf_printf(out, "%.*s[%s-%s]", (int)strlen(name) - digits, name,
				   name + strlen(name) - digits,
				   nodes[end - 1].name + strlen(nodes[end - 1].name) - wide);
		}
		i = end;
	}
	return 0;
}

static json_t *nodes_json(const struct cluster *c, struct err *e)
{
	json_t *a = json_array();
	for (int i = 0; i < c->n_nodes;) {
		const struct cluster_node *first = &c->nodes[i];
		struct buf names = BUF_INIT;
		int end = i + 1;
		while (end < c->n_nodes && c->nodes[end].kind == first->kind &&
		       c->nodes[end].leaf == first->leaf && c->nodes[end].domain == first->domain)
			end++;
		int bad = json_names(first, end - i, &names);
		json_t *run = object_of(topo_fields_node, first);
		bad |= json_object_set_new(run, "names", json_string(buf_str(&names)));
		bad |= json_array_append_new(a, run);
		buf_fini(&names);
		if (bad) {
			json_decref(a);
			err_set(e, ERR_UNSUPPORTED,
				"cluster %s: the name of a node from \"%.64s\" on is empty or "
				"holds one of \",[] \", which no list of names "
				"can; name nodes otherwise",
				c->name, first->name);
			return NULL;
		}
		i = end;
	}
	return a;
}

json_t *topo_json(const struct cluster *c, struct err *e)
{
	json_t *nodes = nodes_json(c, e), *kinds = json_array();
	int *count = calloc((size_t)c->n_kinds + 1, sizeof *count);
	bool bad = !count;
	if (!nodes) {
		json_decref(kinds);
		free(count);
		return NULL;
	}
	for (int i = 0; count && i < c->n_nodes; i++)
		count[c->nodes[i].kind]++;
	for (int i = 0; count && i < c->n_kinds; i++)
		bad = json_array_append_new(kinds, kind_json(&c->kinds[i], count[i])) || bad;
	free(count);
	json_t *doc = json_pack("{s:s, s:s, s:s, s:b, s:i, s:o, s:o}", "format", JSON_FORMAT,
				"name", c->name, "figures", c->figures, "rails", c->rails,
				"devices", topo_cluster_devices(c), "kinds", kinds, "nodes", nodes);
	if (doc && c->switches)
		bad = json_object_set_new(doc, "switches",
					  array_of(topo_fields_switch, c->switches,
						   (size_t)c->n_switches, sizeof *c->switches)) ||
		      bad;
	if (!doc || bad) {
		json_decref(doc);
		err_set(e, ERR_NOMEM,
			"cluster %s: no memory for its JSON, or a name that is not UTF-8", c->name);
		return NULL;
	}
	return doc;
}

int topo_json_write(const struct cluster *c, struct buf *out, struct err *e)
{
	json_t *doc = topo_json(c, e);
	if (!doc)
		return -1;
	char *text = json_dumps(doc,
				JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
	json_decref(doc);
	if (text) {
		buf_puts(out, text);
		buf_puts(out, "\n");
	}
	free(text);
	return !text || buf_failed(out)
		       ? err_set(e, ERR_NOMEM, "cluster %s: no memory for its JSON", c->name)
		       : 0;
}
