#include "launcher/command.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "topo/cluster.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
	"muster topo — show what the machines are\n"
	"\n"
	"SYNOPSIS\n"
	"  muster topo [--cluster SPEC]\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   local (this host; the default), slurm (the allocation that this runs in), or PRESET:NODES,\n"
	"                   such as dgx-h100:128\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 2 usage; 3 the machines cannot be found out\n";

static void show_rate(const char *what, double value, const char *unit)
{
	char text[24];
	printf("    %-18s ", what);
	if (value > 0)
		printf("%s%s\n", terminal_count(value, text, sizeof text), unit);
	else
		printf("unknown\n");
}

static void show(const struct cluster *c)
{
	printf("%s: %d node%s, %d devices\n", c->name, c->n_nodes, c->n_nodes == 1 ? "" : "s", cluster_devices(c));
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		int n = 0;
		for (int j = 0; j < c->n_nodes; j++)
			n += c->nodes[j].kind == i;
		printf("  %d × %s: %d × %s, %d cores, %d NUMA domain%s\n", n, k->name, k->devices, k->device, k->cores, k->numa,
		       k->numa == 1 ? "" : "s");
		show_rate("host memory", k->memory, "B");
		show_rate("device memory", k->device_memory, "B");
		show_rate("device compute", k->device_flops, "FLOP/s");
		show_rate("device bandwidth", k->device_bandwidth, "B/s");
		show_rate("inside a node", k->link_bandwidth, "B/s");
		show_rate("between nodes", k->net_bandwidth, "B/s");
	}
}

int cmd_topo(int argc, char **argv)
{
	const char *spec = "local";
	if (command_wants_help(argc, argv))
		return command_help(help);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--cluster"))
			return command_misuse("topo", "\"%s\" is no option", argv[i]);
		if (++i == argc)
			return command_misuse("topo", "--cluster needs a value");
		spec = argv[i];
	}
	struct err e = ERR_INIT;
	struct cluster c;
	if (cluster_open(spec, 0, &c, &e))
		return command_fail(&e);
	show(&c);
	cluster_free(&c);
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}
