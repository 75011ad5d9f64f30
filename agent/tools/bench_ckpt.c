#include "agent/tools/bench_ckpt.h"

#include "agent/engine/ckpt/storage/storage.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/rank_job.h"
#include "agent/tools/tools.h"
#include "base/numbers.h"
#include "base/run_paths.h"
#include "plan/spec/job/job.h"
#include "plan/spec/job/node_path.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char page[] =
	"muster bench ckpt — measure checkpoints, beside plain files and a memory copy\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench ckpt [PLACE …] [--ranks N] [--size SIZE] [--rounds N] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Ranks on this host save checkpoints at each PLACE and load them, exactly as a run "
	"does.\n"
	"  A PLACE is a folder, s3://BUCKET/PREFIX, a job file or a run's folder; of a job it is\n"
	"  each of checkpoint.dir, checkpoint.local and checkpoint.remote. The default is the\n"
	"  current folder. Whatever is measured is new, below PLACE/.muster-bench-…, and is "
	"removed\n"
	"  at the end. If the measurement is killed, remove that folder.\n"
	"\n"
	"  Each round does the following in turns, with all ranks at the same time, and starts "
	"with\n"
	"  another of them. A round before the first one is not counted. The medians over the\n"
	"  rounds are printed.\n"
	"\n"
	"  write   a save, from the end of its stall until the checkpoint is committed; beside "
	"it,\n"
	"          a plain file per rank of the same bytes, written in pieces of 4 MiB and synced\n"
	"          (as dd bs=4M conv=fsync), through the page cache and with O_DIRECT\n"
	"  read    a load, with all digests verified; beside it, the plain files. They are taken\n"
	"          out of the page cache before\n"
	"  stall   how long training waits for a save; beside it, a memcpy of the state into\n"
	"          memory that is in use already; and the stall of the first save\n"
	"\n"
	"  Each ratio is the median over the rounds of that round's ratio: speed against the "
	"faster\n"
	"  kind of plain file, time against the memcpy.\n"
	"\n"
	"OPTIONS\n"
	"  --ranks N     ranks on this host, 1 to 256 (default: one per core, at most 4)\n"
	"  --size SIZE   state of each rank (default 256M); K, M, G are powers of 1024. A rank\n"
	"                needs three times as much memory, and all ranks together twice as much\n"
	"                room at each place\n"
	"  --rounds N    1 to 99 (default 5)\n"
	"  --json        print as JSON: {ranks, bytes, rounds, places: [{place, tier, write, …,\n"
	"                rounds: [{save, …}]}]} with bytes/s and seconds; null: not measured\n"
	"\n"
	"ENVIRONMENT\n"
	"  for s3://, that of muster ckpt push\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench ckpt /scratch/me --ranks 8 --size 2G\n"
	"  muster bench ckpt runs/mine\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  a place cannot be written or read\n"
	"  2  usage\n";

enum { PLACES = 16, UNIT = 4096, DEFAULT_RANKS = 4, DEFAULT_SIZE = 256 << 20 };

struct place {
	char name[PATH_MAX];
	const char *tier; /* "" unless it comes from a job */
};

struct settings {
	struct place places[PLACES];
	int n, ranks, rounds;
	size_t bytes;
	bool json;
};

/* --- places --- */

static int add_place(struct settings *s, const char *name, const char *tier, struct err *e)
{
	if (s->n == PLACES)
		return err_set(e, ERR_USAGE, "there are more than %d places", PLACES);
	struct place *p = &s->places[s->n++];
	p->tier = tier;
	return snprintf(p->name, sizeof p->name, "%s", name) < (int)sizeof p->name
		       ? 0
		       : err_set(e, ERR_USAGE, "%s: the path is too long", name);
}

