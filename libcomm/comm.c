/* The API: each call becomes a struct op (op.h). operations.h has the recipe to add a
 * collective. */
#include "libcomm/async.h"
#include "libcomm/device/graph.h"

#include <stdlib.h>
#include <string.h>

static const char *const integrities[COMM_INTEGRITY_COUNT] = { "none", "checksum", "seal" };

const char *comm_integrity_name(enum comm_integrity integrity)
{
	return integrities[integrity];
}

int comm_integrity_parse(const char *word)
{
	for (int i = 0; i < COMM_INTEGRITY_COUNT; i++)
		if (!strcmp(word, integrities[i]))
			return i;
	return -1;
}

/* Runs an operation now. */
static int run_blocking(struct comm *c, struct op op, struct err *e)
{
	if (c->open_requests)
		return err_set(e, ERR_USAGE,
			       "%s on group %s: %d asynchronous operations of the group are open; "
			       "wait for them first",
			       comm_op_word(op.kind), c->name, c->open_requests);
	if (comm_op_check(&op, c->rank, c->size, e))
		return err_prefix(e, "%s on group %s", comm_op_word(op.kind), c->name);
	int rc = comm_graph_call(c, &op, e);
	return rc > 0 ? comm_group_run(c, &op, 1, e) : rc;
}

static int start_requests(struct comm *c, struct op *ops, int n, struct comm_request **req,
			  struct err *e)
{
	int rc = 0;
	for (int i = 0; i < n; i++)
		if (comm_op_check(&ops[i], c->rank, c->size, e))
			return err_prefix(e, "%s on group %s", comm_op_word(ops[i].kind), c->name);
	for (int i = 0; i < n && rc >= 0; i++)
		rc = comm_graph_call(c, &ops[i], e);
	if (rc <= 0) {
		*req = NULL;
		return rc;
	}
	if (c->device_group && comm_device_group_mark(c, &ops[0], e))
		return -1;
	return comm_async_start(c, ops, n, req, e);
}

static int start_request(struct comm *c, struct op op, struct comm_request **req, struct err *e)
{
	return start_requests(c, &op, 1, req, e);
}

/* Starts the operation once for each part. */
static int start_parts(struct comm *c, struct op op, const struct comm_part *parts, int n,
		       struct comm_request **req, struct err *e)
{
	struct op *ops = malloc((size_t)(n > 0 ? n : 1) * sizeof *ops);
	*req = NULL;
	if (!ops)
		return err_set(e, ERR_NOMEM, "%s on group %s: no memory for %d parts",
			       comm_op_word(op.kind), c->name, n);
	for (int i = 0; i < n; i++) {
		op.in = parts[i].in;
		op.out = parts[i].out;
		op.count = parts[i].count;
		ops[i] = op;
	}
	int rc = start_requests(c, ops, n, req, e);
	free(ops);
	return rc;
}

int comm_rank(const struct comm *c)
{
	return c->rank;
}

int comm_size(const struct comm *c)
{
	return c->size;
}

const char *comm_name(const struct comm *c)
{
	return c->name;
}

const char *comm_backend(const struct comm *c)
{
	if (c->device_group)
		return comm_device_group_backend(c);
	return c->backend == GROUP_SHM ? "shm" : c->backend == GROUP_TCP ? "tcp" : "hybrid";
}

uint64_t comm_bytes(const struct comm *c)
{
	return atomic_load_explicit(&c->sent, memory_order_relaxed);
}

void comm_abort(struct comm *c, const char *reason)
{
	struct err why = ERR_INIT;
	err_set(&why, ERR_ABORTED, "%s", reason ? reason : "aborted");
	comm_world_fail(c->world, &why);
}

/* --- Each operation, in its two forms --- */

#define P(...) __VA_ARGS__

/* name, its parameters, and the struct op that they fill */
#define OPERATION(name, parameters, ...) \
	int comm_##name(parameters, struct err *e) \
	{ \
		return run_blocking(c, (struct op){ __VA_ARGS__ }, e); \
	} \
	int comm_##name##_start(parameters, struct comm_request **req, struct err *e) \
	{ \
		return start_request(c, (struct op){ __VA_ARGS__ }, req, e); \
	}

OPERATION(all_reduce,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
	    enum comm_op op),
	  .kind = OP_ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .redop = op)

