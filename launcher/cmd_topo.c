#include "base/buf.h"
#include "base/file.h"
#include "launcher/command.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "topo/cluster.h"
#include "topo/draw/draw.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster topo — show what the machines are\n"
	"\n"
	"SYNOPSIS\n"
	"  muster topo [--cluster SPEC] [--json] [--svg FILE]\n"
	"\n"
	"DESCRIPTION\n"
	"  Looks at this host, or at every node of the allocation that this runs in: GPUs and NVLinks as the driver tells them,\n"
	"  PCIe, adapters, NUMA domains, cores and caches as hwloc does, switches as Slurm does. Prints the switches and nodes\n"
	"  as a tree; then of each kind of node what its devices have, what hangs on which NUMA domain, which adapter is nearest\n"
	"  to which device, and how each device reaches each other one, in nvidia-smi's words and with bandwidths for one\n"
	"  direction. Equal nodes are one kind; nodes that differ from most of their like are named with what differs. What the\n"
	"  source does not tell is said to be missing. Figures that nobody tells are estimates that order plans.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   auto (the default: the allocation if there is one, else this host), local, slurm, or a machine on\n"
	"                   paper: PRESET:NODES such as dgx-h100:128, or a sum of such, dgx-a100:4+dgx-h100:8\n"
	"  --json           the same for programs: bytes, bytes/s and FLOP/s; null is unknown\n"
	"  --svg FILE       draw it into FILE as well, for slides\n"
	"\n"
	"EXAMPLES\n"
	"  muster topo\n"
	"  muster topo --cluster dgx-2\n"
	"  muster topo --cluster gb200-nvl72:36 --svg racks.svg\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 1 a file cannot be written; 2 usage; 3 the machines cannot be found out\n";

/* What a node of a kind has; what is unknown is null. */
static const struct figure {
	const char *key;
	size_t offset;
} figures[] = {
	{ "memory", offsetof(struct node_kind, memory) },
	{ "device_memory", offsetof(struct node_kind, device_memory) },
	{ "device_flops", offsetof(struct node_kind, device_flops) },
	{ "device_bandwidth", offsetof(struct node_kind, device_bandwidth) },
	{ "link_bandwidth", offsetof(struct node_kind, link_bandwidth) },
	{ "net_bandwidth", offsetof(struct node_kind, net_bandwidth) },
};
enum { FIGURES = sizeof figures / sizeof *figures };

static double value_of(const struct figure *f, const struct node_kind *k)
{
	return *(const double *)((const char *)k + f->offset);
}

static int nodes_of(const struct cluster *c, int kind)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += c->nodes[i].kind == kind;
	return n;
}

static int show(const struct cluster *c)
{
	struct terminal_options t = { 0 };
	struct buf text = BUF_INIT;
	terminal_detect(STDOUT_FILENO, &t);
	draw_cluster(c, t.colour, &text);
	int status = buf_failed(&text) ? STATUS_FAILED : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static json_t *kind_json(const struct cluster *c, int i)
{
	const struct node_kind *k = &c->kinds[i];
	json_t *doc = json_pack("{s:s, s:i, s:s, s:i, s:i, s:i}", "name", k->name, "nodes", nodes_of(c, i), "device", k->device,
				"devices", k->devices, "cores", k->cores, "numa", k->numa);
	for (int f = 0; f < FIGURES; f++) {
		double value = value_of(&figures[f], k);
		json_object_set_new(doc, figures[f].key, value > 0 ? json_real(value) : json_null());
	}
	return doc;
}

static int show_json(const struct cluster *c)
{
	json_t *kinds = json_array(), *nodes = json_array();
	for (int i = 0; i < c->n_kinds; i++)
		json_array_append_new(kinds, kind_json(c, i));
	for (int i = 0; i < c->n_nodes; i++)
		json_array_append_new(nodes, json_pack("{s:s, s:s}", "name", c->nodes[i].name, "kind", c->kinds[c->nodes[i].kind].name));
	json_t *doc = json_pack("{s:s, s:i, s:o, s:o}", "name", c->name, "devices", cluster_devices(c), "kinds", kinds, "nodes", nodes);
	int bad = !doc || json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(doc);
	putchar('\n');
	return bad || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int write_svg(const struct cluster *c, const char *path)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	draw_cluster_svg(c, &text);
	int rc = buf_failed(&text) ? err_set(&e, ERR_NOMEM, "%s: no memory for the drawing; close other programs", path)
				   : file_replace(path, text.data, text.len, &e);
	buf_fini(&text);
	return rc ? command_fail(&e) : STATUS_DONE;
}

int cmd_topo(int argc, char **argv)
{
	const char *spec = "auto", *svg = NULL;
	bool json = false;
	if (command_wants_help(argc, argv))
		return command_help(help);
	for (int i = 1; i < argc; i++) {
		const char **value = !strcmp(argv[i], "--cluster") ? &spec : !strcmp(argv[i], "--svg") ? &svg : NULL;
		if (!strcmp(argv[i], "--json"))
			json = true;
		else if (!value)
			return command_misuse("topo", "\"%s\" is no option", argv[i]);
		else if (++i == argc)
			return command_misuse("topo", "%s needs a value", argv[i - 1]);
		else
			*value = argv[i];
	}
	struct err e = ERR_INIT;
	struct cluster c;
	if (cluster_probe(spec, &c, &e))
		return command_fail(&e);
	int status = svg ? write_svg(&c, svg) : STATUS_DONE;
	if (status == STATUS_DONE)
		status = json ? show_json(&c) : show(&c);
	cluster_free(&c);
	return status;
}
