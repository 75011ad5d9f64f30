/*
 * nccl_hosts: the format of NCCL's files, split by host. If one dump has GPUs of several hosts (a
 * multi-node NVLink fabric), the hosts are nodes of one domain.
 */
#include "topo/internal.h"
#include "topo/read/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS_MAX = 1024 };

static bool sniff_nccl(const struct topo_text *in)
{
	return topo_xml_begins_with(in->text, "system") || topo_xml_begins_with(in->text, "graphs");
}

/* The different host_hash values, in the order of the file. */
struct hosts {
	const char *names[HOSTS_MAX];
	int n;
};

static int find_hosts(const struct topo_text *in, const struct xml *system, struct hosts *h,
		      struct err *e)
{
	int cpus = 0;
	for (const struct xml *c = topo_xml_child(system->first, "cpu"); c;
	     c = topo_xml_child(c->next, "cpu")) {
		int i = 0;
		while (i < h->n && !topo_nccl_of_host(c, h->names[i]))
			i++;
		if (i == HOSTS_MAX || ++cpus > 16 * HOSTS_MAX)
			return err_set(e, ERR_USAGE, "%s:%d: more than %d hosts; describe fewer",
				       in->file, c->line, HOSTS_MAX);
		if (i == h->n)
			h->names[h->n++] = topo_xml_get(c, "host_hash")
						   ? topo_xml_get(c, "host_hash")
						   : "";
	}
	if (!h->n)
		return err_set(e, ERR_USAGE,
			       "%s:%d: <%.20s> contains no <cpu>; the file is not an NCCL "
			       "topology, or it is truncated",
			       in->file, system->line, system->name);
	return 0;
}

/* Whether two hosts are equal except for their addresses. */
static bool alike(const struct node_kind *a, const struct node_kind *b)
{
	size_t n = (size_t)a->devices;
	if (a->devices != b->devices || a->n_nics != b->n_nics || strcmp(a->device, b->device) ||
	    memcmp(a->links, b->links, n * n * sizeof *a->links))
		return false;
	for (size_t i = 0; i < n; i++)
		if (a->parts[i].nic != b->parts[i].nic ||
		    a->parts[i].nic_link != b->parts[i].nic_link ||
		    a->parts[i].numa != b->parts[i].numa)
			return false;
	return true;
}

/* Reads all hosts. The fabric that their GPUs have ports to joins the hosts of one dump. */
static int read_hosts(const struct topo_text *in, const struct xml *system, const struct hosts *h,
		      struct cluster *out, struct err *e)
{
	struct node_kind first;
	struct cluster c;
	if (topo_nccl_host(in, system, h->names[0], &first, e) ||
	    topo_cluster_of_node("NCCL topology XML", in, &first, &c, e))
		return -1;
	struct cluster_node *nodes = realloc(c.nodes, (size_t)h->n * sizeof *nodes);
	struct node_kind *kinds = realloc(c.kinds, (size_t)h->n * sizeof *kinds);
	c.nodes = nodes ? nodes : c.nodes;
	c.kinds = kinds ? kinds : c.kinds;
	if (!nodes || !kinds) {
		topo_cluster_free(&c);
		return err_set(e, ERR_NOMEM, "%s: no memory for its hosts", in->file);
	}
	for (int i = 1; i < h->n; i++) {
		int k = 0;
		if (topo_nccl_host(in, system, h->names[i], &c.kinds[c.n_kinds], e)) {
			topo_cluster_free(&c);
			return -1;
		}
		size_t len = strlen(c.kinds[0].name);
		char *name = c.kinds[c.n_kinds++].name;
		snprintf(name + (len < 50 ? len : 50), TOPO_NAME - 50, "-%d", i);
		while (!alike(&c.kinds[k], &c.kinds[c.n_kinds - 1]))
			k++;
		if (k < c.n_kinds - 1)
			topo_kind_free(&c.kinds[--c.n_kinds]);
		c.nodes[c.n_nodes] = (struct cluster_node){ .kind = k, .leaf = -1, .domain = -1 };
		snprintf(c.nodes[c.n_nodes].name, TOPO_NAME, "node%d", c.n_nodes);
		c.n_nodes++;
	}
	for (int i = 0; i < c.n_nodes && c.n_nodes > 1; i++)
		c.nodes[i].domain = c.kinds[c.nodes[i].kind].switched ? 0 : -1;
	*out = c;
	return 0;
}

static int read_nccl(const struct topo_text *in, struct cluster *out, struct err *e)
{
	struct xml_doc *doc;
	if (topo_xml_parse(in->file, in->text, in->len, &doc, e))
		return -1;
	const struct xml *root = topo_xml_root(doc);
	struct hosts *h = calloc(1, sizeof *h);
	int result = -1;
	if (!h)
		err_set(e, ERR_NOMEM, "%s: no memory to read it", in->file);
	else if (strcmp(root->name, "system"))
		err_set(e, ERR_USAGE,
			"%s:%d: this is NCCL's graph file (NCCL_GRAPH_DUMP_FILE), which says "
			"nothing of the machine; give what "
			"NCCL_TOPO_DUMP_FILE writes",
			in->file, root->line);
	else if (!find_hosts(in, root, h, e))
		result = read_hosts(in, root, h, out, e);
	free(h);
	topo_xml_free(doc);
	return result;
}

const struct topo_format topo_format_nccl = { .name = "NCCL topology XML",
					      .sniff = sniff_nccl,
					      .read = read_nccl };
