#include "agent/tools/bench_comm.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AFTER_NOTHING = 8 }; /* bytes */

struct loop {
	const struct bench_comm *b;
	struct comm *world;
	int ranks, rank;
	char *first, *second; /* two buffers of b->most bytes */
};

/* A trial is one size of one operation, in place or out of place. */
struct trial {
	const struct bench_op *op;
	struct bench_call call;
	struct bench_values values;
};

static size_t elements(const struct loop *l, enum bench_shape shape, size_t count)
{
	return shape == SHAPE_ALL ? count * (size_t)l->ranks : shape == SHAPE_ONE ? count : 0;
}

/* Sets the times on all ranks to those of the slowest rank. */
static int slowest(const struct loop *l, double *seconds, int n, struct err *e)
{
	return comm_all_reduce(l->world, seconds, seconds, (size_t)n, COMM_F64, COMM_MAX, e);
}

/* --- One trial --- */

static struct trial trial_of(const struct loop *l, const struct bench_row *row, bool in_place)
{
	const struct bench_comm *b = l->b;
	struct trial t = {
		.op = row->op,
		.call = { .comm = l->world,
			  .in = l->first,
			  .out = l->second,
			  .count = row->count,
			  .type = b->type,
			  .redop = b->redop,
			  .root = b->root,
			  .async = b->async },
		.values = { .type = b->type,
			    .redop = row->op->reduces ? b->redop : COMM_SUM,
			    .ranks = l->ranks },
	};
	size_t mine = (size_t)l->rank * row->count * comm_type_size(b->type);
	if (in_place) {
		t.call.in = l->second + (row->op->out == SHAPE_ALL ? mine : 0);
		t.call.out = l->second + (row->op->in == SHAPE_ALL ? mine : 0);
	}
	return t;
}

/* Fills the output with a pattern that is in no stream, and then the input with the rank's stream.
 */
static void prepare(const struct loop *l, const struct trial *t)
{
	size_t size = comm_type_size(l->b->type);
	const struct bench_call *k = &t->call;
	memset(k->out, 0xa5, elements(l, t->op->out, k->count) * size);
	bench_fill(&t->values, l->rank, 0, (void *)(uintptr_t)k->in,
		   elements(l, t->op->in, k->count));
}

static size_t count_wrong(const struct loop *l, const struct trial *t)
{
	const struct bench_call *k = &t->call;
	size_t size = comm_type_size(l->b->type), wrong = 0;
	int blocks = t->op->out == SHAPE_ALL ? l->ranks : t->op->out == SHAPE_ONE ? 1 : 0;
	for (int i = 0; i < blocks; i++) {
		struct bench_source from = t->op->source(k, i);
		if (from.rank != RANK_NONE)
			wrong += bench_wrong(&t->values, from.rank, from.offset,
					     (char *)k->out + (size_t)i * k->count * size,
					     k->count);
	}
	return wrong;
}

static int check_result(const struct loop *l, const struct trial *t, uint64_t *wrong, struct err *e)
{
	prepare(l, t);
	if (bench_run(t->op, &t->call, e))
		return -1;
	int64_t sum = (int64_t)count_wrong(l, t);
	if (comm_all_reduce(l->world, &sum, &sum, 1, COMM_I64, COMM_SUM, e))
		return -1;
	*wrong = (uint64_t)sum;
	return 0;
}

/* Sets the mean seconds of one of n operations on this rank. */
static int time_block(const struct loop *l, const struct trial *t, int n, double *seconds,
		      struct err *e)
{
	if (comm_barrier(l->world, e))
		return -1;
	double begun = clock_s();
	for (int i = 0; i < n; i++)
		if (bench_run(t->op, &t->call, e))
			return -1;
	*seconds = (clock_s() - begun) / n / t->op->messages;
	return 0;
}

static int fitting(double seconds, double one)
{
	double n = floor(seconds / fmax(one, 1e-9));
	return n < 1 ? 1 : n > BENCH_ITERS_MAX ? BENCH_ITERS_MAX : (int)n;
}

/* Warms up, and chooses how many iterations make a block. A first measurement runs one operation; a
 * second one takes a tenth of a block. */
