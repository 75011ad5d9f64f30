#include "agent/tools/bench_comm.h"

#include <string.h>

/* --- Calls --- */

/* Both forms of an operation of comm.h, with their common arguments. */
#define BOTH(name, ...) \
	static int call_##name(const struct bench_call *k, struct err *e) \
	{ \
		return comm_##name(__VA_ARGS__, e); \
	} \
	static int start_##name(const struct bench_call *k, struct comm_request **req, \
				struct err *e) \
	{ \
		return comm_##name##_start(__VA_ARGS__, req, e); \
	}

BOTH(all_reduce, k->comm, k->in, k->out, k->count, k->type, k->redop)
BOTH(reduce, k->comm, k->in, k->out, k->count, k->type, k->redop, k->root)
BOTH(broadcast, k->comm, k->out, k->count, k->type, k->root)
BOTH(all_gather, k->comm, k->in, k->out, k->count, k->type)
BOTH(reduce_scatter, k->comm, k->in, k->out, k->count, k->type, k->redop)
BOTH(all_to_all, k->comm, k->in, k->out, k->count, k->type)
BOTH(gather, k->comm, k->in, k->out, k->count, k->type, k->root)
BOTH(scatter, k->comm, k->in, k->out, k->count, k->type, k->root)
BOTH(barrier, k->comm)

static struct comm_p2p sending(const struct bench_call *k, int to)
{
	return (struct comm_p2p){
		.send = true, .source = k->in, .count = k->count, .type = k->type, .peer = to
	};
}

static struct comm_p2p receiving(const struct bench_call *k, int from)
{
	return (struct comm_p2p){
		.send = false, .data = k->out, .count = k->count, .type = k->type, .peer = from
	};
}

/* Sends to the next rank and receives from the previous one. */
static void round_messages(const struct bench_call *k, struct comm_p2p both[2])
{
	int n = comm_size(k->comm), rank = comm_rank(k->comm);
	both[0] = sending(k, (rank + 1) % n);
	both[1] = receiving(k, (rank + n - 1) % n);
}

static int call_send_recv(const struct bench_call *k, struct err *e)
{
	struct comm_p2p both[2];
	round_messages(k, both);
	return comm_batch_send_recv(k->comm, both, 2, e);
}

static int start_send_recv(const struct bench_call *k, struct comm_request **req, struct err *e)
{
	struct comm_p2p both[2];
	round_messages(k, both);
	return comm_batch_send_recv_start(k->comm, both, 2, req, e);
}

/* Ranks 0 and 1 send and receive in turn. The other ranks do nothing. */
static int call_ping_pong(const struct bench_call *k, struct err *e)
{
	int rank = comm_rank(k->comm);
	if (rank == 0)
		return comm_send(k->comm, k->in, k->count, k->type, 1, e) ||
				       comm_recv(k->comm, k->out, k->count, k->type, 1, e)
			       ? -1
			       : 0;
	if (rank == 1)
		return comm_recv(k->comm, k->out, k->count, k->type, 0, e) ||
				       comm_send(k->comm, k->in, k->count, k->type, 0, e)
			       ? -1
			       : 0;
	return 0;
}

static int start_ping_pong(const struct bench_call *k, struct comm_request **req, struct err *e)
{
	int rank = comm_rank(k->comm);
	if (rank > 1)
		return 0;
	struct comm_p2p there = sending(k, 1 - rank), back = receiving(k, 1 - rank);
	if (comm_batch_send_recv_start(k->comm, rank ? &back : &there, 1, req, e) ||
	    comm_wait(*req, e))
		return -1;
	*req = NULL;
	return comm_batch_send_recv_start(k->comm, rank ? &there : &back, 1, req, e);
}

int bench_run(const struct bench_op *op, const struct bench_call *k, struct err *e)
{
	struct comm_request *req = NULL;
	if (!k->async)
		return op->call(k, e);
	return op->start(k, &req, e) ? -1 : comm_wait(req, e);
}

/* --- Sources of the results --- */

static const struct bench_source nobody = { RANK_NONE, 0 };

static bool at_root(const struct bench_call *k)
{
	return comm_rank(k->comm) == k->root;
}

static struct bench_source everybody(const struct bench_call *k, int block)
{
	(void)k;
	(void)block;
	return (struct bench_source){ RANK_ALL, 0 };
}

static struct bench_source everybody_at_root(const struct bench_call *k, int block)
{
	return at_root(k) ? everybody(k, block) : nobody;
}

