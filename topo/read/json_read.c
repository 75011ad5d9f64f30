#include "topo/gpus.h"
#include "topo/hostlist.h"
#include "topo/internal.h"
#include "topo/read/json.h"
#include "topo/read/found.h"
#include "topo/read/read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 1024, DEVICES_MAX = 1 << 26 };

/* The position of the reader, such as "kinds[2].parts[0]", for errors. */
struct spot {
	const char *file;
	char path[64];
	struct err *e;
};

static int refuse_value(const struct spot *s, const char *key, const char *why)
{
	return err_set(s->e, ERR_USAGE, "%s: %s%s\"%s\": %s", s->file, s->path,
		       s->path[0] ? ": " : "", key, why);
}

static struct spot is_below(const struct spot *s, const char *array, size_t i)
{
	struct spot b = *s;
	snprintf(b.path, sizeof b.path, "%.30s%s%.12s[%zu]", s->path, s->path[0] ? "." : "", array,
		 i);
	return b;
}

/* Whether UTF-8 text contains characters that a terminal or a picture interprets or rejects: ASCII
 * control characters, U+0080 to U+009F, line and direction controls (U+2028 to U+202E, U+2066 to
 * U+2069), and U+FFFE and U+FFFF, which XML does not allow. */
static bool has_controls(const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ' || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0) ||
		    (*c == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae) ||
		    (*c == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9) ||
		    (*c == 0xef && c[1] == 0xbf && c[2] >= 0xbe))
			return true;
	return false;
}

static int take_text(const struct spot *s, const struct field *f, const json_t *v, char *to)
{
	const char *text = json_string_value(v);
	if (!text || json_string_length(v) != strlen(text) || strlen(text) >= f->size)
		return refuse_value(s, f->key, "it must be text, and not longer than names are");
	if (has_controls(text))
		return refuse_value(s, f->key, "it holds control characters");
	if (f->needed && !*text)
		return refuse_value(s, f->key, "it is empty; give a name");
	memcpy(to, text, strlen(text) + 1);
	return 0;
}

static int take_int(const struct spot *s, const struct field *f, const json_t *v, int *to)
{
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) ||
	    n < (f->type == FIELD_INDEX ? -1
		 : f->needed            ? 1
					: 0) ||
	    n > f->most) {
		char why[80];
		snprintf(why, sizeof why, "it must be a whole number from %d to %ld",
			 f->type == FIELD_INDEX ? -1
			 : f->needed            ? 1
						: 0,
			 f->most);
		return refuse_value(s, f->key, why);
	}
	*to = (int)n;
	return 0;
}

static int take_link(const struct spot *s, const struct field *f, const json_t *v,
		     enum link_kind *to)
{
	const char *text = json_string_value(v);
	for (int k = 0; text && k < LINK_KINDS; k++)
		if (!strcmp(text, topo_link_word((enum link_kind)k))) {
			*to = (enum link_kind)k;
			return 0;
		}
	return refuse_value(s, f->key,
			    "it must be one of ?, SYS, NODE, PHB, PXB, PIX, XGMI, NVL, NVS, X");
}

static int take_field(const struct spot *s, const struct field *f, const json_t *v, void *to)
{
	char *at = (char *)to + f->offset;
	switch (f->type) {
	case FIELD_TEXT:
		return take_text(s, f, v, at);
	case FIELD_COUNT:
	case FIELD_INDEX:
		return take_int(s, f, v, (int *)at);
	case FIELD_FIGURE: {
		double d = json_number_value(v);
		if (!json_is_number(v) || !isfinite(d) || d < 0 || d > 1e30)
			return refuse_value(s, f->key,
					    "it must be a number, not negative, or null");
		*(double *)at = d;
		return 0;
	}
	case FIELD_FLAG:
		if (!json_is_boolean(v))
			return refuse_value(s, f->key, "it must be true or false");
		*(bool *)at = json_is_true(v);
		return 0;
	case FIELD_LINK:
		return take_link(s, f, v, (enum link_kind *)at);
	}
	return -1;
}

