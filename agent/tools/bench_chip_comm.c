#include "agent/tools/bench_chip.h"

#include "agent/engine/parallel/device.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "kernels/source.h"
#include "plan/spec/processors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 1024, FACTOR = 8, ROUNDS = 5 };

/* A rank's device, and a group of ranks on it. */
struct rank {
	struct comm *world; /* on the host */
	struct comm *group; /* on the devices */
	struct backend *backend;
	struct backend_source memory; /* of the arrays, as training has it; zeros if staged */
	float *in, *out;
	int64_t elements;
};

/* --- The operations ----------------------------------------------------------------------- */

/* Each moves `bytes` as topo/measured.h counts them. */
typedef int exchange_fn(struct rank *r, size_t bytes, struct err *e);

static size_t share(const struct rank *r, size_t bytes)
{
	return bytes / sizeof(float) / (size_t)comm_size(r->group);
}

static int all_reduce(struct rank *r, size_t bytes, struct err *e)
{
	return comm_all_reduce(r->group, r->out, r->out, bytes / sizeof(float), COMM_F32, COMM_SUM,
			       e);
}

static int all_gather(struct rank *r, size_t bytes, struct err *e)
{
	size_t count = share(r, bytes);
	return comm_all_gather(r->group, r->out + (size_t)comm_rank(r->group) * count, r->out,
			       count, COMM_F32, e);
}

static int reduce_scatter(struct rank *r, size_t bytes, struct err *e)
{
	size_t count = share(r, bytes);
	return comm_reduce_scatter(r->group, r->out, r->out + (size_t)comm_rank(r->group) * count,
				   count, COMM_F32, COMM_SUM, e);
}

static int all_to_all(struct rank *r, size_t bytes, struct err *e)
{
	return comm_all_to_all(r->group, r->in, r->out, share(r, bytes), COMM_F32, e);
}

static int message(struct rank *r, size_t bytes, struct err *e)
{
	int size = comm_size(r->group), me = comm_rank(r->group);
	const struct comm_p2p both[] = {
		{ true, { .source = r->in }, bytes, COMM_U8, (me + 1) % size },
		{ false, { .data = r->out }, bytes, COMM_U8, (me + size - 1) % size },
	};
	return comm_batch_send_recv(r->group, both, 2, e);
}

static exchange_fn *const calls[] = {
	[MEASURED_ALL_REDUCE] = all_reduce,
	[MEASURED_ALL_GATHER] = all_gather,
	[MEASURED_REDUCE_SCATTER] = reduce_scatter,
	[MEASURED_ALL_TO_ALL] = all_to_all,
	[MEASURED_MESSAGE] = message,
};
enum { CALLS = sizeof calls / sizeof *calls };

/* The processors that training gives to the groups with this operation. tp has all-reduces, and
 * replicas have gathers and reduce-scatters. With parallel.sp tp has the latter, too; they are not
 * measured separately, although its communicator may have more processors. 0: the library
 * chooses. */
static const int processors[CALLS] = {
	[MEASURED_ALL_GATHER] = PROCESSORS_BEHIND,
	[MEASURED_REDUCE_SCATTER] = PROCESSORS_BEHIND,
	[MEASURED_MESSAGE] = PROCESSORS_OF_MESSAGES,
};

/* --- Time --------------------------------------------------------------------------------- */

static int run_times(struct rank *r, exchange_fn *run, size_t bytes, int times, double *seconds,
		     struct err *e)
{
	if (comm_barrier(r->world, e))
		return -1;
	double since = clock_s();
	for (int i = 0; i < times; i++)
		if (run(r, bytes, e))
			return -1;
	if (comm_sync(r->group, e) || backend_sync(r->backend, e))
		return -1;
	*seconds = (clock_s() - since) / times;
	return comm_all_reduce(r->world, seconds, seconds, 1, COMM_F64, COMM_MAX, e);
}

/* Seconds of one call on the slowest rank: the median of rounds that take a fifth of `seconds` or
 * more. All ranks do as many. */
static int time_exchange(struct rank *r, exchange_fn *run, size_t bytes, double seconds,
			 double *out, struct err *e)
{
	double rounds[ROUNDS];
	int times = 1;
	if (run_times(r, run, bytes, 1, out, e))
		return -1;
	for (int i = 0; i < ROUNDS;) {
		if (run_times(r, run, bytes, times, &rounds[i], e))
			return -1;
		i++;
		if (rounds[i - 1] * times < seconds / ROUNDS) {
			times *= 2;
			i = 0;
		}
	}
	qsort(rounds, ROUNDS, sizeof *rounds, compare_double);
	*out = fmax(rounds[ROUNDS / 2], 1e-9);
	return 0;
}

