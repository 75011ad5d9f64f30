#include "agent/tools/bench_comm.h"
#include "agent/tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"muster bench comm — measure collectives and messages between ranks\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench comm [--ops LIST] [--ranks N | --hosts A+B…] [OPTION …]\n"
	"  muster bench comm --calibrate[=FILE] [--ranks N]\n"
	"\n"
	"DESCRIPTION\n"
	"  Runs collective operations and messages over libcomm, checks every element of every\n"
	"  result, and prints one line per size, in the columns of nccl-tests. Outside of Slurm\n"
	"  it starts N ranks on this host. Inside a Slurm allocation it starts one rank per\n"
	"  device (or task) on the allocation's nodes, with srun --mpi=pmix.\n"
	"\n"
	"  size      bytes of the larger buffer; for all_gather, reduce_scatter, all_to_all,\n"
	"            gather and scatter this buffer holds the blocks of all ranks\n"
	"  count     elements as the operation counts them; for the operations named above, the\n"
	"            elements of one rank's block\n"
	"  time      of one operation. After a barrier each rank times a block of iterations from\n"
	"            its own start to its own end, and the mean of the slowest rank is the\n"
	"            block's time. The median of 5 blocks is printed; --json adds the minimum.\n"
	"  algbw     size / time\n"
	"  busbw     algbw × the share that the links must carry with n ranks: all_reduce\n"
	"            2 (n - 1) / n; all_gather, reduce_scatter, all_to_all, gather, scatter\n"
	"            (n - 1) / n; reduce, broadcast, send_recv, ping_pong 1\n"
	"            (nccl-tests, doc/PERFORMANCE.md)\n"
	"  #wrong    elements, over all ranks, that differ from the result computed without the\n"
	"            operation; must be 0\n"
	"\n"
	"  In send_recv each rank sends to the next rank and receives from the previous one at\n"
	"  the same time. In ping_pong ranks 0 and 1 exchange a message, and the time is half of\n"
	"  the round trip.\n"
	"\n"
	"OPTIONS\n"
	"  --ops LIST         all, or a list of all_reduce,reduce,broadcast,all_gather,\n"
	"                     reduce_scatter,all_to_all,gather,scatter,send_recv,ping_pong,\n"
	"                     barrier (default all_reduce)\n"
	"  --ranks N          ranks on this host, 1 to 256 (default one per core, at least 2);\n"
	"                     inside an allocation, too\n"
	"  --hosts A+B…       ranks on this host that act as if A of them were on one host and B\n"
	"                     on another: they use shared memory within each such host and TCP\n"
	"                     over the loopback address between them\n"
	"  --min-bytes SIZE   smallest size (default 8); K, M, G are powers of 1024\n"
	"  --max-bytes SIZE   largest size (default 64M)\n"
	"  --factor F         factor from one size to the next (default 2)\n"
	"  --type TYPE        float, double, bfloat16, half, int32, int64, uint8 (default float)\n"
	"  --redop OP         sum, avg, max, min, prod (default sum)\n"
	"  --root R           root of reduce, broadcast, gather, scatter (default 0)\n"
	"  --seconds S        time for each line and place (default 0.1)\n"
	"  --iters N          operations per block, in place of --seconds\n"
	"  --warmup N         operations before the first block (default: as many as the choice\n"
	"                     of the number of iterations takes)\n"
	"  --backend B        auto, shm, tcp (default auto)\n"
	"  --algorithm NAME   use this algorithm wherever it can run\n"
	"  --sockets N        TCP connections per pair of ranks, 1 to 16\n"
	"  --integrity MODE   none, checksum or seal: the protection of TCP connections, as with\n"
	"                     [network] integrity (default none)\n"
	"  --interface NAME   network interface for TCP (default: the one that leads to the node\n"
	"                     that started the step)\n"
	"  --timeout S        longest wait inside one operation (default 60)\n"
	"  --place P          out (two buffers), in (one), both (default both)\n"
	"  --shared           use buffers that the ranks of a host can read in place (comm_alloc)\n"
	"  --async            start each operation, then wait for it\n"
	"  --calibrate[=FILE] measure all-reduces of groups of 2, 4, … N ranks of this host over\n"
	"                     shared memory and over TCP, with all groups at once, fit a latency\n"
	"                     and a time per byte, and store them for muster plan and muster run.\n"
	"                     N should be the number of agents that will run here. Then print the\n"
	"                     all-reduces of all N ranks by each algorithm that can run, and the\n"
	"                     sizes at which the fastest algorithm changes. The default file is\n"
	"                     [launch] calibration's: $XDG_CONFIG_HOME/muster/calibration.json,\n"
	"                     or the same path in ~/.config.\n"
	"  --json             print as JSON; times in seconds, bandwidths in bytes/s\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench comm --ops all --ranks 4\n"
	"  muster bench comm --ops all_reduce,all_gather --hosts 1+7 --max-bytes 1M\n"
	"  salloc -N4 --ntasks-per-node=8 muster bench comm --min-bytes 1M --max-bytes 1G\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured, and every element is right\n"
	"  1  an element is wrong, or an operation failed\n"
	"  2  usage\n";

