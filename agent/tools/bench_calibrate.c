#include "agent/tools/bench_chip.h"
#include "agent/tools/bench_exchange.h"
#include "agent/tools/bench_ops.h"
#include "agent/tools/rank_job.h"
#include "agent/tools/tools.h"
#include "base/clock.h"
#include "plan/cost/calibration.h"
#include "plan/place/exchange.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char page[] =
	"muster bench calibrate — measure this machine for the planner\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench calibrate [--device cpu|cuda] [--ranks N] [--seconds S] [--quick]\n"
	"                         [--up-to N] [FILE]\n"
	"\n"
	"DESCRIPTION\n"
	"  Measures the parts of a training step on this machine and stores the results. muster\n"
	"  plan and muster run then predict the time of a step from them:\n"
	"\n"
	"    operations  matrix products in their forward and backward forms, attention, norms,\n"
	"                activation functions, cross-entropy and the optimizer, in fp32 and bf16,\n"
	"                each over its sizes; by one agent alone, and by as many agents at once\n"
	"                as fill the cores with 1, 2, 4, … threads each, because these agents\n"
	"                share caches and memory\n"
	"    exchanges   all-reduces, all-gathers, reduce-scatters, all-to-alls and messages of\n"
	"                groups of 2, 4, … of 2, 4, … N ranks, with all groups at once, over\n"
	"                shared memory and over TCP, also with more ranks than cores; and the\n"
	"                time that ranks lose when they wait for one another after equal work\n"
	"\n"
	"  This takes about a minute on two cores. If the host has GPUs, they are measured too:\n"
	"\n"
	"    operations  the same ones on the first device of each model, in fp32, bf16 and\n"
	"                fp16, and products of 8-bit numbers where these are faster; recorded\n"
	"                calls are replayed over more memory than the caches hold, with random\n"
	"                numbers\n"
	"    copies      between the device's memory and the host's\n"
	"    exchanges   of groups of 2, 4, … of the host's devices, all groups at once\n"
	"\n"
	"  A GPU's figures count on every node with that model, and a plan names those that\n"
	"  were measured. A file holds one host and up to 8 models of GPUs; measuring the one\n"
	"  keeps the others. Nothing else should run meanwhile.\n"
	"\n"
	"OPTIONS\n"
	"  FILE         where to write (default: [launch] calibration's file, which is\n"
	"               $XDG_CONFIG_HOME/muster/calibration.json or the same path in ~/.config)\n"
	"  --device D   cpu: only the processors; cuda: only the GPUs, which must be there\n"
	"               (default: the processors, and the GPUs if there are any)\n"
	"  --ranks N    the largest number of agents that will run here at once, 2 to 256\n"
	"               (default one per core, at least 8)\n"
	"  --seconds S  time for each operation and size (default 0.03)\n"
	"  --quick      measure small sizes only, and once; this takes some seconds and is enough\n"
	"               for a first try, but predictions for larger models are then bad\n"
	"  --up-to N    GPUs: measure only sizes whose largest array has at most N elements\n"
	"               (default 67108864, with --quick 4194304); it takes about 85 bytes of the\n"
	"               device's memory for each\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench calibrate\n"
	"  muster bench calibrate --ranks 16 here.json\n"
	"  muster bench calibrate --device cuda here.json\n"
	"  muster plan job.ini launch.calibration=here.json\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured and written\n"
	"  1  a measurement failed, or the file cannot be written\n"
	"  2  usage\n";

/* The minimum of the turns counts, because a disturbance rarely affects all of them. */
enum { TURNS = 2 };

struct settings {
	int ranks;
	double seconds;
	bool quick, processors;
	bool gpus, all;   /* all: GPUs are measured if there are any */
	int64_t elements; /* 0: the default */
	const char *file; /* NULL: the default file */
};

/* --- Operations --- */

static int measure_ops(struct bench_ops *b, struct measured_point *least, struct err *e)
{
	for (int turn = 0; turn < (b->quick ? 1 : TURNS); turn++) {
		if (bench_ops_run(b, e))
			return -1;
		for (int i = 0; i < b->n; i++)
			if (!turn || b->points[i].seconds < least[i].seconds)
				least[i] = b->points[i];
	}
	return 0;
}

static void print_machine(const struct measured_machine *m)
{
	const struct rate_curve *fwd = &m->machine.rates[RATE_PRODUCT_FWD],
				*attention = &m->machine.rates[RATE_ATTENTION_FWD];
	const struct rate_curve *move = &m->machine.rates[RATE_MOVED];
	printf("%6d %7d %7s %16.1f %16.1f %12.1f\n", m->agents, m->threads,
	       m->low_precision ? "bf16" : "fp32", fwd->rate[fwd->n - 1] / 1e9,
	       attention->rate[attention->n - 1] / 1e9, move->rate[move->n - 1] / 1e9);
	fflush(stdout);
}