/* run: the run's folder; NULL: the job has no run yet. */
static int add_job(struct settings *s, const char *ini, const char *run, struct err *e)
{
	static struct job job; /* too large for a small stack */
	char node[HOST_NAME_MAX + 1], path[PATH_MAX];
	if (job_load(ini, NULL, 0, &job, e))
		return -1;
	snprintf(path, sizeof path, "%s", run ? run : job.job.run_dir);
	if (add_place(s, job.checkpoint.dir[0] ? job.checkpoint.dir : path, "shared folder", e))
		return -1;
	tool_node_name(node);
	if (job.checkpoint.local[0] &&
	    (job_node_path("checkpoint.local", job.checkpoint.local, node, path, e) ||
	     add_place(s, path, "nodes", e)))
		return -1;
	return job.checkpoint.remote[0] ? add_place(s, job.checkpoint.remote, "remote", e) : 0;
}

static int add_word(struct settings *s, const char *word, struct err *e)
{
	char ini[PATH_MAX];
	struct stat st;
	if (*ckpt_storage_of(word)->ops->scheme)
		return add_place(s, word, "", e);
	if (stat(word, &st))
		return err_errno(e, ERR_NOTFOUND, "%s: cannot look at it", word);
	if (S_ISREG(st.st_mode))
		return add_job(s, word, NULL, e);
	bool fits = snprintf(ini, sizeof ini, "%s/" RUN_JOB, word) < (int)sizeof ini;
	return fits && !access(ini, F_OK) ? add_job(s, ini, word, e) : add_place(s, word, "", e);
}

/* Sets b->dir to a new name below the place. */
static int make_dir(struct bench_ckpt *b, const char *place, struct err *e)
{
	uint64_t nonce;
	char above[PATH_MAX];
	snprintf(above, sizeof above, "%s", place);
	b->plain = !*ckpt_storage_of(place)->ops->scheme;
	if (b->plain)
		tool_nearest_folder(above); /* the first run has not made its folders yet */
	if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
		return err_errno(e, ERR_IO, "cannot draw a random number for a name");
	if (snprintf(b->dir, sizeof b->dir, "%s/.muster-bench-%016" PRIx64, above, nonce) >=
	    (int)sizeof b->dir)
		return err_set(e, ERR_USAGE, "%s: the path is too long", place);
	return b->plain && mkdir(b->dir, 0700)
		       ? err_errno(e, ERR_IO, "%s: cannot make a folder there", place)
		       : 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	return remove(path);
}

static int remove_entry(void *arg, const char *name, struct err *e)
{
	const struct bench_ckpt *b = arg;
	const struct ckpt_storage *s = ckpt_storage_of(b->dir);
	char path[PATH_MAX];
	return ckpt_storage_join(path, sizeof path, b->dir, name, e) || s->ops->remove(s, path, e);
}

/* After a failure there may be files and attempts. */
static void remove_dir(struct bench_ckpt *b)
{
	const struct ckpt_storage *s = ckpt_storage_of(b->dir);
	struct ckpt_storage_names names;
	if (b->plain) {
		nftw(b->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
		return;
	}
	if (ckpt_storage_names_of(s, b->dir, &names, NULL))
		return;
	for (size_t i = 0; i < names.n; i++)
		remove_entry(b, names.names[i], NULL);
	ckpt_storage_names_free(&names);
}

/* --- figures --- */

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof *x, compare_double);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* 0: it was not measured. */
static double median_seconds(const struct bench_ckpt *b, enum bench_ckpt_what what)
{
	double x[BENCH_CKPT_ROUNDS];
	for (int i = 0; i < b->rounds; i++)
		x[i] = b->seconds[i][what];
	return median(x, b->rounds);
}

static double rate(const struct bench_ckpt *b, enum bench_ckpt_what what)
{
	double seconds = median_seconds(b, what);
	return seconds > 0 ? (double)b->ranks * (double)b->bytes / seconds : 0;
}