struct bench {
	struct bench_comm loop;
	struct rank_job job;
	int hosts[RANK_JOB_MAX]; /* of each rank */
	bool ranks_given, hosts_given;
	bool calibrate;
	const char *calibration; /* the calibration's file; NULL: the default file */
	const char *shaping;     /* an option that --calibrate does not use; NULL: none */
	uint64_t wrong;
};

/* --- The command line --- */

static const char *op_list(char *list, size_t size)
{
	*list = '\0';
	for (int i = 0; i < bench_n_ops; i++) {
		size_t used = strlen(list);
		snprintf(list + used, size - used, "%s%s", i ? ", " : "", bench_ops[i].name);
	}
	return list;
}

static int read_ops(const char *text, struct bench *b, struct err *e)
{
	char list[256];
	if (!strcmp(text, "all")) {
		b->loop.ops = (1u << bench_n_ops) - 1;
		return 0;
	}
	b->loop.ops = 0;
	for (size_t n; n = strcspn(text, ","), true; text += n + 1) {
		int i = 0;
		while (i < bench_n_ops &&
		       (strlen(bench_ops[i].name) != n || strncmp(bench_ops[i].name, text, n)))
			i++;
		if (i == bench_n_ops)
			return err_set(
				e, ERR_USAGE,
				"--ops: \"%.*s\" is not an operation; use all, or a list of: %s",
				(int)n, text, op_list(list, sizeof list));
		b->loop.ops |= 1u << i;
		if (!text[n])
			return 0;
	}
}

static int read_int(const char *name, const char *text, int least, int most, int *out,
		    struct err *e)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (end == text || *end || errno || n < least || n > most)
		return err_set(e, ERR_USAGE, "%s: \"%s\" is not a whole number from %d to %d", name,
			       text, least, most);
	*out = (int)n;
	return 0;
}

static int read_real(const char *name, const char *text, double least, double most, double *out,
		     struct err *e)
{
	char *end;
	double x = strtod(text, &end);
	if (end == text || *end || !(x >= least && x <= most))
		return err_set(e, ERR_USAGE, "%s: \"%s\" is not a number from %g to %g", name, text,
			       least, most);
	*out = x;
	return 0;
}

/* Reads "1+7": rank 0 is on host 0, and the others are on host 1. */
static int read_hosts(const char *text, struct bench *b, struct err *e)
{
	int ranks = 0, host = 0;
	for (const char *at = text;; host++) {
		char *end;
		long n = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
		if (n < 1 || n > RANK_JOB_MAX - ranks || (*end && *end != '+'))
			return err_set(e, ERR_USAGE,
				       "--hosts: \"%s\" is not a list such as 1+7 of at most %d "
				       "ranks in all",
				       text, RANK_JOB_MAX);
		for (; n > 0; n--)
			b->hosts[ranks++] = host;
		if (!*end)
			break;
		at = end + 1;
	}
	b->job.ranks = ranks;
	b->job.hosts = b->hosts;
	b->hosts_given = true;
	return 0;
}

static int read_word(const char *name, const char *text, int (*find)(const char *), int *out,
		     struct err *e)
{
	int i = find(text);
	if (i < 0)
		return err_set(e, ERR_USAGE, "%s: there is no \"%s\"", name, text);
	*out = i;
	return 0;
}

static int read_place(const char *text, struct bench_comm *l, struct err *e)
{
	l->apart = strcmp(text, "in") != 0;
	l->in_place = strcmp(text, "out") != 0;
	if (l->apart && l->in_place && strcmp(text, "both"))
		return err_set(e, ERR_USAGE, "--place: \"%s\" is none of out, in, both", text);
	return 0;
}

enum {
	O_OPS = 256,
	O_RANKS,
	O_HOSTS,
	O_MIN,
	O_MAX,
	O_FACTOR,
	O_TYPE,
	O_REDOP,
	O_ROOT,
	O_SECONDS,
	O_ITERS,
	O_WARMUP,
	O_BACKEND,
	O_ALGORITHM,
	O_SOCKETS,
	O_INTEGRITY,
	O_INTERFACE,
	O_TIMEOUT,
	O_PLACE,
	O_SHARED,
	O_ASYNC,
	O_CALIBRATE,
	O_JSON
};