static int one_machine(struct bench_ops *b, int agents, int threads, struct calibration *c,
		       struct err *e)
{
	static struct measured_point least[BENCH_OPS_MAX];
	b->agents = agents;
	b->threads = threads;
	for (int low_precision = 0; low_precision < 2; low_precision++) {
		struct measured_machine m = { .agents = agents,
					      .threads = threads,
					      .low_precision = low_precision };
		b->low_precision = low_precision;
		if (measure_ops(b, least, e))
			return -1;
		if (!cost_measured_fit(least, b->n, &m.machine))
			return err_set(
				e, ERR_NUMERIC,
				"no curve fits the times of the operations; run it again on a "
				"quiet machine");
		const struct rate_curve *fwd = &m.machine.rates[RATE_PRODUCT_FWD];
		if (!low_precision)
			c->flops = fmax(c->flops, agents * fwd->rate[fwd->n - 1]);
		topo_measured_add_machine(&c->measured, &m);
		print_machine(&m);
	}
	return 0;
}

static int all_machines(const struct settings *s, struct calibration *c, struct err *e)
{
	struct bench_ops *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory to measure operations");
	b->seconds = s->seconds / TURNS;
	b->quick = s->quick;
	c->flops = 0;
	c->measured.n_machines = 0;
	printf("agents threads storage  products GF/s  attention GF/s  memory GB/s    of one "
	       "agent\n");
	int rc = c->cores > 1 ? one_machine(b, 1, 1, c, e) : 0;
	for (int threads = 1; threads <= c->cores && !rc; threads *= 2)
		rc = one_machine(
			b, c->cores / threads > RANK_JOB_MAX ? RANK_JOB_MAX : c->cores / threads,
			threads, c, e);
	munmap(b, sizeof *b);
	return rc;
}

/* --- Exchanges --- */

/* Seconds that a meeting takes after each rank has worked for a millisecond. */
static double meeting_of(const struct measured *m, const struct measured_exchange *x)
{
	static struct measured over; /* too large for the stack */
	over = *m;
	over.transport = x->transport;
	return place_exchange_meeting(&over, x->group, x->crowd, 1e-3) *
	       place_exchange_share(m, x->crowd);
}

static void print_exchanges(const struct measured *m, enum measured_transport transport, int crowd)
{
	for (int i = 0; i < m->n_exchanges; i++) {
		const struct measured_exchange *x = &m->exchanges[i];
		if (x->transport != transport || x->crowd != crowd || x->op != MEASURED_ALL_REDUCE)
			continue;
		printf("%9s %5d %5d %12.1f %12.1f %20.1f\n",
		       topo_measured_transport_word(transport), x->crowd, x->group,
		       x->seconds[0] * 1e6, x->seconds[x->n - 1] * 1e6, meeting_of(m, x) * 1e6);
	}
	fflush(stdout);
}

/* Fits the model that predicts any number of ranks and bytes. The samples are those of the largest
 * crowd, as in `muster bench comm --calibrate`. */
static int fit_link(struct calibration *c, enum measured_transport transport, int crowd,
		    struct err *e)
{
	static struct calibration_sample samples[MEASURED_EXCHANGES * RATE_POINTS];
	int n = 0;
	for (int i = 0; i < c->measured.n_exchanges; i++) {
		const struct measured_exchange *x = &c->measured.exchanges[i];
		for (int p = 0; p < x->n; p++)
			if (x->transport == transport && x->crowd == crowd &&
			    x->op == MEASURED_ALL_REDUCE)
				samples[n++] = (struct calibration_sample){ x->group, x->bytes[p],
									    x->seconds[p] };
	}
	if (!calibration_fit(samples, n, &c->links[transport]))
		return err_set(e, ERR_NUMERIC,
			       "no latency and bandwidth fit the times over %s; run it again on a "
			       "quiet machine",
			       topo_measured_transport_word(transport));
	return 0;
}

