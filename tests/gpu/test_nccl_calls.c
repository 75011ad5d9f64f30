/*
 * Counts the NCCL calls of a training step's gradients and parameters, on one rank of 8, 64 and
 * 1024, under each ZeRO stage. The calls are those that the parameter store starts, and that
 * libcomm's code for NCCL issues for them: over groups of that many ranks whose other ranks do not
 * exist, and over a double of NCCL that counts (tests/gpu/doubles/recorder.h).
 *
 * Every gather and every reduction of a unit is one call, and NCCL launches the calls of a bucket
 * together: the column "launches". The column "unequal" has the calls of the same step if shards
 * were as equal as their elements allow, without padding: NCCL has no call for those.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "agent/engine/parallel/param_store.h"
#include "libcomm/comm.h"
#include "libcomm/device/cuda/cuda.h"
#include "libcomm/op.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/zero.h"
#include "tests/gpu/doubles/recorder.h"

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1024, UNITS_MAX = 32, STEPS = 2, MICROS = 2 };

/* --- A group whose other ranks do not exist ----------------------------------------------- */

/* Stands for libcomm's: the store's operations go to NCCL at once. */
struct comm {
	int ranks;
	struct device_comm *nccl;
	const struct catalogue *catalogue;
	int64_t calls, unequal;    /* with blocks of equal length, and without padding */
	int64_t launches;          /* of `calls` */
	int64_t elements, padding; /* of gathers and reduce-scatters */
};

int comm_size(const struct comm *c)
{
	return c->ranks;
}

bool comm_graph_fits(const struct comm *c)
{
	return !c || c->nccl;
}

bool comm_graph_awaits(const struct comm *c)
{
	return comm_graph_fits(c);
}

bool comm_coalesces(const struct comm *c)
{
	return comm_graph_fits(c);
}

int comm_graph_prepare(struct comm *c, struct err *e)
{
	(void)c;
	(void)e;
	return 0;
}

int comm_rank(const struct comm *c)
{
	return c->ranks - 1;
}

const char *comm_name(const struct comm *c)
{
	(void)c;
	return "recorded";
}

static int64_t sum_calls(void)
{
	struct recorded all = recorder_calls();
	int64_t n = 0;
	for (int i = 0; i < RECORDED_KINDS; i++)
		n += all.calls[i];
	return n;
}

/* Issues the calls of n operations, and adds their number to *sum. */
static int issue(struct comm *c, const struct op *ops, int n, int64_t *sum, struct err *e)
{
	int64_t before = sum_calls();
	int rc = muster_comm_cuda()->collectives->queue(c->nccl, ops, n, NULL, e);
	*sum += sum_calls() - before;
	return rc;
}

/* The elements of the unit that has such blocks. */
static int64_t unit_of_block(const struct comm *c, size_t block)
{
	for (int i = 0; i < c->catalogue->n_units; i++) {
		int64_t n = c->catalogue->units[i].hi - c->catalogue->units[i].lo;
		if (catalogue_block(n, c->ranks) == (int64_t)block)
			return n;
	}
	fail_msg("no unit has blocks of %zu elements on %d ranks", block, c->ranks);
	return 0;
}

/* Issues the same operation on shards that are as equal as whole grains allow. */
static int issue_unequal(struct comm *c, const struct op *op, struct err *e)
{
	size_t counts[RANKS_MAX];
	struct op lists = *op;
	int64_t n = unit_of_block(c, op->count);
	c->elements += n;
	c->padding += (int64_t)op->count * c->ranks - n;
	for (int i = 0; i < c->ranks; i++) {
		int64_t lo, hi;
		layout_partition(n, c->ranks, i, CATALOGUE_SHARD_GRAIN, &lo, &hi);
		counts[i] = (size_t)(hi - lo);
	}
	lists.counts = counts;
	return issue(c, &lists, 1, &c->unequal, e);
}

/* Issues the operation of each part, as libcomm does, and the same on unequal shards. */
static int issue_parts(struct comm *c, struct op op, const struct comm_part *parts, int n,
		       struct err *e)
{
	struct op ops[UNITS_MAX];
	assert_in_range(n, 1, UNITS_MAX);
	for (int i = 0; i < n; i++) {
		ops[i] = op;
		ops[i].in = parts[i].in;
		ops[i].out = parts[i].out;
		ops[i].count = parts[i].count;
	}
	int64_t before = recorder_calls().launches;
	int rc = issue(c, ops, n, &c->calls, e);
	c->launches += recorder_calls().launches - before;
	for (int i = 0; i < n && op.kind != OP_ALL_REDUCE; i++)
		rc = issue_unequal(c, &ops[i], e) ? -1 : rc;
	return rc;
}

int comm_all_gather_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, struct comm_request **req, struct err *e)
{
	*req = NULL;
	return issue_parts(c, (struct op){ .kind = OP_ALL_GATHER, .type = type }, parts, n, e);
}

