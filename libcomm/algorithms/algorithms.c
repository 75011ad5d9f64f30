#include "libcomm/algorithms/algorithms.h"
#include "libcomm/algorithms/node_ranks.h"
#include "libcomm/device/device_group.h"
#include "libcomm/flight/recorder.h"
#include "libcomm/tcp/root_cause.h"

#include <stdio.h>
#include <string.h>

enum { ANY = GROUP_SHM | GROUP_TCP | GROUP_HYBRID, KIB = 1024 };

static const size_t ALL = (size_t)-1;

struct algorithm {
	enum op_kind kind;
	enum algorithm_name name;
	unsigned backends;                                /* what it needs, */
	bool (*fits)(const struct comm *c, size_t bytes); /* beyond that; NULL: nothing */
	/* and up to where it is chosen; 0: any number */
	int ranks;
	size_t bytes; /* of the whole vector */
	algorithm_fn *run;
};

static bool slots_fit(const struct comm *c, size_t bytes)
{
	(void)bytes;
	return c->size <= SLOTS_RANKS;
}

static bool one_slot_fits(const struct comm *c, size_t bytes)
{
	return c->size <= SLOTS_RANKS && bytes <= SEG_SLOT;
}

static bool hybrid_fits(const struct comm *c, size_t bytes)
{
	(void)bytes;
	return comm_node_ranks_fit(c);
}

/* Of an all_reduce over messages the busiest host, l of n ranks, sends and receives 2l(n - l)/n Vβ.
 * By crews it is Vβ up and then Vβ down, which overlap only once there are several rounds. So in
 * vectors of one round messages, which need no steps, are no worse when l(n - l) < n: a host of one
 * rank beside one other. */
static bool flat_costs_less(const struct comm *c, size_t bytes)
{
	(void)bytes;
	long n = c->size, most = 0;
	for (int h = 0; h < c->hosts->n; h++) {
		long l = hosts_size(c->hosts, h);
		most = l * (n - l) > most ? l * (n - l) : most;
	}
	return most < n;
}

static bool flat_halving_costs_less(const struct comm *c, size_t bytes)
{
	return comm_halving_fits(c, bytes) && flat_costs_less(c, bytes);
}

#define SLOTS      ALG_SLOTS, GROUP_SHM, slots_fit
#define READERS    ALG_READERS, GROUP_SHM, slots_fit
#define BY_HYBRID  ALG_HYBRID, GROUP_HYBRID, hybrid_fits, 0, ALL
#define BY_LEADERS ALG_LEADERS, GROUP_HYBRID, comm_leaders_fit, 0

/*
 * Over messages a way costs α for each message on its longest chain and β for each byte that a rank
 * sends, V being the vector: all_reduce by doubling log n (α + Vβ), by halving 2 log n α + 2Vβ, by
 * tree 2 log n (α + Vβ), direct α + (n - 1)Vβ, by shares 2α + 2Vβ but 2(n - 1) messages, whose own
 * cost decides where cores are few. Over H hosts leaders cost α + (H - 1)Vβ, or the tree's once
 * there are more than a few, and crews 2α + 2(H - 1)/H Vβ, the least that is possible. The limits
 * were measured with 4, 8 and 16 ranks over TCP on the loopback of two cores, which is no network:
 * α is a wake-up there and β a copy.
 */