static int all_exchanges(const struct settings *s, struct calibration *c, struct err *e)
{
	int most = 2;
	c->measured.n_exchanges = 0;
	printf("\ntransport ranks group       64 B us      2 MiB us    waits after 1 ms    of an "
	       "all-reduce, all groups at once\n");
	for (int t = 0; t < MEASURED_TRANSPORTS; t++) {
		for (int crowd = 2; crowd <= s->ranks; crowd *= 2) {
			if (bench_exchange((enum measured_transport)t, crowd, s->seconds,
					   &c->measured, e))
				return -1;
			print_exchanges(&c->measured, (enum measured_transport)t, crowd);
			most = crowd;
		}
		if (fit_link(c, (enum measured_transport)t, most, e))
			return -1;
	}
	c->ranks = most;
	return 0;
}

/* --- GPUs --- */

enum { ELEMENTS = 64 << 20, QUICK_ELEMENTS = 4 << 20, ELEMENTS_LEAST = 8192 };

static int measure_gpus(const struct settings *s, struct calibration *c, struct err *e)
{
	struct bench_chip *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory to measure GPUs");
	b->seconds = s->seconds;
	b->elements = s->elements ? s->elements : s->quick ? QUICK_ELEMENTS : ELEMENTS;
	int rc = bench_chip_run(b, e);
	for (int i = 0; i < b->n && !rc; i++)
		rc = calibration_add_chip(c, &b->chips[i], e);
	munmap(b, sizeof *b);
	return rc;
}

/* A host without GPUs has nothing to measure, unless they were asked for. */
static int all_gpus(const struct settings *s, struct calibration *c, struct err *e)
{
	struct err why = ERR_INIT;
	if (!s->gpus)
		return 0;
	if (s->all && bench_chip_look(&why)) {
		if (why.code != ERR_NOTFOUND && why.code != ERR_UNSUPPORTED)
			printf("GPUs are not measured: %s\n", why.text);
		return 0;
	}
	printf("\n");
	return measure_gpus(s, c, e);
}

/* --- The command line --- */

static int calibrate(const struct settings *s)
{
	static struct calibration c;
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	double begun = clock_s();
	if (calibration_begin(s->file, path, sizeof path, &c, &e))
		return tool_fail(&tool_bench_calibrate, &e);
	struct settings mine = *s;
	if (!mine.ranks)
		mine.ranks = c.cores > RANK_JOB_MAX ? RANK_JOB_MAX : c.cores < 8 ? 8 : c.cores;
	if ((s->processors && (all_machines(&mine, &c, &e) || all_exchanges(&mine, &c, &e))) ||
	    all_gpus(&mine, &c, &e) || calibration_save(&c, path, &e))
		return tool_fail(&tool_bench_calibrate, &e);
	printf("\nwritten to %s after %.0f s\n", path, clock_s() - begun);
	return TOOL_OK;
}

static int run_bench_calibrate(int argc, char **argv)
{
	static const struct option options[] = {
		{ "ranks", required_argument, NULL, 'r' },
		{ "seconds", required_argument, NULL, 's' },
		{ "quick", no_argument, NULL, 'q' },
		{ "device", required_argument, NULL, 'd' },
		{ "up-to", required_argument, NULL, 'u' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	struct settings s = { .seconds = 0.03, .processors = true, .gpus = true, .all = true };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'r')
			s.ranks = atoi(optarg) ? atoi(optarg) : -1;
		else if (c == 's')
			s.seconds = atof(optarg);
		else if (c == 'q')
			s.quick = true;
		else if (c == 'u')
			s.elements = atoll(optarg) ? atoll(optarg) : -1;
		else if (c == 'd' && !strcmp(optarg, "cpu"))
			s.gpus = false;
		else if (c == 'd' && !strcmp(optarg, "cuda"))
			s.processors = s.all = false;
		else if (c == 'd')
			return tool_usage(&tool_bench_calibrate, "--device is cpu or cuda, not %s",
					  optarg);
		else
			return tool_option(&tool_bench_calibrate, c, argv);
	}
	if (argc - optind > 1)
		return tool_usage(&tool_bench_calibrate, "one FILE, not %d", argc - optind);
	s.file = argc > optind ? argv[optind] : NULL;
	if ((s.ranks && (s.ranks < 2 || s.ranks > RANK_JOB_MAX)) ||
	    !(s.seconds >= 1e-4 && s.seconds <= 60))
		return tool_usage(&tool_bench_calibrate,
				  "--ranks is 2 to %d, --seconds 0.0001 to 60", RANK_JOB_MAX);
	if (s.elements && (s.elements < ELEMENTS_LEAST || s.elements > (int64_t)1 << 30))
		return tool_usage(&tool_bench_calibrate, "--up-to is %d to 2^30", ELEMENTS_LEAST);
	return calibrate(&s);
}

const struct tool tool_bench_calibrate = { "bench", "calibrate", run_bench_calibrate,
					   "measure this machine for the planner", page };
