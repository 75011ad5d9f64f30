#include "agent/tools/tools.h"
#include "kernels/ops.h"
#include "plan/cost/calibration.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char page[] =
	"muster bench gemm — how fast this machine multiplies matrices\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench gemm [--size N] [--threads N] [--seconds S] [--json]\n"
	"  muster bench gemm --calibrate[=FILE] [--size N] [--seconds S]\n"
	"\n"
	"DESCRIPTION\n"
	"  Multiplies square fp32 matrices with the BLAS library that training uses, and prints\n"
	"  FLOP/s.\n"
	"\n"
	"OPTIONS\n"
	"  --size N      rows and columns (default 2048)\n"
	"  --threads N   threads (default 2)\n"
	"  --seconds S   time to measure (default 2)\n"
	"  --json        print as JSON\n"
	"  --calibrate[=FILE]\n"
	"                measure with one thread per core, and store the result for muster plan "
	"and\n"
	"                muster run in the file of muster bench comm --calibrate\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench gemm --threads 8\n"
	"  muster bench gemm --calibrate\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  the kernels cannot be opened, or the file cannot be written\n"
	"  2  usage\n";

struct settings {
	int64_t size, threads;
	double seconds;
	bool json, threads_given, calibrate;
	const char *file; /* NULL: the default one */
};

static int measure_rate(const struct settings *s, double *flops, struct err *e)
{
	struct backend *k;
	if (backend_open("cpu", (int)s->threads, &k, e))
		return -1;
	*flops = backend_gemm_flops(k, s->size, s->seconds);
	backend_close(k);
	if (*flops > 0)
		return 0;
	return err_set(e, ERR_NOMEM, "no memory for matrices of %lld × %lld; use a smaller --size",
		       (long long)s->size, (long long)s->size);
}

static int calibrate(struct settings *s)
{
	char path[PATH_MAX];
	static struct calibration c; /* too large for the stack */
	struct err e = ERR_INIT;
	if (calibration_begin(s->file, path, sizeof path, &c, &e))
		return tool_fail(&tool_bench_gemm, &e);
	s->threads = c.cores;
	if (measure_rate(s, &c.flops, &e) || calibration_save(&c, path, &e))
		return tool_fail(&tool_bench_gemm, &e);
	printf("sgemm %lld × %lld, one thread on each of %d cores: %.2f GFLOP/s\nwritten to %s\n",
	       (long long)s->size, (long long)s->size, c.cores, c.flops / 1e9, path);
	return TOOL_OK;
}

static int print_rate(const struct settings *s)
{
	struct err e = ERR_INIT;
	double flops;
	if (measure_rate(s, &flops, &e))
		return tool_fail(&tool_bench_gemm, &e);
	if (s->json)
		return tool_print_json(&tool_bench_gemm,
				       json_pack("{s:I, s:I, s:f}", "size", (json_int_t)s->size,
						 "threads", (json_int_t)s->threads, "flops",
						 flops));
	printf("sgemm %lld × %lld, %lld threads: %.2f GFLOP/s\n", (long long)s->size,
	       (long long)s->size, (long long)s->threads, flops / 1e9);
	return TOOL_OK;
}

static int run_gemm(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "size", required_argument, NULL, 'n' }, { "threads", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 's' }, { "json", no_argument, NULL, 'j' },
		{ "calibrate", optional_argument, NULL, 'c' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct settings s = { .size = 2048, .threads = 2, .seconds = 2 };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'n')
			s.size = atoll(optarg);
		else if (c == 't')
			s.threads = atoll(optarg), s.threads_given = true;
		else if (c == 's')
			s.seconds = atof(optarg);
		else if (c == 'j')
			s.json = true;
		else if (c == 'c')
			s.calibrate = true, s.file = optarg;
		else
			return tool_option(&tool_bench_gemm, c, argv);
	}
	if (optind != argc)
		return tool_usage(&tool_bench_gemm, "%s is not an option", argv[optind]);
	if (s.calibrate && (s.threads_given || s.json))
		return tool_usage(&tool_bench_gemm,
				  "--calibrate uses one thread per core and writes "
				  "a file; remove --threads and --json");
	if (s.size < 1 || s.size > 32768 || s.threads < 1 || s.threads > 4096 ||
	    !(s.seconds > 0 && s.seconds <= 3600))
		return tool_usage(&tool_bench_gemm, "--size is 1 to 32768, --threads 1 to 4096, "
						    "--seconds above 0 and at most 3600");
	return s.calibrate ? calibrate(&s) : print_rate(&s);
}

const struct tool tool_bench_gemm = { "bench", "gemm", run_gemm,
				      "how fast this machine multiplies matrices", page };