/* clang-format off */
static const struct algorithm table[] = {
	{ OP_P2P, ALG_DIRECT, ANY, NULL, 0, ALL, comm_message_p2p },
	{ OP_ALL_REDUCE, ALG_ONCE, GROUP_SHM, one_slot_fits, 2, 128 * KIB, comm_slots_all_reduce_once },
	{ OP_ALL_REDUCE, ALG_ONCE, GROUP_SHM, one_slot_fits, 0, 4 * KIB, comm_slots_all_reduce_once },
	{ OP_ALL_REDUCE, SLOTS, 0, 128 * KIB, comm_slots_reduce },
	{ OP_ALL_REDUCE, READERS, 3, ALL, comm_readers_all_reduce },
	{ OP_ALL_REDUCE, SLOTS, 0, ALL, comm_slots_reduce },
	{ OP_ALL_REDUCE, BY_LEADERS, 64 * KIB, comm_leaders_reduce },
	{ OP_ALL_REDUCE, ALG_HALVING, GROUP_HYBRID, flat_halving_costs_less, 0, 256 * KIB, comm_halving_all_reduce },
	{ OP_ALL_REDUCE, ALG_SHARES, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB, comm_message_all_reduce_shares },
	{ OP_ALL_REDUCE, BY_HYBRID, comm_hybrid_flow },
	{ OP_ALL_REDUCE, ALG_DOUBLING, ANY, comm_halving_fits, 0, 16 * KIB, comm_doubling_all_reduce },
	{ OP_ALL_REDUCE, ALG_HALVING, ANY, comm_halving_fits, 0, 1024 * KIB, comm_halving_all_reduce },
	{ OP_ALL_REDUCE, ALG_DIRECT, ANY, NULL, 4, 16 * KIB, comm_message_all_reduce_direct },
	{ OP_ALL_REDUCE, ALG_TREE, ANY, NULL, 0, 64 * KIB, comm_message_all_reduce_tree },
	{ OP_ALL_REDUCE, ALG_SHARES, ANY, NULL, 0, ALL, comm_message_all_reduce_shares },
	{ OP_REDUCE, SLOTS, 0, 128 * KIB, comm_slots_reduce },
	{ OP_REDUCE, READERS, 3, ALL, comm_readers_reduce },
	{ OP_REDUCE, SLOTS, 0, ALL, comm_slots_reduce },
	{ OP_REDUCE, BY_LEADERS, 64 * KIB, comm_leaders_reduce },
	{ OP_REDUCE, ALG_SHARES, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB, comm_message_reduce_shares },
	{ OP_REDUCE, BY_HYBRID, comm_hybrid_flow },
	{ OP_REDUCE, ALG_TREE, ANY, NULL, 0, 16 * KIB, comm_message_reduce_tree },
	{ OP_REDUCE, ALG_SHARES, ANY, NULL, 0, ALL, comm_message_reduce_shares },
	{ OP_REDUCE_SCATTER, SLOTS, 0, 16 * KIB, comm_slots_reduce_scatter },
	{ OP_REDUCE_SCATTER, READERS, 2, ALL, comm_readers_reduce_scatter },
	{ OP_REDUCE_SCATTER, SLOTS, 0, ALL, comm_slots_reduce_scatter },
	{ OP_REDUCE_SCATTER, ALG_DIRECT, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB, comm_message_reduce_scatter },
	{ OP_REDUCE_SCATTER, ALG_HYBRID, GROUP_HYBRID, comm_hybrid_scatter_fits, 0, ALL, comm_hybrid_reduce_scatter },
	{ OP_REDUCE_SCATTER, ALG_DIRECT, ANY, NULL, 0, ALL, comm_message_reduce_scatter },
	{ OP_BROADCAST, SLOTS, 0, ALL, comm_slots_broadcast },
	{ OP_BROADCAST, READERS, 0, ALL, comm_readers_broadcast },
	{ OP_BROADCAST, BY_LEADERS, 64 * KIB, comm_leaders_broadcast },
	{ OP_BROADCAST, BY_HYBRID, comm_hybrid_flow },
	{ OP_BROADCAST, ALG_TREE, ANY, NULL, 2, ALL, comm_message_broadcast_tree },
	{ OP_BROADCAST, ALG_TREE, ANY, NULL, 0, 64 * KIB, comm_message_broadcast_tree },
	{ OP_BROADCAST, ALG_SHARES, ANY, NULL, 0, 4096 * KIB, comm_message_broadcast_shares },
	{ OP_BROADCAST, ALG_RING, ANY, NULL, 16, ALL, comm_ring_broadcast },
	{ OP_BROADCAST, ALG_SHARES, ANY, NULL, 0, ALL, comm_message_broadcast_shares },
	{ OP_ALL_GATHER, SLOTS, 0, 8 * KIB, comm_slots_all_gather },
	{ OP_ALL_GATHER, READERS, 2, ALL, comm_readers_all_gather },
	{ OP_ALL_GATHER, SLOTS, 0, 256 * KIB, comm_slots_all_gather },
	{ OP_ALL_GATHER, READERS, 4, ALL, comm_readers_all_gather },
	{ OP_ALL_GATHER, SLOTS, 0, ALL, comm_slots_all_gather },
	{ OP_ALL_GATHER, ALG_HYBRID, GROUP_HYBRID, comm_hybrid_gather_fits, 0, ALL, comm_hybrid_all_gather },
	{ OP_ALL_GATHER, ALG_DOUBLING, ANY, comm_halving_fits, 0, 256 * KIB, comm_doubling_all_gather },
	{ OP_ALL_GATHER, ALG_DIRECT, ANY, NULL, 64, ALL, comm_message_all_gather },
	{ OP_ALL_GATHER, ALG_DIRECT, ANY, NULL, 0, 1024 * KIB, comm_message_all_gather },
	{ OP_ALL_GATHER, ALG_RING, ANY, NULL, 0, ALL, comm_ring_all_gather },
	{ OP_ALL_TO_ALL, READERS, 0, ALL, comm_readers_all_to_all },
	{ OP_ALL_TO_ALL, SLOTS, 0, ALL, comm_slots_all_to_all },
	{ OP_ALL_TO_ALL, ALG_DIRECT, ANY, NULL, 32, ALL, comm_message_all_to_all },
	{ OP_ALL_TO_ALL, ALG_PAIRWISE, ANY, NULL, 0, ALL, comm_pairwise_all_to_all },
	{ OP_GATHER, SLOTS, 0, 16 * KIB, comm_slots_gather },
	{ OP_GATHER, READERS, 2, ALL, comm_readers_gather },
	{ OP_GATHER, SLOTS, 0, 512 * KIB, comm_slots_gather },
	{ OP_GATHER, READERS, 0, ALL, comm_readers_gather },
	{ OP_GATHER, ALG_DIRECT, ANY, NULL, 0, ALL, comm_message_gather },
	{ OP_SCATTER, SLOTS, 0, 16 * KIB, comm_slots_scatter },
	{ OP_SCATTER, READERS, 2, ALL, comm_readers_scatter },
	{ OP_SCATTER, SLOTS, 0, 128 * KIB, comm_slots_scatter },
	{ OP_SCATTER, READERS, 0, ALL, comm_readers_scatter },
	{ OP_SCATTER, ALG_DIRECT, ANY, NULL, 0, ALL, comm_message_scatter },
	{ OP_BARRIER, SLOTS, 0, ALL, comm_slots_barrier },
	{ OP_BARRIER, BY_LEADERS, ALL, comm_leaders_barrier },
	{ OP_BARRIER, ALG_TREE, ANY, NULL, 0, ALL, comm_message_barrier },
};
/* clang-format on */