/* Reads an object. A key that is missing or null leaves the member unchanged; an index becomes
 * -1. */
static int take_object(const struct spot *s, const struct field *fields, const json_t *o, void *to)
{
	if (!json_is_object(o))
		return refuse_value(s, "", "it must be an object");
	for (const struct field *f = fields; f->key; f++) {
		const json_t *v = json_object_get(o, f->key);
		if (f->type == FIELD_INDEX)
			*(int *)((char *)to + f->offset) = -1;
		if (!v || json_is_null(v)) {
			if (f->needed)
				return refuse_value(s, f->key, "it is missing; give it");
		} else if (take_field(s, f, v, to)) {
			return -1;
		}
	}
	return 0;
}

/* Reads an array of objects into an array of structs; NULL if there is none. It must have exactly
 * `exact` elements unless `exact` is -1. */
static int take_array(const struct spot *s, const json_t *o, const char *key,
		      const struct field *fields, size_t size, long exact, long most, void *to,
		      int *n)
{
	const json_t *a = json_object_get(o, key);
	bool may_be_empty = fields == topo_fields_nic; /* no adapters */
	if (!a || json_is_null(a) || (may_be_empty && json_is_array(a) && !json_array_size(a)))
		return 0;
	size_t count = json_array_size(a);
	if (!json_is_array(a) || !count || count > (size_t)most ||
	    (exact >= 0 && count != (size_t)exact))
		return refuse_value(s, key,
				    exact >= 0
					    ? "it must be a list with an entry for each device"
					    : "it must be a list, neither empty nor of more than a "
					      "machine has");
	char *rows = calloc(count, size);
	if (!rows)
		return err_set(s->e, ERR_NOMEM, "%s: no memory for %s", s->file, key);
	for (size_t i = 0; i < count; i++) {
		struct spot at = is_below(s, key, i);
		if (take_object(&at, fields, json_array_get(a, i), rows + i * size)) {
			free(rows);
			return -1;
		}
	}
	*(void **)to = rows;
	*n = (int)count;
	return 0;
}

static int take_matrix(const struct spot *s, const json_t *rows, const struct topo_link *types,
		       int n_types, struct node_kind *k)
{
	size_t n = (size_t)k->devices;
	if (!json_is_array(rows) || json_array_size(rows) != n || n > MACHINE_DEVICES)
		return refuse_value(s, "links",
				    "it must be a list with a row for each device, 1024 at most");
	k->links = calloc(n * n, sizeof *k->links);
	if (!k->links)
		return err_set(s->e, ERR_NOMEM, "%s: no memory for links", s->file);
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, i);
		struct spot at = is_below(s, "links", i);
		if (!json_is_array(row) || json_array_size(row) != n)
			return refuse_value(
				&at, "links",
				"a row must have a place in link_types for each device");
		for (size_t j = 0; j < n; j++) {
			const json_t *v = json_array_get(row, j);
			json_int_t type = json_is_integer(v) ? json_integer_value(v) : -1;
			if (type < 0 || type >= n_types)
				return refuse_value(&at, "links",
						    "an entry is not an index into link_types");
			if ((types[type].kind == LINK_SELF) != (i == j))
				return refuse_value(&at, "links",
						    "the diagonal, and it alone, must be X");
			k->links[i * n + j] = types[type];
		}
	}
	return 0;
}

static int take_links(const struct spot *s, const json_t *o, struct node_kind *k)
{
	const json_t *rows = json_object_get(o, "links");
	struct topo_link *types = NULL, best = { .kind = LINK_UNKNOWN };
	int n = 0;
	if (!rows || json_is_null(rows))
		return 0;
	if (take_array(s, o, "link_types", topo_fields_link, sizeof *types, -1,
		       MACHINE_DEVICES * MACHINE_DEVICES, &types, &n))
		return -1;
	int result = take_matrix(s, rows, types, n, k);
	for (int i = 0; !result && k->link_bandwidth <= 0 && i < n; i++)
		if (types[i].kind != LINK_SELF && types[i].bandwidth > best.bandwidth)
			best = types[i]; /* the total is missing in the document */
	if (best.bandwidth > 0) {
		k->link_bandwidth = best.bandwidth;
		k->link_latency = best.latency;
	}
	free(types);
	return result;
}

