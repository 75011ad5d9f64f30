#include "agent/tools/bench_node.h"

#include "agent/boot.h"
#include "agent/tools/tools.h"
#include "base/agent_env.h"
#include "plan/cost/calibration.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster bench node — measure this node as a burn-in does\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench node [--backend NAME] [--dir DIR] [--seconds S] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Measures matrix products and memory of each device, and the write rate, read rate and\n"
	"  fsync of a folder. It prints each figure and, if this machine was calibrated (muster\n"
	"  bench calibrate), what the calibration says. A run with launch.preflight = full\n"
	"  starts this command on all its nodes at the same time, also measures the links between\n"
	"  them, and compares the nodes.\n"
	"\n"
	"OPTIONS\n"
	"  --backend NAME      cpu or cuda, or with :bf16 or :fp16 after it (default cpu)\n"
	"  --devices N         cuda: the devices to measure (default 0: all that can be opened)\n"
	"  --dir DIR           folder of the checkpoints (default: no folder is measured)\n"
	"  --seconds S         time for products and memory together (default 1.5)\n"
	"  --calibration FILE  the calibration, as in [launch] calibration (default auto)\n"
	"  --json              print as JSON\n"
	"  --interface NAME, --transport NAME, --sockets N, --integrity MODE\n"
	"                      as in [network], for links; muster run uses them\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench node --dir runs\n"
	"  srun --ntasks-per-node=1 muster bench node --backend cuda:bf16 --json\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  something could not be measured, or is wrong\n"
	"  2  usage\n";

struct settings {
	struct bench_node node;
	double seconds;
	bool json;
};

/* clang-format off */
static const struct {
	const char *word, *name, *unit;
	double scale;
} whats[] = {
#define ROW(id, word, name, unit, scale, less, exponent, harmless) [id] = { word, name, unit, scale },
	BURN_IN_FIGURES(ROW)
#undef ROW
};
/* clang-format on */

const char *bench_node_word(enum burn_in_what what)
{
	return whats[what].word;
}

void bench_node_add(struct node_figures *f, enum burn_in_what what, int device, double value)
{
	if (f->n < NODE_FIGURES)
		f->of[f->n++] = (struct node_figure){ what, device, value, 0 };
}

/* What the calibration says about products on all cores. */
static double calibrated_flops(const char *word)
{
	struct calibration *c = calloc(1, sizeof *c); /* large */
	double flops = c && !calibration_find(word, c, NULL) ? c->flops : 0;
	free(c);
	return flops;
}

void bench_node_all(const struct bench_node *b, double seconds, struct node_figures *out)
{
	bench_node_devices(b, seconds, out);
	double flops = strncmp(b->backend, "cuda", 4) ? calibrated_flops(b->calibration) : 0;
	for (int i = 0; i < out->n; i++)
		if (out->of[i].what == BURN_IN_PRODUCT)
			out->of[i].own = flops;
	if (b->dir)
		bench_node_disk(b->dir, fmax(seconds / 5, 0.1), out);
}

static int print_json(const struct node_figures *f, const char *host)
{
	json_t *list = json_array();
	for (int i = 0; i < f->n; i++) {
		const struct node_figure *g = &f->of[i];
		json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f}", "what",
						      whats[g->what].word, "device", g->device,
						      "value", g->value, "own", g->own));
	}
	return tool_print_json(&tool_bench_node,
			       json_pack("{s:s, s:o, s:s}", "node", host, "figures", list, "error",
					 f->trouble.text));
}

static void print_figures(const struct node_figures *f, const char *host)
{
	for (int i = 0; i < f->n; i++) {
		const struct node_figure *g = &f->of[i];
		printf("%s device %d: %s %.3g %s", host, g->device, whats[g->what].name,
		       g->value / whats[g->what].scale, whats[g->what].unit);
		if (g->own > 0)
			printf(", by its calibration %.3g", g->own / whats[g->what].scale);
		putchar('\n');
	}
}