enum { ROWS = sizeof table / sizeof *table };

static const char *const names[] = {
#define ALG_WORD(name, word) word,
	ALGORITHMS(ALG_WORD)
#undef ALG_WORD
		NULL,
};

const char *const *comm_algorithms(void)
{
	return names;
}

int comm_algorithm_parse(const char *word, int *out, struct err *e)
{
	*out = ALG_BY_TABLE;
	if (!word || !*word)
		return 0;
	for (int i = 0; i < ALG_COUNT; i++)
		if (!strcmp(names[i], word))
			*out = i;
	if (*out != ALG_BY_TABLE)
		return 0;
	char list[400] = "";
	for (int i = 0; i < ALG_COUNT; i++) {
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
	}
	return err_set(e, ERR_USAGE, "algorithm \"%s\" is none of %s", word, list);
}

static bool can_run(const struct algorithm *a, const struct comm *c, enum op_kind kind,
		    size_t bytes)
{
	return a->kind == kind && (a->backends & c->backend) && (!a->fits || a->fits(c, bytes));
}

static bool is_within_limits(const struct algorithm *a, const struct comm *c, size_t bytes)
{
	return (!a->ranks || c->size <= a->ranks) && bytes <= a->bytes;
}

/* Buffers in windows are worth reading in place from few bytes on. Whether they are in windows is
 * heard too late for the choice, but those of the last operation of the kind were the same on all
 * ranks. */