OPERATION(reduce,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
	    enum comm_op op, int root),
	  .kind = OP_REDUCE, .in = in, .out = out, .count = count, .type = type, .redop = op,
	  .root = root)

OPERATION(broadcast, P(struct comm *c, void *data, size_t count, enum comm_type type, int root),
	  .kind = OP_BROADCAST, .in = data, .out = data, .count = count, .type = type, .root = root)

OPERATION(all_gather,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type),
	  .kind = OP_ALL_GATHER, .in = in, .out = out, .count = count, .type = type)

OPERATION(all_gatherv,
	  P(struct comm *c, const void *in, void *out, const size_t *counts, enum comm_type type),
	  .kind = OP_ALL_GATHER, .in = in, .out = out, .by_rank = true, .counts = counts,
	  .type = type)

OPERATION(reduce_scatter,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
	    enum comm_op op),
	  .kind = OP_REDUCE_SCATTER, .in = in, .out = out, .count = count, .type = type,
	  .redop = op)

OPERATION(reduce_scatterv,
	  P(struct comm *c, const void *in, void *out, const size_t *counts, enum comm_type type,
	    enum comm_op op),
	  .kind = OP_REDUCE_SCATTER, .in = in, .out = out, .by_rank = true, .counts = counts,
	  .type = type, .redop = op)

OPERATION(all_to_all,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type),
	  .kind = OP_ALL_TO_ALL, .in = in, .out = out, .count = count, .type = type)

OPERATION(all_to_allv,
	  P(struct comm *c, const void *in, const size_t *in_counts, void *out,
	    const size_t *out_counts, enum comm_type type),
	  .kind = OP_ALL_TO_ALL, .in = in, .out = out, .by_rank = true, .counts = in_counts,
	  .out_counts = out_counts, .type = type)

OPERATION(gather,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type, int root),
	  .kind = OP_GATHER, .in = in, .out = out, .count = count, .type = type, .root = root)

OPERATION(gatherv,
	  P(struct comm *c, const void *in, void *out, const size_t *counts, enum comm_type type,
	    int root),
	  .kind = OP_GATHER, .in = in, .out = out, .by_rank = true, .counts = counts, .type = type,
	  .root = root)

OPERATION(scatter,
	  P(struct comm *c, const void *in, void *out, size_t count, enum comm_type type, int root),
	  .kind = OP_SCATTER, .in = in, .out = out, .count = count, .type = type, .root = root)

OPERATION(scatterv,
	  P(struct comm *c, const void *in, void *out, const size_t *counts, enum comm_type type,
	    int root),
	  .kind = OP_SCATTER, .in = in, .out = out, .by_rank = true, .counts = counts, .type = type,
	  .root = root)

OPERATION(barrier, P(struct comm *c), .kind = OP_BARRIER)

OPERATION(batch_send_recv, P(struct comm *c, const struct comm_p2p *ops, int n), .kind = OP_P2P,
	  .p2p = ops, .n = n)

bool comm_coalesces(const struct comm *c)
{
	return comm_graph_fits(c) && c;
}

int comm_all_reduce_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, enum comm_op op, struct comm_request **req,
				    struct err *e)
{
	struct op each = { .kind = OP_ALL_REDUCE, .type = type, .redop = op };
	return start_parts(c, each, parts, n, req, e);
}

int comm_reduce_scatter_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
					enum comm_type type, enum comm_op op,
					struct comm_request **req, struct err *e)
{
	struct op each = { .kind = OP_REDUCE_SCATTER, .type = type, .redop = op };
	return start_parts(c, each, parts, n, req, e);
}

int comm_all_gather_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, struct comm_request **req, struct err *e)
{
	struct op each = { .kind = OP_ALL_GATHER, .type = type };
	return start_parts(c, each, parts, n, req, e);
}

int comm_send(struct comm *c, const void *data, size_t count, enum comm_type type, int to,
	      struct err *e)
{
	struct comm_p2p p = {
		.send = true, .source = data, .count = count, .type = type, .peer = to
	};
	return comm_batch_send_recv(c, &p, 1, e);
}

int comm_recv(struct comm *c, void *data, size_t count, enum comm_type type, int from,
	      struct err *e)
{
	struct comm_p2p p = {
		.send = false, .data = data, .count = count, .type = type, .peer = from
	};
	return comm_batch_send_recv(c, &p, 1, e);
}