static int one_op(struct rank *r, enum measured_op op, const struct bench_chip *b,
		  struct measured_chip *out, struct err *e)
{
	struct measured_exchange x = { .op = op, .group = comm_size(r->group) };
	size_t most = (size_t)r->elements * sizeof(float);
	for (size_t bytes = LEAST; bytes <= most && x.n < RATE_POINTS; bytes *= FACTOR) {
		x.bytes[x.n] = (double)bytes;
		if (time_exchange(r, calls[op], bytes, b->seconds, &x.seconds[x.n], e))
			return -1;
		x.n++;
	}
	if (comm_rank(r->world) == 0 && x.n && out->n_exchanges < CHIP_EXCHANGES)
		out->exchanges[out->n_exchanges++] = x;
	return 0;
}

static void print_group(const struct measured_chip *out, int group)
{
	for (int i = 0; i < out->n_exchanges; i++) {
		const struct measured_exchange *x = &out->exchanges[i];
		if (x->group == group && x->op == MEASURED_ALL_REDUCE)
			printf("%-24.24s %7s %5d %12.1f %12.1f\n", out->name,
			       out->staged ? "staged" : "nccl", group, x->seconds[0] * 1e6,
			       x->seconds[x->n - 1] * 1e6);
	}
	fflush(stdout);
}

/* --- Groups ------------------------------------------------------------------------------- */

static int register_arrays(struct rank *r, struct err *e)
{
	size_t bytes = (size_t)r->elements * sizeof(float);
	const struct comm_memory both[] = {
		{ r->in, bytes, backend_is_from_source(r->backend, r->in) },
		{ r->out, bytes, backend_is_from_source(r->backend, r->out) },
	};
	return comm_register(r->group, both, 2, e) < 0 ? -1 : 0;
}

/* Measures groups of `size` ranks, all at the same time. */
static int one_size(struct rank *r, struct comm *devices, int size, const struct bench_chip *b,
		    struct measured_chip *out, struct err *e)
{
	int rank = comm_rank(r->world), rc = 0;
	for (int op = 0; op < CALLS && !rc; op++) {
		comm_processors(devices, processors[op]);
		rc = comm_split(devices, rank / size, rank, "calibration", &r->group, e);
		if (rc)
			break;
		rc = register_arrays(r, e) ? -1 : one_op(r, (enum measured_op)op, b, out, e);
		comm_close(r->group);
		r->group = NULL;
	}
	if (!rc && rank == 0)
		print_group(out, size);
	return rc;
}

static int all_sizes(struct rank *r, struct comm *devices, const struct bench_chip *b,
		     struct measured_chip *out, struct err *e)
{
	comm_stream(devices, backend_stream(r->backend));
	if (comm_rank(r->world) == 0) {
		out->n_exchanges = 0;
		out->staged = !strcmp(comm_backend(devices), "staged");
		printf("\nchip                   transfer group      1 KiB us   largest us    of "
		       "an "
		       "all-reduce, all groups at once\n");
	}
	for (int size = 2; size <= comm_size(r->world); size *= 2)
		if (one_size(r, devices, size, b, out, e))
			return -1;
	return 0;
}

static int open_arrays(struct rank *r, const struct comm_device_options *device, bool staged,
		       struct err *e)
{
	size_t bytes = (size_t)r->elements * sizeof(float);
	if (!staged && parallel_memory_open(device, &r->memory, e))
		return -1;
	const struct backend_source *source = staged ? NULL : &r->memory;
	r->in = backend_alloc_from(r->backend, source, bytes);
	r->out = backend_alloc_from(r->backend, source, bytes);
	return r->in && r->out
		       ? backend_sync(r->backend, e)
		       : err_set(e, ERR_NOMEM,
				 "no memory for exchanges of %zu bytes; close other programs",
				 bytes);
}

static void close_arrays(struct rank *r)
{
	if (r->in)
		backend_free(r->backend, r->in);
	if (r->out)
		backend_free(r->backend, r->out);
}

static int on_devices(struct comm *world, const struct bench_chip *b, struct measured_chip *out,
		      struct err *e)
{
	struct rank r = { .world = world, .elements = b->elements };
	struct comm_device_options options = { .index = comm_rank(world) };
	struct comm *devices = NULL;
	if (parallel_device_table(&options.device, e) ||
	    backend_open_device("cuda", 1, options.index, &r.backend, e))
		return -1;
	int rc = comm_on_device(world, &options, "devices", &devices, e) ||
				 open_arrays(&r, &options, !strcmp(comm_backend(devices), "staged"),
					     e)
			 ? -1
			 : all_sizes(&r, devices, b, out, e);
	comm_close(devices);
	close_arrays(&r);
	backend_close(r.backend);
	parallel_memory_close(&r.memory);
	return rc;
}

int bench_chip_exchanges(struct comm *world, const struct bench_chip *b, struct measured_chip *out,
			 struct err *e)
{
	int most = 2;
	struct comm *part;
	while (2 * most <= comm_size(world))
		most *= 2;
	if (comm_split(world, comm_rank(world) < most ? 0 : -1, comm_rank(world), "calibration",
		       &part, e))
		return -1;
	int rc = part ? on_devices(part, b, out, e) : 0;
	comm_close(part);
	return rc;
}