static bool prefers_readers(const struct comm *c, enum op_kind kind, size_t bytes)
{
	return (c->in_shared_buffers >> kind & 1) && bytes > (size_t)(c->size - 1) * 2 * KIB;
}

static const struct algorithm *find_algorithm(const struct comm *c, enum op_kind kind, size_t bytes,
					      int wanted)
{
	for (int i = 0; wanted != ALG_BY_TABLE && i < ROWS; i++)
		if ((int)table[i].name == wanted && can_run(&table[i], c, kind, bytes))
			return &table[i];
	int i = 0; /* the last row of each kind fits always */
	while (!can_run(&table[i], c, kind, bytes) || !is_within_limits(&table[i], c, bytes))
		i++;
	return &table[i];
}

static const struct algorithm *choose_algorithm(const struct comm *c, const struct op *op,
						size_t bytes)
{
	int wanted = c->world->algorithm;
	if (wanted == ALG_BY_TABLE && prefers_readers(c, op->kind, bytes))
		wanted = ALG_READERS;
	return find_algorithm(c, op->kind, bytes, wanted);
}

const char *comm_all_reduce_algorithm(const struct comm *c, size_t bytes)
{
	return names[find_algorithm(c, OP_ALL_REDUCE, bytes, c->world->algorithm)->name];
}

/* A group of one: what comes in goes out. */
static void run_single_rank(const struct op *op)
{
	size_t count = op->counts ? op->counts[0] : op->count;
	size_t bytes = count * comm_type_size(op->type);
	if (bytes && op->in && op->out && op->in != op->out)
		memmove(op->out, op->in, bytes);
}

void comm_split_evenly(const struct comm *c, size_t count, size_t element, size_t *off)
{
	size_t line = 64 / element; /* whole cache lines */
	size_t each = (count + (size_t)c->size - 1) / (size_t)c->size;
	each = (each + line - 1) / line * line;
	for (int r = 0; r <= c->size; r++) {
		size_t at = each * (size_t)r;
		off[r] = (at < count ? at : count) * element;
	}
}

/* The world has ended before this operation: the first error, and what was not begun. */
static int report_not_begun(struct comm *c, const struct op *op, struct err *e)
{
	comm_world_error(c->world, e);
	return err_prefix(e, "%s number %u of group %s not begun", comm_op_word(op->kind),
			  1 + (op->kind == OP_P2P ? c->messages : c->seq), c->name);
}

static int run_algorithm(struct comm *c, const struct op *op, struct err *e)
{
	struct err why; /* empty, without zeroing a thousand bytes of text for each short message */
	why.code = ERR_NONE;
	why.text[0] = '\0';
	if (world_check_failed(c->world))
		return report_not_begun(c, op, e);
	uint32_t number = op->kind == OP_P2P ? ++c->messages : ++c->seq;
	c->sign = comm_op_sign(op, number, c->size);
	c->deadline = c->grace = 0;
	c->accused = -1;
	const struct algorithm *a = choose_algorithm(c, op, c->sign.bytes);
	comm_recorder_begin(c->recorder, op, &c->sign, names[a->name]);
	int rc = a->run(c, op, &why);
	comm_recorder_end(c->recorder, rc < 0);
	if (rc == 0) {
		atomic_store_explicit(&c->waits_for, -1, memory_order_relaxed);
		return 0;
	}
	comm_root_cause_find(c, &why);
	/* Once the world has failed, its sockets are shut: what the operation saw is only the
	 * echo. */
	if (world_failed(c->world))
		comm_world_error(c->world, &why);
	err_prefix(&why, "%s number %u of group %s (rank %d of %d)", comm_op_word(op->kind), number,
		   c->name, c->rank, c->size);
	comm_world_fail(c->world, &why);
	return comm_world_report_error(c->world, &why, e);
}

int comm_group_run_host(struct comm *c, const struct op *op, struct err *e)
{
	if (c->size > 1 || op->kind == OP_P2P)
		return run_algorithm(c, op, e);
	if (world_check_failed(c->world))
		return report_not_begun(c, op, e);
	run_single_rank(op);
	return 0;
}

int comm_group_run(struct comm *c, const struct op *op, struct err *e)
{
	return c->device_group ? comm_device_group_run(c, op, e) : comm_group_run_host(c, op, e);
}