/* clang-format off */
static const struct option options[] = {
	{ "ops", required_argument, NULL, O_OPS }, { "ranks", required_argument, NULL, O_RANKS },
	{ "hosts", required_argument, NULL, O_HOSTS }, { "min-bytes", required_argument, NULL, O_MIN },
	{ "max-bytes", required_argument, NULL, O_MAX }, { "factor", required_argument, NULL, O_FACTOR },
	{ "type", required_argument, NULL, O_TYPE }, { "redop", required_argument, NULL, O_REDOP },
	{ "root", required_argument, NULL, O_ROOT }, { "seconds", required_argument, NULL, O_SECONDS },
	{ "iters", required_argument, NULL, O_ITERS }, { "warmup", required_argument, NULL, O_WARMUP },
	{ "backend", required_argument, NULL, O_BACKEND }, { "algorithm", required_argument, NULL, O_ALGORITHM },
	{ "sockets", required_argument, NULL, O_SOCKETS }, { "interface", required_argument, NULL, O_INTERFACE },
	{ "integrity", required_argument, NULL, O_INTEGRITY },
	{ "timeout", required_argument, NULL, O_TIMEOUT }, { "place", required_argument, NULL, O_PLACE }, { "shared", no_argument, NULL, O_SHARED },
	{ "async", no_argument, NULL, O_ASYNC }, { "calibrate", optional_argument, NULL, O_CALIBRATE },
	{ "json", no_argument, NULL, O_JSON },
	{ "help", no_argument, NULL, TOOL_HELP }, { 0 },
};
/* clang-format on */

static int read_option(struct bench *b, int c, const char *text, struct err *e)
{
	struct bench_comm *l = &b->loop;
	int i = 0, rc = 0;
	switch (c) {
	case O_OPS:
		return read_ops(text, b, e);
	case O_RANKS:
		b->ranks_given = true;
		return read_int("--ranks", text, 1, RANK_JOB_MAX, &b->job.ranks, e);
	case O_HOSTS:
		return read_hosts(text, b, e);
	case O_MIN:
		return tool_read_bytes("--min-bytes", text, &l->least, e);
	case O_MAX:
		return tool_read_bytes("--max-bytes", text, &l->most, e);
	case O_FACTOR:
		return read_real("--factor", text, 1.01, 1e12, &l->factor, e);
	case O_TYPE:
		rc = read_word("--type", text, bench_type, &i, e);
		l->type = (enum comm_type)i;
		return rc;
	case O_REDOP:
		rc = read_word("--redop", text, bench_redop, &i, e);
		l->redop = (enum comm_op)i;
		return rc;
	case O_ROOT:
		return read_int("--root", text, 0, 65535, &l->root, e);
	case O_SECONDS:
		return read_real("--seconds", text, 0.001, 3600, &l->seconds, e);
	case O_ITERS:
		return read_int("--iters", text, 1, BENCH_ITERS_MAX, &l->iters, e);
	case O_WARMUP:
		return read_int("--warmup", text, 0, BENCH_ITERS_MAX, &l->warmup, e);
	case O_BACKEND:
		b->job.comm.backend = text;
		break;
	case O_ALGORITHM:
		b->job.comm.algorithm = text;
		break;
	case O_SOCKETS:
		return read_int("--sockets", text, 1, COMM_SOCKETS_MAX, &b->job.comm.sockets, e);
	case O_INTEGRITY:
		rc = read_word("--integrity", text, comm_integrity_parse, &i, e);
		b->job.comm.integrity = (enum comm_integrity)i;
		return rc;
	case O_INTERFACE:
		b->job.comm.interface = text;
		break;
	case O_TIMEOUT:
		return read_real("--timeout", text, 0.001, 1e6, &b->job.comm.timeout_s, e);
	case O_PLACE:
		return read_place(text, l, e);
	case O_SHARED:
		l->shared = true;
		break;
	case O_ASYNC:
		l->async = true;
		break;
	case O_CALIBRATE:
		b->calibrate = true;
		b->calibration = text;
		break;
	case O_JSON:
		l->json = true;
		break;
	}
	return 0;
}

/* Whether the option is about the machine and not about the measurement. */
static bool for_calibration(int c)
{
	return c == O_CALIBRATE || c == O_RANKS || c == O_SOCKETS || c == O_INTERFACE ||
	       c == O_TIMEOUT;
}