/* `what` is followed by its two kinds of plain files. */
static double speed_ratio(const struct bench_ckpt *b, enum bench_ckpt_what what)
{
	double x[BENCH_CKPT_ROUNDS];
	for (int i = 0; i < b->rounds; i++) {
		const double *s = b->seconds[i];
		double plain = s[what + 1], direct = s[what + 2];
		plain = direct > 0 && direct < plain ? direct : plain;
		x[i] = plain / s[what];
	}
	return median(x, b->rounds);
}

static double stall_ratio(const struct bench_ckpt *b)
{
	double x[BENCH_CKPT_ROUNDS];
	for (int i = 0; i < b->rounds; i++)
		x[i] = b->seconds[i][BENCH_STALL] / b->seconds[i][BENCH_COPY];
	return median(x, b->rounds);
}

static void print_speed(const char *name, const struct bench_ckpt *b, enum bench_ckpt_what what)
{
	double direct = rate(b, what + 2) / 1e9;
	printf("  %-6s %8.3f GB/s", name, rate(b, what) / 1e9);
	if (b->plain)
		printf("  %.2f × plain files: %.3f GB/s buffered, ", speed_ratio(b, what),
		       rate(b, what + 1) / 1e9);
	if (b->plain && direct > 0)
		printf("%.3f direct", direct);
	else if (b->plain)
		printf("direct is refused");
	putchar('\n');
}

static void print_place(const struct place *p, const struct bench_ckpt *b)
{
	printf("\n%s%s%s%s\n", p->name, *p->tier ? " (" : "", p->tier, *p->tier ? ")" : "");
	print_speed("write", b, BENCH_WRITE_SAVE);
	print_speed("read", b, BENCH_READ_LOAD);
	printf("  stall  %8.4f s     %.2f × memcpy: %.4f s; the first save %.4f s\n",
	       median_seconds(b, BENCH_STALL), stall_ratio(b), median_seconds(b, BENCH_COPY),
	       b->first_stall);
	fflush(stdout);
}

static json_t *measured(double x)
{
	return x > 0 ? json_real(x) : json_null();
}

/* The seconds of each round. */
static json_t *rounds_json(const struct bench_ckpt *b)
{
	static const char *const names[BENCH_CKPT_WHATS] = { "save",          "write_buffered",
							     "write_direct",  "load",
							     "read_buffered", "read_direct",
							     "stall",         "memcpy" };
	json_t *list = json_array();
	for (int i = 0; i < b->rounds; i++) {
		json_t *round = json_object();
		for (int k = 0; k < BENCH_CKPT_WHATS; k++)
			json_object_set_new(round, names[k], measured(b->seconds[i][k]));
		json_array_append_new(list, round);
	}
	return list;
}

static json_t *place_json(const struct place *p, const struct bench_ckpt *b)
{
	bool plain = b->plain;
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, "
			 "s:o}",
			 "place", p->name, "tier", p->tier, "write",
			 measured(rate(b, BENCH_WRITE_SAVE)), "write_buffered",
			 measured(rate(b, BENCH_WRITE_BUFFERED)), "write_direct",
			 measured(rate(b, BENCH_WRITE_DIRECT)), "write_ratio",
			 measured(plain ? speed_ratio(b, BENCH_WRITE_SAVE) : 0), "read",
			 measured(rate(b, BENCH_READ_LOAD)), "read_buffered",
			 measured(rate(b, BENCH_READ_BUFFERED)), "read_direct",
			 measured(rate(b, BENCH_READ_DIRECT)), "read_ratio",
			 measured(plain ? speed_ratio(b, BENCH_READ_LOAD) : 0), "stall_s",
			 median_seconds(b, BENCH_STALL), "memcpy_s", median_seconds(b, BENCH_COPY),
			 "stall_ratio", stall_ratio(b), "first_stall_s", b->first_stall, "rounds",
			 rounds_json(b));
}

/* --- the command --- */

