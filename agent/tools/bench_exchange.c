#include "agent/tools/bench_exchange.h"

#include "agent/tools/bench_comm.h"

#include <string.h>
#include <sys/mman.h>

enum { GROUPS_MOST = 16, LEAST = 64, MOST = 4 << 20, FACTOR = 8 };

/* bench_comm's name of each, and whether it is called with one buffer there, as training does. */
static const struct {
	const char *name;
	bool in_place;
} calls[] = {
	[MEASURED_ALL_REDUCE] = { "all_reduce", true }, [MEASURED_ALL_GATHER] = { "all_gather", true },
	[MEASURED_REDUCE_SCATTER] = { "reduce_scatter", true }, [MEASURED_ALL_TO_ALL] = { "all_to_all", false },
	[MEASURED_MESSAGE] = { "send_recv", false },
};

/* In memory that the ranks share: the first one writes. */
struct notes {
	struct measured_exchange list[MEASURED_OPS * GROUPS_MOST];
	int n;
};

struct pass {
	enum measured_transport transport;
	double seconds;
	struct notes *notes;
	struct measured_exchange *at; /* NULL: another rank notes */
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
	if (!x || x->n == COST_POINTS)
		return;
	x->bytes[x->n] = (double)row->bytes;
	x->seconds[x->n++] = p->in_place ? row->in_place.median : row->apart.median;
}

static int one_op(struct comm *group, const struct pass *p, enum measured_op op, struct err *e)
{
	struct pass mine = *p;
	mine.in_place = calls[op].in_place;
	const struct bench_comm loop = {
		.ops = bit_of(calls[op].name), .least = LEAST, .most = MOST, .factor = FACTOR, .type = COMM_F32, .redop = COMM_SUM,
		.seconds = p->seconds, .apart = !mine.in_place, .in_place = mine.in_place,
	};
	return bench_comm_loop(group, &loop, note, &mine, e);
}

/* Groups of `size`, all at once. */
static int one_size(struct comm *world, const struct pass *p, int size, struct err *e)
{
	struct comm *group;
	int rank = comm_rank(world), rc = 0;
	if (comm_split(world, rank / size, rank, "calibration", &group, e))
		return -1;
	for (int op = 0; op < MEASURED_OPS && !rc; op++) {
		struct pass mine = *p;
		mine.at = rank == 0 ? &p->notes->list[p->notes->n] : NULL;
		if (mine.at)
			*mine.at = (struct measured_exchange){ .transport = p->transport, .op = (enum measured_op)op, .group = size, .crowd = comm_size(world) };
		rc = one_op(group, &mine, (enum measured_op)op, e) || comm_barrier(world, e) ? -1 : 0;
		if (!rc && rank == 0)
			p->notes->n++;
	}
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

int bench_exchange(enum measured_transport transport, int crowd, double seconds, struct measured *out, struct err *e)
{
	struct pass p = { .transport = transport, .seconds = seconds };
	p.notes = mmap(NULL, sizeof *p.notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p.notes == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory for the exchanges of %d ranks", crowd);
	const struct crew crew = {
		.ranks = crowd, .comm = { .interface = "", .backend = measured_transport_word(transport), .timeout_s = 120 }, .work = measure, .arg = &p,
	};
	int rc = crew_run(&crew, e);
	for (int i = 0; i < p.notes->n && !rc; i++)
		measured_add_exchange(out, &p.notes->list[i]);
	munmap(p.notes, sizeof *p.notes);
	return rc;
}
