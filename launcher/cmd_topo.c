#include "base/human.h"
#include "launcher/command.h"
#include "launcher/supervise/supervise.h"
#include "topo/cluster.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"muster topo — show what the machines are\n"
	"\n"
	"SYNOPSIS\n"
	"  muster topo [--cluster SPEC] [--json]\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   local (this host; the default), slurm (the allocation that this runs in), or PRESET:NODES,\n"
	"                   such as dgx-h100:128\n"
	"  --json           the same for programs: bytes, bytes/s and FLOP/s; null is unknown\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 2 usage; 3 the machines cannot be found out\n";

/* What a node of a kind has: for people and as JSON, where what is unknown is null. */
static const struct figure {
	const char *name, *key, *unit; /* unit NULL: bytes that are held */
	size_t offset;
} figures[] = {
	{ "host memory", "memory", NULL, offsetof(struct node_kind, memory) },
	{ "device memory", "device_memory", NULL, offsetof(struct node_kind, device_memory) },
	{ "device compute", "device_flops", "FLOP/s", offsetof(struct node_kind, device_flops) },
	{ "device bandwidth", "device_bandwidth", "B/s", offsetof(struct node_kind, device_bandwidth) },
	{ "inside a node", "link_bandwidth", "B/s", offsetof(struct node_kind, link_bandwidth) },
	{ "between nodes", "net_bandwidth", "B/s", offsetof(struct node_kind, net_bandwidth) },
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

static void show_figure(const struct figure *f, const struct node_kind *k)
{
	char text[HUMAN];
	double value = value_of(f, k);
	if (!(value > 0))
		strcpy(text, "unknown");
	else if (f->unit)
		human_count(value, f->unit, text);
	else
		human_bytes(value, text);
	printf("    %-18s %s\n", f->name, text);
}

static int show(const struct cluster *c)
{
	int devices = cluster_devices(c);
	printf("%s: %d node%s, %d device%s\n", c->name, c->n_nodes, human_s(c->n_nodes), devices, human_s(devices));
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		printf("  %d × %s: %d × %s, %d core%s, %d NUMA domain%s\n", nodes_of(c, i), k->name, k->devices, k->device, k->cores,
		       human_s(k->cores), k->numa, human_s(k->numa));
		for (int f = 0; f < FIGURES; f++)
			show_figure(&figures[f], k);
	}
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
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

int cmd_topo(int argc, char **argv)
{
	const char *spec = "local";
	bool json = false;
	if (command_wants_help(argc, argv))
		return command_help(help);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json"))
			json = true;
		else if (strcmp(argv[i], "--cluster"))
			return command_misuse("topo", "\"%s\" is no option", argv[i]);
		else if (++i == argc)
			return command_misuse("topo", "--cluster needs a value");
		else
			spec = argv[i];
	}
	struct err e = ERR_INIT;
	struct cluster c;
	if (cluster_open(spec, 0, &c, &e))
		return command_fail(&e);
	int status = json ? show_json(&c) : show(&c);
	cluster_free(&c);
	return status;
}
