#include "base/buf.h"
#include "base/file.h"
#include "launcher/cli/command.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "topo/cluster.h"
#include "topo/draw/draw.h"
#include "topo/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster topo — show what the machines are\n"
	"\n"
	"SYNOPSIS\n"
	"  muster topo [--cluster SPEC] [--cached] [--json] [--svg FILE]\n"
	"\n"
	"DESCRIPTION\n"
	"  Looks at this host, or at every node of the allocation that this runs in: GPUs and "
	"NVLinks as the driver tells them,\n"
	"  PCIe, adapters, NUMA domains, cores and caches as hwloc does, switches as Slurm does. "
	"Prints the switches and nodes\n"
	"  as a tree; then of each kind of node what its devices have, what hangs on which NUMA "
	"domain, which adapter is nearest\n"
	"  to which device, and how each device reaches each other one, in nvidia-smi's words and "
	"with bandwidths for one\n"
	"  direction. Equal nodes are one kind; nodes that differ from most of their like are "
	"named with what differs. What the\n"
	"  source does not tell is said to be missing. Figures that nobody tells are estimates "
	"that order plans.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster SPEC   auto (the default: the allocation if there is one, else this host), "
	"local, slurm, or a machine on\n"
	"                   paper: PRESET:NODES such as dgx-h100:128, a sum of such, "
	"dgx-a100:4+dgx-h100:8, or a file,\n"
	"                   PATH[:NODES]: hwloc's XML, NCCL's topology XML, the text of nvidia-smi "
	"topo -m, or what --json prints\n"
	"  --cached         of an allocation, what its nodes told before, if none has booted since "
	"and it is no day old; a run\n"
	"                   looks so, and this command asks anew\n"
	"  --report         this node's lines in the step that asks an allocation\n"
	"  --json           the same for programs, and for --cluster: bytes, bytes/s and FLOP/s; "
	"null is unknown\n"
	"  --svg FILE       draw it into FILE as well, for slides\n"
	"\n"
	"EXAMPLES\n"
	"  muster topo\n"
	"  muster topo --cluster dgx-2\n"
	"  muster topo --cluster gb200-nvl72:36 --svg racks.svg\n"
	"\n"
	"EXIT STATUS\n"
	"  0; 1 a file cannot be written; 2 usage; 3 the machines cannot be found out\n";

static int show(const struct cluster *c)
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
	int rc = buf_failed(&text)
			 ? err_set(&e, ERR_NOMEM,
				   "%s: no memory for the drawing; close other programs", path)
			 : file_replace(path, text.data, text.len, &e);
	buf_fini(&text);
	return rc ? command_fail(&e) : STATUS_DONE;
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
	if (command_wants_help(argc, argv))
		return command_help(help);
	for (int i = 1; i < argc; i++) {
		const char **value = !strcmp(argv[i], "--cluster") ? &spec
				     : !strcmp(argv[i], "--svg")   ? &svg
								   : NULL;
		bool *flag = !strcmp(argv[i], "--json")     ? &json
			     : !strcmp(argv[i], "--cached") ? &cached
			     : !strcmp(argv[i], "--report") ? &report
							    : NULL;
		if (flag)
			*flag = true;
		else if (!value)
			return command_misuse("topo", "\"%s\" is no option", argv[i]);
		else if (++i == argc)
			return command_misuse("topo", "%s needs a value", argv[i - 1]);
		else
			*value = argv[i];
	}
	struct err e = ERR_INIT;
	struct cluster c;
	if (report)
		return show_report();
	if (topo_cluster_probe(spec, !cached, &c, &e))
		return command_fail(&e);
	int status = svg ? write_svg(&c, svg) : STATUS_DONE;
	if (status == STATUS_DONE)
		status = json ? show_json(&c) : show(&c);
	topo_cluster_free(&c);
	return status;
}
