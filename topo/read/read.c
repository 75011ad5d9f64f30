#include "topo/read/read.h"

#include "base/file.h"
#include "topo/internal.h"
#include "topo/read/found.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct topo_format *const formats[] = { &topo_format_hwloc, &topo_format_nccl,
						     &topo_format_json, &topo_format_smi };

enum { FORMATS = sizeof formats / sizeof *formats };

int topo_read_text(const struct topo_text *in, struct cluster *out, struct err *e)
{
	struct topo_text t = *in;
	if (!strncmp(t.text, "\xef\xbb\xbf", 3)) { /* a byte order mark, which some editors write */
		t.text += 3;
		t.len -= 3;
	}
	if (!t.len)
		return err_set(e, ERR_USAGE, "%s: it is empty; give the description of a machine",
			       in->file);
	for (int i = 0; i < FORMATS; i++)
		if (formats[i]->sniff(&t))
			return formats[i]->read(&t, out, e);
	char names[160] = "";
	size_t used = 0;
	for (int i = 0; i < FORMATS; i++)
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
					 i ? i == FORMATS - 1 ? " or " : ", " : "",
					 formats[i]->name);
	return err_set(e, ERR_USAGE, "%s: its format is unknown; give %s", in->file, names);
}

int topo_cluster_of_node(const char *format, const struct topo_text *in, struct node_kind *kind,
			 struct cluster *out, struct err *e)
{
	struct cluster c;
	if (topo_cluster_alloc(kind->name, 1, 1, &c, e)) {
		topo_kind_free(kind);
		return -1;
	}
	c.kinds[0] = *kind;
	snprintf(c.nodes[0].name, sizeof c.nodes[0].name, "node0");
	char file[128];
	topo_found_text(file, sizeof file, in->file);
	snprintf(c.figures, sizeof c.figures,
		 "the %s in %s; the rates of its device model and adapters", format, file);
	*out = c;
	return 0;
}

/* Makes `nodes` copies of the one node that a file describes. */
static int repeat_node(const char *path, int nodes, struct cluster *c, struct err *e)
{
	if (c->n_nodes != 1 || c->n_kinds != 1)
		return err_set(
			e, ERR_USAGE,
			"%s:%d: the file says itself that it is of %d nodes; leave the number away",
			path, nodes, c->n_nodes);
	struct cluster_node one = c->nodes[0],
			    *more = realloc(c->nodes, (size_t)nodes * sizeof *more);
	if (!more)
		return err_set(e, ERR_NOMEM, "%s: no memory for %d nodes", path, nodes);
	c->nodes = more;
	for (int i = 0; i < nodes; i++) {
		more[i] = one;
		snprintf(more[i].name, sizeof more[i].name, "node%d", i);
	}
	c->n_nodes = nodes;
	return 0;
}

int topo_read_file(const char *path, int nodes, int devices, struct cluster *out, struct err *e)
{
	struct buf text = BUF_INIT;
	struct cluster c;
	int result = file_slurp(path, TOPO_FILE_MAX, &text, e);
	if (!result) {
		const struct topo_text in = {
			.file = path, .text = buf_str(&text), .len = text.len, .devices = devices
		};
		result = topo_read_text(&in, &c, e);
	}
	buf_fini(&text);
	if (result)
		return -1;
	if (nodes > 0 && repeat_node(path, nodes, &c, e)) {
		topo_cluster_free(&c);
		return -1;
	}
	*out = c;
	return 0;
}