static int measure_place(const struct settings *s, const struct place *p, struct bench_ckpt *b,
			 json_t *list, struct err *e)
{
	memset(b, 0, sizeof *b);
	b->ranks = s->ranks;
	b->rounds = s->rounds;
	b->bytes = (int64_t)s->bytes;
	if (make_dir(b, p->name, e))
		return -1;
	int rc = bench_ckpt_run(b, e);
	remove_dir(b);
	if (rc)
		return err_prefix(e, "%s", p->name);
	if (s->json)
		json_array_append_new(list, place_json(p, b));
	else
		print_place(p, b);
	return 0;
}

static int measure(const struct settings *s)
{
	struct err e = ERR_INIT;
	struct bench_ckpt *b = bench_ckpt_shared();
	json_t *list = json_array();
	int rc = b && list ? 0 : err_set(&e, ERR_NOMEM, "no memory to measure checkpoints");
	if (!s->json)
		printf("%d rank%s, %zu MiB each, medians of %d round%s in turns\n", s->ranks,
		       s->ranks > 1 ? "s" : "", s->bytes >> 20, s->rounds,
		       s->rounds > 1 ? "s" : "");
	for (int i = 0; i < s->n && !rc; i++)
		rc = measure_place(s, &s->places[i], b, list, &e);
	bench_ckpt_unshared(b);
	if (rc) {
		json_decref(list);
		return tool_fail(&tool_bench_ckpt, &e);
	}
	if (!s->json) {
		json_decref(list);
		return TOOL_OK;
	}
	return tool_print_json(&tool_bench_ckpt, json_pack("{s:i, s:I, s:i, s:o}", "ranks",
							   s->ranks, "bytes", (json_int_t)s->bytes,
							   "rounds", s->rounds, "places", list));
}

/* -1: the word is no whole number from 0 on. */
static int read_int(const char *word)
{
	char *end;
	long n = strtol(word, &end, 10);
	return end == word || *end || n < 0 || n > INT_MAX ? -1 : (int)n;
}

static int check_settings(struct settings *s, struct err *e)
{
	if (s->ranks < 1 || s->ranks > RANK_JOB_MAX)
		return err_set(e, ERR_USAGE, "--ranks is 1 to %d", RANK_JOB_MAX);
	if (s->rounds < 1 || s->rounds > BENCH_CKPT_ROUNDS)
		return err_set(e, ERR_USAGE, "--rounds is 1 to %d", BENCH_CKPT_ROUNDS);
	s->bytes = s->bytes / UNIT * UNIT;
	if (!s->bytes)
		return err_set(e, ERR_USAGE, "--size is at least %d bytes", UNIT);
	return 0;
}

static int run_bench_ckpt(int argc, char **argv)
{
	static const struct option options[] = {
		{ "ranks", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	static struct settings s; /* large */
	struct err e = ERR_INIT;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	s.ranks = cores < 1 ? 1 : cores < DEFAULT_RANKS ? (int)cores : DEFAULT_RANKS;
	s.rounds = 5;
	s.bytes = DEFAULT_SIZE;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'n')
			s.ranks = read_int(optarg);
		else if (c == 'r')
			s.rounds = read_int(optarg);
		else if (c == 'j')
			s.json = true;
		else if (c != 's')
			return tool_option(&tool_bench_ckpt, c, argv);
		else if (tool_read_bytes("--size", optarg, &s.bytes, &e))
			return tool_usage(&tool_bench_ckpt, "%s", e.text);
	}
	if (check_settings(&s, &e))
		return tool_usage(&tool_bench_ckpt, "%s", e.text);
	int rc = optind == argc ? add_place(&s, ".", "", &e) : 0;
	for (int i = optind; i < argc && !rc; i++)
		rc = add_word(&s, argv[i], &e);
	return rc ? tool_fail(&tool_bench_ckpt, &e) : measure(&s);
}

const struct tool tool_bench_ckpt = { "bench", "ckpt", run_bench_ckpt,
				      "measure checkpoints, beside plain files and a memory copy",
				      page };