static int check_parts(const struct spot *s, const struct node_kind *k)
{
	for (int i = 0; k->parts && i < k->devices; i++) {
		struct spot at = is_below(s, "parts", (size_t)i);
		if (k->parts[i].nic >= k->n_nics)
			return refuse_value(&at, "nic",
					    "it is not an index into nics; give one, or -1");
		if (k->parts[i].numa >= (k->numa > 0 ? k->numa : 1))
			return refuse_value(
				&at, "numa",
				"it is not a NUMA domain of this kind; give one, counted from "
				"0, or -1");
	}
	for (int i = 0; i < k->n_nics; i++) {
		struct spot at = is_below(s, "nics", (size_t)i);
		if (k->nics[i].numa >= (k->numa > 0 ? k->numa : 1))
			return refuse_value(
				&at, "numa",
				"it is not a NUMA domain of this kind; give one, counted from "
				"0, or -1");
	}
	return 0;
}

/* Sets values that the document leaves out, if the device's name is a known model. */
static void know_device(struct node_kind *k)
{
	const struct gpu_model *m = topo_gpu_of_name(k->device);
	if (!m)
		return;
	k->device_flops = k->device_flops > 0 ? k->device_flops : m->flops;
	k->device_memory = k->device_memory > 0 ? k->device_memory : m->memory;
	k->device_bandwidth = k->device_bandwidth > 0 ? k->device_bandwidth : m->bandwidth;
}

static int take_kind(const struct spot *s, const json_t *o, struct node_kind *k)
{
	int n = 0;
	if (take_object(s, topo_fields_kind, o, k))
		return -1;
	if (!k->device[0])
		snprintf(k->device, sizeof k->device, "device");
	know_device(k);
	if (take_array(s, o, "nics", topo_fields_nic, sizeof *k->nics, -1, MACHINE_NICS, &k->nics,
		       &k->n_nics) ||
	    take_array(s, o, "parts", topo_fields_device, sizeof *k->parts, k->devices,
		       MACHINE_CORES, &k->parts, &n) ||
	    take_links(s, o, k))
		return -1;
	return check_parts(s, k);
}

static int take_kinds(const struct spot *s, const json_t *doc, struct cluster *c)
{
	const json_t *a = json_object_get(doc, "kinds");
	size_t n = json_array_size(a);
	if (!n || n > KINDS_MAX)
		return refuse_value(s, "kinds", "it must be a list of 1 to 1024 kinds of nodes");
	c->kinds = calloc(n, sizeof *c->kinds);
	if (!c->kinds)
		return err_set(s->e, ERR_NOMEM, "%s: no memory for its kinds", s->file);
	c->n_kinds = (int)n;
	for (size_t i = 0; i < n; i++) {
		struct spot at = is_below(s, "kinds", i);
		if (take_kind(&at, json_array_get(a, i), &c->kinds[i]))
			return -1;
	}
	return 0;
}

/* The parent of a switch comes before it in the list, so there are no cycles. */
static int take_switches(const struct spot *s, const json_t *doc, struct cluster *c)
{
	if (take_array(s, doc, "switches", topo_fields_switch, sizeof *c->switches, -1,
		       2 * NODES_MAX, &c->switches, &c->n_switches))
		return -1;
	for (int i = 0; i < c->n_switches; i++) {
		struct spot at = is_below(s, "switches", (size_t)i);
		if (c->switches[i].parent >= i)
			return refuse_value(
				&at, "parent",
				"it must be a switch that stands before this one, or -1");
	}
	return 0;
}

