#include "agent/tools/bench_exchange.h"

#include "agent/tools/bench_comm.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

enum { GROUPS_MAX = 16, LEAST = 64, MOST = 4 << 20, FACTOR = 8 };

/* The name of each operation in bench_comm, and whether it has one buffer, as in training. */
/* clang-format off */
static const struct {
	const char *name;
	bool in_place;
} calls[] = {
	[MEASURED_ALL_REDUCE] = { "all_reduce", true }, [MEASURED_ALL_GATHER] = { "all_gather", true },
	[MEASURED_REDUCE_SCATTER] = { "reduce_scatter", true }, [MEASURED_ALL_TO_ALL] = { "all_to_all", false },
	[MEASURED_MESSAGE] = { "send_recv", false },
};
/* clang-format on */
enum { COLLECTIVES = sizeof calls / sizeof *calls };

/* Seconds of work between two meetings. A measurement of meetings takes MEETING_TIMES times the
 * seconds of a measurement of exchanges. */

static const double between[] = { 1e-4, 1e-3, 1e-2 };
#define MEETING_TIMES 2
enum { TURNS = 3 }; /* the minimum counts: a disturbance rarely affects all turns */

/* Is in memory that the ranks share; rank 0 writes it. */
struct notes {
	struct measured_exchange list[MEASURED_OPS * GROUPS_MAX];
	int n;
};

struct pass {
	enum measured_transport transport;
	double seconds;
	struct notes *notes;
	struct measured_exchange *at; /* NULL: another rank writes it */
	bool in_place;
};

static uint32_t bit_of(const char *name)
{
	int i = 0;
	while (strcmp(bench_ops[i].name, name))
		i++;
	return 1u << i;
}

static void note(void *arg, const struct bench_row *row)
{
	const struct pass *p = arg;
	struct measured_exchange *x = p->at;
	if (!x || x->n == RATE_POINTS)
		return;
	x->bytes[x->n] = (double)row->bytes;
	x->seconds[x->n++] = p->in_place ? row->in_place.median : row->apart.median;
}

static int one_op(struct comm *group, const struct pass *p, enum measured_op op, struct err *e)
{
	struct pass mine = *p;
	mine.in_place = calls[op].in_place;
	const struct bench_comm loop = {
		.ops = bit_of(calls[op].name),
		.least = LEAST,
		.most = MOST,
		.factor = FACTOR,
		.type = COMM_F32,
		.redop = COMM_SUM,
		.seconds = p->seconds,
		.apart = !mine.in_place,
		.in_place = mine.in_place,
	};
	return bench_comm_loop(group, &loop, note, &mine, e);
}

/* --- Meetings --- */

static double burn(int64_t turns)
{
	volatile double x = 1;
	for (int64_t i = 0; i < turns; i++)
		x = x * 1.0000001 + 1e-9;
	return x;
}

/* Sets the number of turns that take one second on this rank's core while the other ranks sleep. */
static int burn_rate(struct comm *world, double *rate, struct err *e)
{
	enum { TRIAL = 4000000 };
	if (comm_barrier(world, e))
		return -1;
	double begun = clock_s();
	if (comm_rank(world) == 0)
		burn(TRIAL);
	*rate = comm_rank(world) == 0 ? TRIAL / (clock_s() - begun) : 0;
	return comm_all_reduce(world, rate, rate, 1, COMM_F64, COMM_MAX, e);
}

/* Sets the seconds of one of n turns of work on the slowest rank. met: a group that meets after
 * each turn; NULL: none. */
static int time_work(struct comm *world, struct comm *met, int64_t turns, int n, double *seconds,
		     struct err *e)
{
	int32_t word = 0;
	if (comm_barrier(world, e))
		return -1;
	double begun = clock_s();
	for (int i = 0; i < n; i++) {
		burn(turns);
		if (met && comm_all_reduce(met, &word, &word, 1, COMM_I32, COMM_MAX, e))
			return -1;
	}
	*seconds = (clock_s() - begun) / n;
	return comm_all_reduce(world, seconds, seconds, 1, COMM_F64, COMM_MAX, e);
}

/* bare: seconds of the exchange itself. */
static int meetings(struct comm *world, struct comm *group, const struct pass *p, double bare,
		    struct measured_exchange *out, struct err *e)
{
	double rate, apart = 0, together = 0, one, other;
	if (burn_rate(world, &rate, e))
		return -1;
	for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
		int n = 3 + (int)(MEETING_TIMES * p->seconds / between[i] / comm_size(world));
		int64_t turns = (int64_t)(rate * between[i]) + 1;
		for (int turn = 0; turn < TURNS; turn++) {
			if (time_work(world, NULL, turns, n, &one, e) ||
			    time_work(world, group, turns, n, &other, e))
				return -1;
			apart = turn ? fmin(apart, one) : one;
			together = turn ? fmin(together, other) : other;
		}
		if (out) {
			out->bytes[i] = between[i] * 1e6;
			out->seconds[i] = fmax(1e-9, together - apart - bare);
			out->n = (int)i + 1;
		}
	}
	return 0;
}

/* Measures groups of `size` ranks, all at the same time. */
static int one_size(struct comm *world, const struct pass *p, int size, struct err *e)
{
	struct comm *group;
	int rank = comm_rank(world), rc = 0;
	if (comm_split(world, rank / size, rank, "calibration", &group, e))
		return -1;
	for (int op = 0; op < COLLECTIVES && !rc; op++) {
		struct pass mine = *p;
		mine.at = rank == 0 ? &p->notes->list[p->notes->n] : NULL;
		if (mine.at)
			*mine.at = (struct measured_exchange){ .transport = p->transport,
							       .op = (enum measured_op)op,
							       .group = size,
							       .crowd = comm_size(world) };
		rc = one_op(group, &mine, (enum measured_op)op, e) || comm_barrier(world, e) ? -1
											     : 0;
		if (!rc && rank == 0)
			p->notes->n++;
	}
	struct measured_exchange *list = rank == 0 ? &p->notes->list[p->notes->n] : NULL;
	if (list)
		*list = (struct measured_exchange){ .transport = p->transport,
						    .op = MEASURED_MEETING,
						    .group = size,
						    .crowd = comm_size(world) };
	rc = rc ? rc : meetings(world, group, p, list ? list[-COLLECTIVES].seconds[0] : 0, list, e);
	if (!rc && list)
		p->notes->n++;
	comm_close(group);
	return rc;
}

static int measure(struct comm *world, void *arg, struct err *e)
{
	for (int size = 2; size <= comm_size(world); size *= 2)
		if (one_size(world, arg, size, e))
			return -1;
	return 0;
}

int bench_exchange(enum measured_transport transport, int crowd, double seconds,
		   struct measured *out, struct err *e)
{
	struct pass p = { .transport = transport, .seconds = seconds };
	p.notes = mmap(NULL, sizeof *p.notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (p.notes == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory for the exchanges of %d ranks", crowd);
	const struct rank_job job = {
		.ranks = crowd,
		.comm = { .interface = "",
			  .backend = topo_measured_transport_word(transport),
			  .timeout_s = 120 },
		.work = measure,
		.arg = &p,
	};
	int rc = tool_rank_job_fork(&job, e);
	for (int i = 0; i < p.notes->n && !rc; i++)
		topo_measured_add_exchange(out, &p.notes->list[i]);
	munmap(p.notes, sizeof *p.notes);
	return rc;
}