static int check_words(struct bench *b, struct err *e)
{
	if (b->loop.least > b->loop.most)
		return err_set(e, ERR_USAGE, "--min-bytes %zu is above --max-bytes %zu",
			       b->loop.least, b->loop.most);
	if (b->ranks_given && b->hosts_given)
		return err_set(e, ERR_USAGE, "--hosts sets the number of ranks; omit --ranks");
	if (b->calibrate && b->shaping)
		return err_set(e, ERR_USAGE,
			       "--calibrate chooses what it measures, among the ranks of one host, "
			       "and writes a file; omit --%s",
			       b->shaping);
	if ((b->ranks_given || b->hosts_given || b->calibrate) && tool_rank_job_launched())
		return err_set(e, ERR_USAGE,
			       "the launcher sets the number of ranks and their hosts; omit "
			       "--ranks, --hosts and --calibrate");
	return 0;
}

/* Checks the options that depend on the number of ranks. */
static int check_ranks(const struct bench_comm *l, int ranks, struct err *e)
{
	if (l->root >= ranks)
		return err_set(e, ERR_USAGE, "--root %d is none of the ranks 0 to %d", l->root,
			       ranks - 1);
	for (int i = 0; i < bench_n_ops; i++)
		if (l->ops >> i & 1 && ranks < bench_ops[i].least_ranks)
			return err_set(e, ERR_USAGE, "%s needs %d ranks", bench_ops[i].name,
				       bench_ops[i].least_ranks);
	return 0;
}

/* --- The work --- */

/* Runs in every rank. */
static int work(struct comm *world, void *arg, struct err *e)
{
	struct bench *b = arg;
	struct bench_report *report = NULL;
	if (check_ranks(&b->loop, comm_size(world), e))
		return -1;
	if (comm_rank(world) == 0 && bench_report_open(&b->loop, world, &report, e))
		return -1;
	int rc = bench_comm_loop(world, &b->loop, bench_report_row, report, e);
	if (!rc && report)
		rc = bench_report_end(report, &b->wrong, e);
	bench_report_close(report);
	if (!rc && b->wrong)
		rc = err_set(e, ERR_CORRUPT,
			     "%" PRIu64 " elements are wrong; run it again with one --ops and one "
			     "size, and report it to the developers",
			     b->wrong);
	return rc;
}

/* Every rank finds the same usage error, so only one prints it. */
static int report_misuse(bool prints, const struct err *e)
{
	return prints ? tool_fail(&tool_bench_comm, e) : TOOL_USAGE;
}

static int run_bench(struct bench *b)
{
	struct err e = ERR_INIT;
	/* tool_rank_job_join removes the launcher's variables from the environment */
	bool launched = tool_rank_job_launched(), prints = tool_rank_job_prints();
	if (check_words(b, &e))
		return report_misuse(prints, &e);
	if (b->calibrate)
		return bench_calibrate(&b->job, b->calibration, &e)
			       ? tool_fail(&tool_bench_comm, &e)
			       : TOOL_OK;
	b->job.work = work;
	b->job.arg = b;
	if (!(launched ? tool_rank_job_join(&b->job, &e) : tool_rank_job_fork(&b->job, &e)))
		return TOOL_OK;
	return e.code == ERR_USAGE ? report_misuse(prints, &e) : tool_fail(&tool_bench_comm, &e);
}

static int run_bench_comm(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct bench b = {
		.loop = { .ops = 1,
			  .least = 8,
			  .most = 64 << 20,
			  .factor = 2,
			  .type = COMM_F32,
			  .redop = COMM_SUM,
			  .seconds = 0.1,
			  .apart = true,
			  .in_place = true },
		.job = { .ranks = cores < 2              ? 2
				  : cores > RANK_JOB_MAX ? RANK_JOB_MAX
							 : (int)cores,
			 .comm = { .interface = "", .backend = "auto", .timeout_s = 60 } },
	};
	struct err e = ERR_INIT;
	opterr = 0;
	for (int c, at; (c = getopt_long(argc, argv, ":h", options, &at)) != -1;) {
		if (c < O_OPS)
			return tool_rank_job_prints() ? tool_option(&tool_bench_comm, c, argv)
						      : TOOL_USAGE;
		if (read_option(&b, c, optarg, &e))
			return report_misuse(tool_rank_job_prints(), &e);
		if (!for_calibration(c))
			b.shaping = options[at].name;
	}
	if (optind != argc)
		return tool_rank_job_prints()
			       ? tool_usage(&tool_bench_comm, "%s is not an option", argv[optind])
			       : TOOL_USAGE;
	return run_bench(&b);
}

const struct tool tool_bench_comm = { "bench", "comm", run_bench_comm,
				      "measure collectives and messages between ranks", page };