static int measure_and_print(const struct settings *s, const char *host)
{
	static struct node_figures f; /* large */
	bench_node_all(&s->node, s->seconds, &f);
	int status = TOOL_OK;
	if (s->json)
		status = print_json(&f, host);
	else
		print_figures(&f, host);
	return f.trouble.code ? tool_fail(&tool_bench_node, &f.trouble) : status;
}

static int serve(const struct settings *s, const char *host)
{
	struct err e = ERR_INIT;
	return bench_node_serve(&s->node, host, &e) ? tool_fail(&tool_bench_node, &e) : TOOL_OK;
}

/* -1: the word is no whole number from 0 on. */
static int read_int(const char *word)
{
	char *end;
	long n = strtol(word, &end, 10);
	return end == word || *end || n < 0 || n > INT_MAX ? -1 : (int)n;
}

/* NaN: the word is no number. */
static double read_real(const char *word)
{
	char *end;
	double x = strtod(word, &end);
	return end == word || *end ? NAN : x;
}

static bool take_option(int c, struct settings *s)
{
	struct bench_node *b = &s->node;
	switch (c) {
	case 'b':
		b->backend = optarg;
		break;
	case 'g':
		b->devices = read_int(optarg);
		break;
	case 'd':
		b->dir = *optarg ? optarg : NULL;
		break;
	case 'c':
		b->calibration = optarg;
		break;
	case 's':
		s->seconds = read_real(optarg);
		break;
	case 'j':
		s->json = true;
		break;
	case 'i':
		b->comm.interface = optarg;
		break;
	case 't':
		b->comm.backend = optarg;
		break;
	case 'n':
		b->comm.sockets = read_int(optarg);
		break;
	case 'm':
		b->comm.integrity = (enum comm_integrity)comm_integrity_parse(optarg);
		break;
	default:
		return false;
	}
	return true;
}

static int check_settings(const struct settings *s)
{
	if (!(s->seconds >= 0.01 && s->seconds <= 600))
		return tool_usage(&tool_bench_node, "--seconds is 0.01 to 600");
	if (s->node.devices < 0 || s->node.devices > NODE_DEVICES)
		return tool_usage(&tool_bench_node, "--devices is 0 to %d", NODE_DEVICES);
	if (s->node.comm.sockets < 0 || s->node.comm.sockets > COMM_SOCKETS_MAX)
		return tool_usage(&tool_bench_node, "--sockets is 0 to %d", COMM_SOCKETS_MAX);
	if ((int)s->node.comm.integrity < 0)
		return tool_usage(&tool_bench_node, "--integrity is none, checksum or seal");
	return TOOL_OK;
}

static int run_bench_node(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "backend", required_argument, NULL, 'b' }, { "devices", required_argument, NULL, 'g' }, { "dir", required_argument, NULL, 'd' },
		{ "calibration", required_argument, NULL, 'c' }, { "seconds", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' }, { "interface", required_argument, NULL, 'i' },
		{ "transport", required_argument, NULL, 't' }, { "sockets", required_argument, NULL, 'n' },
		{ "integrity", required_argument, NULL, 'm' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct settings s = { .node = { .backend = "cpu", .comm = { .timeout_s = 3 } },
			      .seconds = 1.5 };
	char host[BOOT_HOST];
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;)
		if (!take_option(c, &s))
			return tool_option(&tool_bench_node, c, argv);
	if (optind != argc)
		return tool_usage(&tool_bench_node, "%s is not an option", argv[optind]);
	int status = check_settings(&s);
	if (status)
		return status;
	agent_boot_host(host);
	return getenv(AGENT_ENV_ADDRESS) ? serve(&s, host) : measure_and_print(&s, host);
}

const struct tool tool_bench_node = { "bench", "node", run_bench_node,
				      "measure this node as a burn-in does", page };