static int take_run(const struct spot *s, const json_t *o, struct cluster *c, long *devices)
{
	struct cluster_node node = { .kind = 0 };
	struct hostlist names;
	struct err why = ERR_INIT;
	const char *text = json_string_value(json_object_get(o, "names"));
	if (take_object(s, topo_fields_node, o, &node))
		return -1;
	if (node.kind >= c->n_kinds || node.leaf >= c->n_switches)
		return refuse_value(s, node.kind >= c->n_kinds ? "kind" : "leaf",
				    "there is none of that number");
	if (!text)
		return refuse_value(s, "names",
				    "it must be a list of names, such as \"node[0-31]\"");
	if (has_controls(text) || strchr(text, ' '))
		return refuse_value(s, "names", "it holds control characters or blanks");
	if (topo_hostlist_expand(text, &names, &why))
		return refuse_value(s, "names", why.text);
	struct cluster_node *more = NULL;
	*devices += (long)names.n * c->kinds[node.kind].devices;
	if (c->n_nodes + names.n > NODES_MAX || *devices > DEVICES_MAX)
		refuse_value(s, "names",
			     "more nodes or devices than a cluster may have, 65536 and 67108864");
	else if (!(more = realloc(c->nodes, (size_t)(c->n_nodes + names.n) * sizeof *more)))
		err_set(s->e, ERR_NOMEM, "%s: no memory for its nodes", s->file);
	else
		c->nodes = more;
	for (int i = 0; more && i < names.n; i++) {
		more[c->n_nodes] = node;
		memcpy(more[c->n_nodes++].name, names.names[i], TOPO_NAME);
	}
	topo_hostlist_free(&names);
	return more ? 0 : -1;
}

static int take_nodes(const struct spot *s, const json_t *doc, struct cluster *c)
{
	const json_t *a = json_object_get(doc, "nodes");
	long devices = 0;
	if (!json_array_size(a) || json_array_size(a) > NODES_MAX)
		return refuse_value(s, "nodes", "it must be a list of 1 to 65536 runs of nodes");
	for (size_t i = 0; i < json_array_size(a); i++) {
		struct spot at = is_below(s, "nodes", i);
		if (take_run(&at, json_array_get(a, i), c, &devices))
			return -1;
	}
	return 0;
}

static int take_cluster(const struct spot *s, const json_t *doc, struct cluster *c)
{
	/* clang-format off */
	static const struct field fields[] = {
		{ "name", FIELD_TEXT, offsetof(struct cluster, name), sizeof c->name, 0, false },
		{ "figures", FIELD_TEXT, offsetof(struct cluster, figures), sizeof c->figures, 0, false },
		{ "rails", FIELD_FLAG, offsetof(struct cluster, rails), 0, 0, false },
		{ NULL, FIELD_TEXT, 0, 0, 0, false },
	};
	/* clang-format on */
	const char *format = json_string_value(json_object_get(doc, "format"));
	if (!format || strcmp(format, JSON_FORMAT))
		return refuse_value(s, "format",
				    "it must be \"" JSON_FORMAT
				    "\": what muster topo --json writes");
	if (take_object(s, fields, doc, c))
		return -1;
	if (!c->name[0])
		topo_found_file_name(c->name, s->file);
	return take_kinds(s, doc, c) || take_switches(s, doc, c) || take_nodes(s, doc, c) ? -1 : 0;
}

int topo_json_read(const char *file, const char *text, size_t len, struct cluster *out,
		   struct err *e)
{
	json_error_t error;
	struct cluster c = { .n_kinds = 0 };
	struct spot s = { .file = file, .e = e };
	json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!doc)
		return err_set(e, ERR_USAGE,
			       "%s:%d: %.100s: the JSON is broken or cut short; write it again",
			       file, error.line, error.text);
	int result = json_is_object(doc) ? take_cluster(&s, doc, &c)
					 : refuse_value(&s, "", "it must be an object");
	json_decref(doc);
	if (result)
		topo_cluster_free(&c);
	else
		*out = c;
	return result;
}

static bool sniff_json(const struct topo_text *in)
{
	return in->text[strspn(in->text, " \t\r\n")] == '{';
}

static int read_json(const struct topo_text *in, struct cluster *out, struct err *e)
{
	return topo_json_read(in->file, in->text, in->len, out, e);
}

const struct topo_format topo_format_json = { .name = "the JSON of muster topo --json",
					      .sniff = sniff_json,
					      .read = read_json };