static int choose_iters(const struct loop *l, const struct trial *t, int *iters, struct err *e)
{
	const struct bench_comm *b = l->b;
	double block = b->seconds / BENCH_BLOCKS, one;
	if (b->warmup && time_block(l, t, b->warmup, &one, e))
		return -1;
	*iters = b->iters;
	for (double part = block / 10; !b->iters && part <= block; part *= 10) {
		int n = *iters ? *iters : 1;
		if (time_block(l, t, n, &one, e) || slowest(l, &one, 1, e))
			return -1;
		*iters = fitting(part, one * t->op->messages);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int measure_place(const struct loop *l, const struct bench_row *row, bool in_place,
			 struct bench_time *out, struct err *e)
{
	struct trial t = trial_of(l, row, in_place);
	struct bench_time got = { .ran = true };
	double seconds[BENCH_BLOCKS];
	if (check_result(l, &t, &got.wrong, e) || choose_iters(l, &t, &got.iters, e))
		return -1;
	for (int i = 0; i < BENCH_BLOCKS; i++)
		if (time_block(l, &t, got.iters, &seconds[i], e))
			return -1;
	if (slowest(l, seconds, BENCH_BLOCKS, e))
		return -1;
	qsort(seconds, BENCH_BLOCKS, sizeof *seconds, by_value);
	got.best = seconds[0];
	got.median = seconds[BENCH_BLOCKS / 2];
	*out = got;
	return 0;
}

/* --- All trials --- */

static int one_size(const struct loop *l, struct bench_row *row, struct err *e)
{
	if (l->b->apart && row->op->apart && measure_place(l, row, false, &row->apart, e))
		return -1;
	if (l->b->in_place && row->op->in_place && measure_place(l, row, true, &row->in_place, e))
		return -1;
	return 0;
}

static struct bench_row row_of(const struct loop *l, const struct bench_op *op, size_t bytes)
{
	size_t size = comm_type_size(l->b->type),
	       parts = op->in == SHAPE_ALL || op->out == SHAPE_ALL ? (size_t)l->ranks : 1;
	struct bench_row row = { .op = op, .root = op->rooted ? l->b->root : -1 };
	if (op->in != SHAPE_NONE) {
		row.count = bytes / size / parts;
		row.bytes = row.count * size * parts;
	}
	return row;
}

static int all_sizes(const struct loop *l, const struct bench_op *op,
		     void (*report)(void *, const struct bench_row *), void *arg, struct err *e)
{
	size_t before = SIZE_MAX;
	for (double bytes = (double)l->b->least; bytes <= (double)l->b->most;
	     bytes = bytes > 0 ? bytes * l->b->factor : AFTER_NOTHING) {
		struct bench_row row = row_of(l, op, (size_t)bytes);
		if (row.bytes != before) { /* sizes may round to the same one */
			if (one_size(l, &row, e))
				return err_prefix(e, "%s of %zu bytes", op->name, row.bytes);
			if (l->rank == 0)
				report(arg, &row);
		}
		before = row.bytes;
		if (op->in == SHAPE_NONE)
			break;
	}
	return 0;
}

/* Allocates memory for the largest size. */
static int open_buffer(struct loop *l, char **out, struct err *e)
{
	size_t room = l->b->most ? l->b->most : 1;
	void *at = NULL;
	if (l->b->shared && comm_alloc(l->world, room, &at, e))
		return -1;
	if (!l->b->shared && !(at = malloc(room)))
		return err_set(e, ERR_NOMEM,
			       "rank %d has no memory for two buffers of %zu bytes; lower "
			       "--max-bytes or --ranks",
			       l->rank, room);
	*out = at;
	return 0;
}

static void close_buffer(struct loop *l, char *buffer)
{
	if (l->b->shared)
		comm_free(l->world, buffer);
	else
		free(buffer);
}

int bench_comm_loop(struct comm *world, const struct bench_comm *b,
		    void (*report)(void *arg, const struct bench_row *row), void *arg,
		    struct err *e)
{
	struct loop l = {
		.b = b, .world = world, .ranks = comm_size(world), .rank = comm_rank(world)
	};
	int rc = open_buffer(&l, &l.first, e) || open_buffer(&l, &l.second, e) ? -1 : 0;
	for (int i = 0; i < bench_n_ops && !rc; i++)
		if (b->ops >> i & 1)
			rc = all_sizes(&l, &bench_ops[i], report, arg, e);
	close_buffer(&l, l.first);
	close_buffer(&l, l.second);
	return rc;
}