static struct bench_source everybodys_share(const struct bench_call *k, int block)
{
	(void)block;
	return (struct bench_source){ RANK_ALL, (size_t)comm_rank(k->comm) * k->count };
}

static struct bench_source the_root(const struct bench_call *k, int block)
{
	(void)block;
	return (struct bench_source){ k->root, 0 };
}

static struct bench_source the_roots_share(const struct bench_call *k, int block)
{
	(void)block;
	return (struct bench_source){ k->root, (size_t)comm_rank(k->comm) * k->count };
}

static struct bench_source one_each(const struct bench_call *k, int block)
{
	(void)k;
	return (struct bench_source){ block, 0 };
}

static struct bench_source one_each_at_root(const struct bench_call *k, int block)
{
	return at_root(k) ? one_each(k, block) : nobody;
}

static struct bench_source a_share_of_each(const struct bench_call *k, int block)
{
	return (struct bench_source){ block, (size_t)comm_rank(k->comm) * k->count };
}

static struct bench_source the_rank_before(const struct bench_call *k, int block)
{
	int n = comm_size(k->comm);
	(void)block;
	return (struct bench_source){ (comm_rank(k->comm) + n - 1) % n, 0 };
}

static struct bench_source the_other_of_two(const struct bench_call *k, int block)
{
	int rank = comm_rank(k->comm);
	(void)block;
	return rank < 2 ? (struct bench_source){ 1 - rank, 0 } : nobody;
}

static struct bench_source from_nobody(const struct bench_call *k, int block)
{
	(void)k;
	(void)block;
	return nobody;
}

/* --- The tables --- */

#define ONE  SHAPE_ONE
#define ALL  SHAPE_ALL
#define NONE SHAPE_NONE

/* clang-format off */
const struct bench_op bench_ops[] = {
	/* name, in, out, reduces, rooted, apart, in_place, bus, share, ranks, messages, source,
	 * both forms */
	{ "all_reduce", ONE, ONE, true, false, true, true, 2, true, 1, 1, everybody, call_all_reduce, start_all_reduce },
	{ "reduce", ONE, ONE, true, true, true, true, 1, false, 1, 1, everybody_at_root, call_reduce, start_reduce },
	{ "broadcast", ONE, ONE, false, true, false, true, 1, false, 1, 1, the_root, call_broadcast, start_broadcast },
	{ "all_gather", ONE, ALL, false, false, true, true, 1, true, 1, 1, one_each, call_all_gather, start_all_gather },
	{ "reduce_scatter", ALL, ONE, true, false, true, true, 1, true, 1, 1, everybodys_share, call_reduce_scatter, start_reduce_scatter },
	{ "all_to_all", ALL, ALL, false, false, true, false, 1, true, 1, 1, a_share_of_each, call_all_to_all, start_all_to_all },
	{ "gather", ONE, ALL, false, true, true, true, 1, true, 1, 1, one_each_at_root, call_gather, start_gather },
	{ "scatter", ALL, ONE, false, true, true, true, 1, true, 1, 1, the_roots_share, call_scatter, start_scatter },
	{ "send_recv", ONE, ONE, false, false, true, false, 1, false, 1, 1, the_rank_before, call_send_recv, start_send_recv },
	{ "ping_pong", ONE, ONE, false, false, true, false, 1, false, 2, 2, the_other_of_two, call_ping_pong, start_ping_pong },
	{ "barrier", NONE, NONE, false, false, true, false, 0, false, 1, 1, from_nobody, call_barrier, start_barrier },
};
/* clang-format on */

const int bench_n_ops = sizeof bench_ops / sizeof *bench_ops;

static const char *const types[] = { "float", "double", "bfloat16", "half",
				     "int32", "int64",  "uint8" };
static const char *const redops[] = { "sum", "avg", "max", "min", "prod" };

static int find_word(const char *const *words, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(words[i], word))
			return (int)i;
	return -1;
}

int bench_type(const char *word)
{
	return find_word(types, sizeof types / sizeof *types, word);
}

int bench_redop(const char *word)
{
	return find_word(redops, sizeof redops / sizeof *redops, word);
}

const char *bench_type_word(enum comm_type type)
{
	return types[type];
}

const char *bench_redop_word(enum comm_op op)
{
	return redops[op];
}

double bench_bus_factor(const struct bench_op *op, int ranks)
{
	return op->bus * (op->bus_share ? (double)(ranks - 1) / ranks : 1);
}