int comm_reduce_scatter_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
					enum comm_type type, enum comm_op redop,
					struct comm_request **req, struct err *e)
{
	struct op op = { .kind = OP_REDUCE_SCATTER, .type = type, .redop = redop };
	*req = NULL;
	return issue_parts(c, op, parts, n, e);
}

int comm_all_reduce_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, enum comm_op redop,
				    struct comm_request **req, struct err *e)
{
	struct op op = { .kind = OP_ALL_REDUCE, .type = type, .redop = redop };
	*req = NULL;
	return issue_parts(c, op, parts, n, e);
}

int comm_all_gather_start(struct comm *c, const void *in, void *out, size_t count,
			  enum comm_type type, struct comm_request **req, struct err *e)
{
	struct comm_part part = { in, out, count };
	return comm_all_gather_coalesced_start(c, &part, 1, type, req, e);
}

int comm_reduce_scatter_start(struct comm *c, const void *in, void *out, size_t count,
			      enum comm_type type, enum comm_op redop, struct comm_request **req,
			      struct err *e)
{
	struct comm_part part = { in, out, count };
	return comm_reduce_scatter_coalesced_start(c, &part, 1, type, redop, req, e);
}

int comm_all_reduce_start(struct comm *c, const void *in, void *out, size_t count,
			  enum comm_type type, enum comm_op redop, struct comm_request **req,
			  struct err *e)
{
	struct comm_part part = { in, out, count };
	return comm_all_reduce_coalesced_start(c, &part, 1, type, redop, req, e);
}

int comm_all_reduce(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    enum comm_op redop, struct err *e)
{
	struct comm_request *req;
	return comm_all_reduce_start(c, in, out, count, type, redop, &req, e);
}

int comm_register(struct comm *c, const struct comm_memory *list, int n, struct err *e)
{
	(void)c, (void)list, (void)n, (void)e;
	return 0;
}

/* For tied tables, which are not here. */
int comm_all_gather(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    struct err *e)
{
	struct comm_request *req;
	return comm_all_gather_start(c, in, out, count, type, &req, e);
}

int comm_wait(struct comm_request *req, struct err *e)
{
	(void)req;
	(void)e;
	return 0;
}

/* --- Steps -------------------------------------------------------------------------------- */

/* GPT-2 124M */
static const struct model_shape gpt2 = {
	.family = FAMILY_GPT2,
	.layers = 12,
	.hidden = 768,
	.heads = 12,
	.kv_heads = 12,
	.head_dim = 64,
	.ffn = 4 * 768,
	.vocab = 50257,
	.seq = 1024,
	.bias = true,
	.tied = true,
};

static int use(struct param_store *s, int unit, bool backward, bool last, struct err *e)
{
	const void *params;
	float *grads;
	if (param_store_acquire(s, unit, &params, e) ||
	    (backward &&
	     (param_store_grads(s, unit, &grads, e) || param_store_reduce(s, unit, last, e))))
		return -1;
	param_store_release(s, unit);
	return 0;
}

static int run_step(struct param_store *s, int units, int64_t step, struct err *e)
{
	param_store_begin(s);
	for (int micro = 0; micro < MICROS; micro++) {
		for (int unit = 0; unit < units; unit++)
			if (use(s, unit, false, false, e))
				return -1;
		for (int unit = units - 1; unit >= 0; unit--)
			if (use(s, unit, true, micro == MICROS - 1, e))
				return -1;
	}
	return param_store_finish(s, e) || param_store_sync_params(s, step, e) ? -1 : 0;
}

/* Runs steps on a store over the group, and counts those of the last one, when the order of demands
 * is known. */
static int run_store(struct comm *c, struct backend *backend, int zero, struct err *e)
{
	struct param_store *s;
	const struct param_store_options opt = {
		.catalogue = c->catalogue,
		.backend = backend,
		.groups = { .shard = zero ? c : NULL, .copies = zero ? NULL : c },
		.zero = zero,
		.overlap = true,
	};
	if (param_store_open(&opt, &s, e))
		return -1;
	int rc = param_store_sync_params(s, 0, e);
	for (int64_t step = 1; step <= STEPS && rc == 0; step++) {
		c->calls = c->launches = c->unequal = c->elements = c->padding = 0;
		rc = run_step(s, c->catalogue->n_units, step, e);
	}
	param_store_close(s);
	return rc;
}

static void open_group(struct comm *c, struct device *device, int ranks)
{
	const struct device_collectives *nccl = muster_comm_cuda()->collectives;
	const struct device_comm_options opt = { .name = "recorded" };
	unsigned char key[DEVICE_KEY] = { 0 };
	struct err e = ERR_INIT;
	c->ranks = ranks;
	if (nccl->usable(device, &e) || nccl->new_key(device, key, &e) ||
	    nccl->open(device, key, ranks, ranks - 1, &opt, &c->nccl, &e))
		fail_msg("%s", e.text);
}

/* The store's memory is the host's, and counts as a device's. */
static bool on_host = true;

