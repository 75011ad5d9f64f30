#include "base/buf.h"
#include "base/file.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "topo/cluster.h"
#include "topo/draw/draw.h"
#include "topo/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster topo — show the hardware of the machines\n"
	"\n"
	"SYNOPSIS\n"
	"  muster topo [--cluster SPEC] [--cached] [--json] [--svg FILE]\n"
	"\n"
	"DESCRIPTION\n"
	"  Probes this host, or every node of the allocation that it runs in: GPUs and NVLinks\n"
	"  through the driver; PCIe, NICs, NUMA domains, cores and caches through hwloc; switches\n"
	"  through Slurm. Prints the switches and nodes as a tree. For each kind of node it then\n"
	"  prints its devices, what is attached to which NUMA domain, the nearest NIC of each\n"
	"  device, and how each device reaches each other one, in the terms of nvidia-smi and\n"
	"  with the bandwidth of one direction. Equal nodes are one kind. A node that differs\n"
	"  from most nodes of its kind is listed with the difference. Values that the sources\n"
	"  lack are listed as missing; muster then uses estimates, which are good enough to\n"
	"  compare plans. A file that leaves NVLink to the driver gets that of its GPUs' board,\n"
	"  and the list says so. Of GPUs of several vendors, those of one become devices.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   auto (the default: the allocation if there is one, otherwise this\n"
	"                   host), local, slurm, or a described machine: PRESET:NODES such as\n"
	"                   dgx-h100:128, a sum of such, dgx-a100:4+dgx-h100:8, or a file,\n"
	"                   PATH[:NODES]: hwloc's XML, NCCL's topology XML, the text of\n"
	"                   nvidia-smi topo -m, or the output of --json\n"
	"  --cached         in an allocation, use the nodes' earlier answers if they are less\n"
	"                   than a day old and no node has booted since. A run does this; this\n"
	"                   command otherwise probes the nodes again\n"
	"  --report         print this node's part; the step that probes an allocation uses it\n"
	"  --json           print JSON, which --cluster also reads: bytes, bytes/s and FLOP/s;\n"
	"                   null is unknown\n"
	"  --svg FILE       also write a drawing to FILE, for slides; your umask decides who may\n"
	"                   read it\n"
	"\n"
	"EXAMPLES\n"
	"  muster topo\n"
	"  muster topo --cluster dgx-2\n"
	"  muster topo --cluster gb200-nvl72:36 --svg racks.svg\n"
	"\n"
	"EXIT STATUS\n"
	"  0  printed\n"
	"  1  a file cannot be written\n"
	"  2  usage\n"
	"  3  the machines cannot be probed\n";

static int print_cluster(const struct cluster *c)
{
	struct terminal_options t = { 0 };
	struct buf text = BUF_INIT;
	supervise_terminal_detect(STDOUT_FILENO, &t);
	topo_draw_cluster(c, t.colour, &text);
	int status = buf_failed(&text) ? STATUS_FAILED : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int show_json(const struct cluster *c)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	int status = topo_json_write(c, &text, &e) ? command_fail(&e)
						   : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

static int write_svg(const struct cluster *c, const char *path)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	topo_draw_cluster_svg(c, &text);
	return command_write_drawing(&text, path, &e) ? command_fail(&e) : STATUS_DONE;
}

static int show_report(void)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	int status = topo_cluster_report(&text, &e) ? command_fail(&e)
						    : command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

int cmd_topo(int argc, char **argv)
{
	const char *spec = "auto", *svg = NULL;
	bool json = false, cached = false, report = false;
	const struct command_option options[] = {
		{ "--json", &json, NULL },     { "--cached", &cached, NULL },
		{ "--report", &report, NULL }, { "--cluster", NULL, &spec },
		{ "--svg", NULL, &svg },       { NULL, NULL, NULL },
	};
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_options(argc, argv, options);
	if (status)
		return status;
	struct err e = ERR_INIT;
	struct cluster c;
	if (report)
		return show_report();
	if (svg && file_replace_check(svg, &e))
		return command_fail(&e);
	if (topo_cluster_probe(spec, !cached, &c, &e))
		return command_fail(&e);
	status = svg ? write_svg(&c, svg) : STATUS_DONE;
	if (status == STATUS_DONE)
		status = json ? show_json(&c) : print_cluster(&c);
	topo_cluster_free(&c);
	return status;
}
