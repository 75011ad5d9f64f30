#include "libcomm/algorithms.h"

#include <string.h>

enum { ANY = GROUP_SHM | GROUP_TCP | GROUP_HYBRID, KIB = 1024 };

static const size_t ALL = (size_t)-1;

struct algorithm {
	enum op_kind kind;
	unsigned backends;
	int max_ranks;      /* 0: any number */
	size_t max_bytes;   /* of the whole vector */
	algorithm_fn *run;
};

#define SLOTS GROUP_SHM, SLOTS_RANKS

static const struct algorithm table[] = {
	{ OP_ALL_REDUCE, SLOTS, 4 * KIB, slots_all_reduce_once },
	{ OP_ALL_REDUCE, SLOTS, ALL, slots_reduce },
	{ OP_ALL_REDUCE, ANY, 4, 16 * KIB, combine_all_reduce_direct },
	{ OP_ALL_REDUCE, ANY, 0, 16 * KIB, combine_all_reduce_tree },
	{ OP_ALL_REDUCE, ANY, 0, ALL, combine_all_reduce_shares },
	{ OP_REDUCE, SLOTS, ALL, slots_reduce },
	{ OP_REDUCE, ANY, 0, 16 * KIB, combine_reduce_tree },
	{ OP_REDUCE, ANY, 0, ALL, combine_reduce_shares },
	{ OP_REDUCE_SCATTER, SLOTS, ALL, slots_reduce_scatter },
	{ OP_REDUCE_SCATTER, ANY, 0, ALL, combine_reduce_scatter },
	{ OP_BROADCAST, SLOTS, ALL, slots_broadcast },
	{ OP_BROADCAST, ANY, 2, ALL, spread_broadcast_tree },
	{ OP_BROADCAST, ANY, 0, 64 * KIB, spread_broadcast_tree },
	{ OP_BROADCAST, ANY, 0, ALL, spread_broadcast_shares },
	{ OP_ALL_GATHER, SLOTS, ALL, slots_all_gather },
	{ OP_ALL_GATHER, ANY, 0, ALL, spread_all_gather },
	{ OP_ALL_TO_ALL, SLOTS, ALL, slots_all_to_all },
	{ OP_ALL_TO_ALL, ANY, 0, ALL, spread_all_to_all },
	{ OP_GATHER, SLOTS, ALL, slots_gather },
	{ OP_GATHER, ANY, 0, ALL, spread_gather },
	{ OP_SCATTER, SLOTS, ALL, slots_scatter },
	{ OP_SCATTER, ANY, 0, ALL, spread_scatter },
	{ OP_BARRIER, SLOTS, ALL, slots_barrier },
	{ OP_BARRIER, ANY, 0, ALL, spread_barrier },
	{ OP_P2P, ANY, 0, ALL, spread_p2p },
};

static algorithm_fn *choose(const struct comm *c, const struct op *op, size_t bytes)
{
	const struct algorithm *a = table;
	while (a->kind != op->kind || !(a->backends & c->backend) || (a->max_ranks && c->size > a->max_ranks) ||
	       bytes > a->max_bytes)
		a++; /* the last row of each kind fits always */
	return a->run;
}

/* A group of one: what comes in goes out. */
static void run_alone(const struct op *op)
{
	size_t count = op->counts ? op->counts[0] : op->count;
	size_t bytes = count * comm_type_size(op->type);
	if (bytes && op->in && op->out && op->in != op->out)
		memmove(op->out, op->in, bytes);
}

void even_shares(const struct comm *c, size_t count, size_t element, size_t *off)
{
	size_t line = 64 / element; /* whole cache lines */
	size_t each = (count + (size_t)c->size - 1) / (size_t)c->size;
	each = (each + line - 1) / line * line;
	for (int r = 0; r <= c->size; r++) {
		size_t at = each * (size_t)r;
		off[r] = (at < count ? at : count) * element;
	}
}

static int run_together(struct comm *c, const struct op *op, struct err *e)
{
	struct err why = ERR_INIT;
	if (world_failed(c->world))
		return world_error(c->world, e);
	uint32_t number = op->kind == OP_P2P ? ++c->messages : ++c->seq;
	struct op_signature sign = op_sign(op, number, c->size);
	c->deadline = 0;
	if (choose(c, op, sign.bytes)(c, op, &why) == 0)
		return 0;
	/* Once the world has failed, its sockets are shut: what the operation saw is only the echo. */
	if (world_failed(c->world))
		world_error(c->world, &why);
	err_prefix(&why, "%s number %u of group %s (rank %d of %d)", op_word(op->kind), number, c->name, c->rank,
		   c->size);
	world_fail(c->world, &why);
	return err_set(e, why.code, "%s", why.text);
}

int group_run(struct comm *c, const struct op *op, struct err *e)
{
	if (c->size > 1 || op->kind == OP_P2P)
		return run_together(c, op, e);
	if (world_failed(c->world))
		return world_error(c->world, e);
	run_alone(op);
	return 0;
}