bool __wrap_backend_on_host(const struct backend *k);

bool __wrap_backend_on_host(const struct backend *k)
{
	(void)k;
	return on_host;
}

/* Counts a step of the last one of so many ranks, which has the most padding. */
static struct comm count(struct device *device, const struct catalogue *catalogue, int zero,
			 int ranks)
{
	struct comm c = { .catalogue = catalogue };
	struct backend *backend;
	struct err e = ERR_INIT;
	open_group(&c, device, ranks);
	if (backend_open("reference", 1, &backend, &e) || run_store(&c, backend, zero, &e))
		fail_msg("%s", e.text);
	backend_close(backend);
	muster_comm_cuda()->collectives->close(c.nccl);
	return c;
}

/* A bucket of gradients has six layers, which have more than 40 M elements, or ten, of which nine
 * have fewer than 64 M. The tables have 39 M elements and are last. In a bucket of parameters they
 * are first, with one layer, or with four. On 1024 ranks a bucket holds 1024 M. */
static const struct {
	int ranks, buckets;
} sizes[] = { { 8, 3 }, { 64, 2 }, { RANKS_MAX, 1 } };

/* Zero 1 reduces and gathers each unit once, zero 2 reduces after each micro-batch. Zero 3
 * gathers for each pass, and the buffers keep the last units of a kind for the next pass. */
static int64_t expected_calls(int zero, int64_t units)
{
	switch (zero) {
	case 1:
		return 2 * units;
	case 2:
		return (MICROS + 1) * units;
	default:
		return MICROS * units + units + (2 * MICROS - 1) * (gpt2.layers - ZERO_BUFFERS);
	}
}

/* What is reduced or gathered once per step travels in `buckets` launches each way. */
static int64_t expected_launches(int zero, int64_t units, int64_t buckets)
{
	switch (zero) {
	case 1:
		return 2 * buckets;
	case 2:
		return MICROS * units + buckets;
	default:
		return expected_calls(zero, units);
	}
}

struct scene {
	struct catalogue catalogue;
	struct device *device;
};

static struct scene open_scene(const struct model_shape *shape)
{
	const struct stage all = { 0, (int)shape->layers, true, true };
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct scene s;
	struct err e = ERR_INIT;
	if (catalogue_build(shape, &share, &s.catalogue, &e) ||
	    muster_comm_cuda()->open(0, &s.device, &e))
		fail_msg("%s", e.text);
	return s;
}

static void close_scene(struct scene *s)
{
	catalogue_free(&s->catalogue);
	muster_comm_cuda()->close(s->device);
}

static void a_bucket_is_one_launch_and_a_unit_one_call(void **state)
{
	(void)state;
	struct scene s = open_scene(&gpt2);
	print_message("NCCL calls of a step with %d micro-batches and %d units\n", MICROS,
		      s.catalogue.n_units);
	print_message("zero  ranks  launches   calls  unequal  padding\n");
	for (int zero = 1; zero <= 3; zero++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			int64_t units = s.catalogue.n_units;
			struct comm c = count(s.device, &s.catalogue, zero, sizes[i].ranks);
			print_message("%4d  %5d  %8lld  %6lld  %7lld  %6.2f %%\n", zero,
				      sizes[i].ranks, (long long)c.launches, (long long)c.calls,
				      (long long)c.unequal,
				      100.0 * (double)c.padding / (double)c.elements);
			assert_int_equal(c.calls, expected_calls(zero, units));
			assert_int_equal(c.launches,
					 expected_launches(zero, units, sizes[i].buckets));
			assert_true(c.unequal > c.calls * sizes[i].ranks / 2);
			assert_true(32 * c.padding < c.elements);
		}
	close_scene(&s);
}

/* Six of GPT-2's layers have more than 40 M elements, nine fewer than 64 M. On 1024 ranks a bucket
 * holds 1024 M. */
static void whole_gradients_are_reduced_in_buckets(void **state)
{
	(void)state;
	static const struct {
		bool host;
		int ranks, calls;
	} rows[] = { { true, 8, 13 }, { false, 8, 3 }, { false, 64, 2 }, { false, 1024, 1 } };
	struct scene s = open_scene(&gpt2);
	print_message(
		"NCCL calls of GPT-2 124M's gradients with zero = 0\nbuckets  ranks  calls\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		on_host = rows[i].host;
		struct comm c = count(s.device, &s.catalogue, 0, rows[i].ranks);
		print_message("%-7s  %5d  %5lld\n", on_host ? "host" : "device", rows[i].ranks,
			      (long long)c.calls);
		assert_int_equal(c.calls, rows[i].calls);
	}
	on_host = true;
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_is_one_launch_and_a_unit_one_call),
		cmocka_unit_test(whole_gradients_are_reduced_in_buckets),
	};
	return cmocka_run_group_tests_name("NCCL's calls in a step", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was", "NCCL's calls in a step")

#endif
