#include "libcomm/algorithms/algorithms.h"
#include "libcomm/algorithms/node_ranks.h"
#include "libcomm/device/device_group.h"
#include "libcomm/flight/recorder.h"
#include "libcomm/tcp/root_cause.h"

#include <stdio.h>
#include <string.h>

enum { ANY = GROUP_SHM | GROUP_TCP | GROUP_HYBRID, KIB = 1024 };

static const size_t ALL = (size_t)-1;

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

/* In an all-reduce over messages the busiest host, with l of n ranks, sends and receives 2l(n -
 * l)/n Vβ. The hybrid algorithm needs Vβ up and then Vβ down, which overlap only if there are
 * several rounds. So for vectors of one round, messages, which need no steps, are no worse if l(n -
 * l) < n: a host of one rank beside one other host. */
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

struct algorithm {
	enum op_kind kind;
	algorithm_fn *run;
	enum algorithm_name name;
	unsigned backends;
	bool (*fits)(const struct comm *c, size_t bytes);
	int ranks;
	size_t bytes;
};

#define ALGORITHM_ROW(kind, run, ...) { kind, run, __VA_ARGS__ },
static const struct algorithm table[] = { ALGORITHMS(ALGORITHM_ROW) };
#undef ALGORITHM_ROW

enum { ROWS = sizeof table / sizeof *table };

static const char *const names[] = {
#define ALG_WORD(name, word) word,
	ALGORITHM_NAMES(ALG_WORD)
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

/* Shared buffers are worth reading in place even for small sizes. Whether this operation's buffers
 * are shared is known too late for the choice, but the answer for the last operation of the kind is
 * the same on all ranks. */
static bool prefers_readers(const struct comm *c, enum op_kind kind, size_t bytes)
{
	return (c->in_shared_buffers >> kind & 1) && bytes > (size_t)(c->size - 1) * 2 * KIB;
}

/* NULL: the table has no row for this group. */
static const struct algorithm *find_algorithm(const struct comm *c, enum op_kind kind, size_t bytes,
					      int wanted)
{
	for (int i = 0; wanted != ALG_BY_TABLE && i < ROWS; i++)
		if ((int)table[i].name == wanted && can_run(&table[i], c, kind, bytes))
			return &table[i];
	for (int i = 0; i < ROWS; i++)
		if (can_run(&table[i], c, kind, bytes) && is_within_limits(&table[i], c, bytes))
			return &table[i];
	return NULL;
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

/* A group of one rank: the output is the input. */
static void run_single_rank(const struct op *op)
{
	size_t count = op->counts ? op->counts[0] : op->count;
	size_t bytes = count * comm_type_size(op->type);
	if (bytes && op->in && op->out && op->in != op->out)
		memmove(op->out, op->in, bytes);
}

int comm_nth_peer(const struct comm *c, int i)
{
	return (c->rank + i) % c->size;
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

/* The world ended before this operation: reports the first error and the operation that it
 * prevented. */
static int report_not_begun(struct comm *c, const struct op *op, struct err *e)
{
	comm_world_error(c->world, e);
	return err_prefix(e, "%s number %u of group %s not begun", comm_op_word(op->kind),
			  1 + (op->kind == OP_P2P ? c->messages : c->seq), c->name);
}

static int run_algorithm(struct comm *c, const struct op *op, struct err *e)
{
	struct err why; /* empty, without zeroing 1000 bytes of text for each short message */
	why.code = ERR_NONE;
	why.text[0] = '\0';
	if (world_check_failed(c->world))
		return report_not_begun(c, op, e);
	uint32_t number = op->kind == OP_P2P ? ++c->messages : ++c->seq;
	c->sign = comm_op_sign(op, number, c->size);
	c->wait.deadline = c->wait.grace = 0;
	c->wait.accused = -1;
	const struct algorithm *a = choose_algorithm(c, op, c->sign.bytes);
	comm_recorder_begin(c->recorder, op, &c->sign, a ? names[a->name] : NULL);
	int rc = a ? a->run(c, op, &why)
		   : err_set(&why, ERR_INTERNAL,
			     "no algorithm fits this group; add a row to "
			     "libcomm/operations.h");
	comm_recorder_end(c->recorder, rc < 0);
	if (rc == 0) {
		atomic_store_explicit(&c->wait.waits_for, -1, memory_order_relaxed);
		return 0;
	}
	comm_root_cause_find(c, &why);
	/* When the world fails, its sockets are shut down. What the operation saw may only be a
	 * consequence. */
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

int comm_group_run(struct comm *c, const struct op *ops, int n, struct err *e)
{
	if (c->device_group)
		return comm_device_group_run(c, ops, n, e);
	for (int i = 0; i < n; i++)
		if (comm_group_run_host(c, &ops[i], e))
			return -1;
	return 0;
}
