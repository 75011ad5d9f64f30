/*
 * Tests that the order in which ranks start operations keeps NCCL's kernels from waiting for each
 * other in two orders. The double of NCCL (tests/gpu/doubles) holds so few kernels of a rank at a
 * time that any two orders end in a deadlock. Four ranks on four devices run
 *
 *     - pipelines, by the tables of all schedules and the common order of their messages, with an
 *       all-reduce between the replicas of a stage in each pass;
 *     - the ring of cp, with gathers of another group in between.
 *
 * Each run has its own random order of streams, schedule, layout and limit, all of which follow
 * from a seed. MUSTER_SEED=N runs that seed alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "libcomm/device/cuda/cuda.h"
#include "plan/spec/schedule/messages.h"
#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"

enum { WORLD = 4, COUNT = 64, SEEDS = 24, FEW = 3, MICROS = 7 };

struct scene {
	unsigned seed;
	double limit;  /* of an operation, if it is to expire; 0: a long one */
	int residents; /* kernels that a device holds */
	bool rows;     /* messages are started at their own steps, not in the common order */
	bool launches; /* kernels become resident in the order of their launches */
	enum job_schedule kind;
	struct layout layout; /* pp and dp */
	int micros;
	int more; /* micro-batches that the second replica has besides; then replicas sum only each
	           * chunk's last gradients */
};

/* A number in [0, n) that follows from the seed. */
static unsigned draw(unsigned seed, unsigned nth, unsigned n)
{
	uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + nth * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 31) * UINT64_C(0x94d049bb133111eb);
	return (unsigned)(x >> 33) % n;
}

/* --- A rank ------------------------------------------------------------------------------- */

struct rank {
	const struct scene *scene;
	struct comm *gpu, *pipe, *replicas;
	struct schedule table;
	struct sched_messages messages;
	int pp, micros, started;
	int64_t *memory;             /* [messages of the table][COUNT] */
	struct comm_request **open;  /* [messages of the table] */
	int64_t *sum;                /* of the replicas */
	struct comm_request *summed; /* the last pass's */
};

static int open_gpu(struct comm *world, const struct scene *s, struct comm **out, struct err *e)
{
	struct comm_device_options opt = { .device = muster_comm_cuda(),
					   .backend = "nccl",
					   .index = comm_rank(world) };
	char seed[16];
	snprintf(seed, sizeof seed, "%u", s->seed * WORLD + (unsigned)comm_rank(world));
	setenv("MUSTER_EMULATE_SEED", seed, 1);
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", s->launches ? "1" : "0", 1);
	double_set_residency(s->residents);
	RANK_CHECK(cudaSetDevice(opt.index) == cudaSuccess, "no device");
	return comm_on_device(world, &opt, "gpu", out, e);
}

static bool is_send(const struct sched_step *step)
{
	return step->op == SCHED_SEND_ACT || step->op == SCHED_SEND_GRAD;
}

static bool is_receive(const struct sched_step *step)
{
	return step->op == SCHED_RECV_ACT || step->op == SCHED_RECV_GRAD;
}

/* The number of a message, equal at both of its ranks. */
static int number_of(const struct rank *r, const struct sched_step *step, bool *next)
{
	int stage = layout_stage(&r->table.layout, r->pp, step->chunk);
	bool act = step->op == SCHED_SEND_ACT || step->op == SCHED_RECV_ACT;
	int there = stage + (act == is_send(step) ? 1 : -1), holder, chunk;
	layout_holder(&r->table.layout, there, &holder, &chunk);
	*next = holder == (r->pp + 1) % r->table.layout.pp;
	return 2 * ((is_send(step) ? there : stage) * r->table.micros + step->micro) + act;
}

static int start_message(struct rank *r, const struct sched_step *step, struct err *e)
{
	bool next;
	int n = number_of(r, step, &next), pp = r->table.layout.pp;
	struct comm_p2p op = { .send = is_send(step),
			       .data = r->memory + n * COUNT,
			       .count = COUNT,
			       .type = COMM_I64,
			       .peer = (r->pp + (next ? 1 : pp - 1)) % pp };
	for (int i = 0; is_send(step) && i < COUNT; i++)
		r->memory[n * COUNT + i] = n * 1000 + i;
	return comm_batch_send_recv_start(r->pipe, &op, 1, &r->open[n], e);
}

/* Whether the gradients of the step's chunk are complete after it. */
static bool completes(const struct sched_row *row, int at)
{
	const struct sched_step *step = &row->steps[at];
	if (step->op != SCHED_BACKWARD && step->op != SCHED_BACKWARD_WEIGHT)
		return false;
	for (int i = at + 1; i < row->n; i++) {
		const struct sched_step *s = &row->steps[i];
		if (s->chunk == step->chunk &&
		    (s->op == SCHED_BACKWARD || s->op == SCHED_BACKWARD_WEIGHT))
			return false;
	}
	return true;
}

/* Starts the sum of this pass, and waits for that of the last one. */
static int run_pass(struct rank *r, struct err *e)
{
	struct comm_request *last = r->summed;
	r->summed = NULL;
	return comm_wait(last, e) ||
	       (r->replicas && comm_all_reduce_start(r->replicas, r->sum, r->sum, COUNT, COMM_I64,
						     COMM_MAX, &r->summed, e));
}

static int run_row(struct rank *r, struct err *e)
{
	const struct sched_row *row = &r->table.rows[r->pp];
	const struct sched_messages *m = &r->messages;
	for (int i = 0; i < row->n; i++) {
		const struct sched_step *step = &row->steps[i];
		bool next;
		for (; r->started < m->n && m->list[r->started].before <= i; r->started++)
			if (start_message(r, &row->steps[m->list[r->started].step], e))
				return -1;
		if (is_receive(step)) {
			struct comm_request **req = &r->open[number_of(r, step, &next)];
			struct comm_request *received = *req;
			*req = NULL;
			if (comm_wait(received, e))
				return -1;
		} else if (!is_send(step) && (!r->scene->more || completes(row, i)) &&
			   run_pass(r, e)) {
			return -1;
		}
	}
	return 0;
}

static int wait_all(struct rank *r, int messages, struct err *e)
{
	int rc = comm_wait(r->summed, e);
	r->summed = NULL;
	for (int i = 0; i < messages; i++) {
		rc |= comm_wait(r->open[i], rc ? NULL : e);
		r->open[i] = NULL;
	}
	return rc || (r->pipe && comm_sync(r->pipe, e)) ||
	       (r->replicas && comm_sync(r->replicas, e));
}

static int check_received(const struct rank *r)
{
	const struct sched_row *row = &r->table.rows[r->pp];
	for (int i = 0; i < row->n; i++) {
		bool next;
		int n = is_receive(&row->steps[i]) ? number_of(r, &row->steps[i], &next) : -1;
		for (int k = 0; n >= 0 && k < COUNT; k++)
			RANK_CHECK(r->memory[n * COUNT + k] == n * 1000 + k,
				   "message %d, element %d is %lld", n, k,
				   (long long)r->memory[n * COUNT + k]);
	}
	return 0;
}

/* Starts each message at its own step. */
static int order_by_rows(struct rank *r)
{
	const struct sched_row *row = &r->table.rows[r->pp];
	for (int i = 0, n = 0; i < row->n; i++)
		if (is_send(&row->steps[i]) || is_receive(&row->steps[i]))
			r->messages.list[n++] = (struct sched_message){ i, i };
	return 0;
}

static int messages_of(const struct rank *r)
{
	return 2 * (layout_n_stages(&r->scene->layout) + 1) * r->micros;
}

static int open_rank(struct rank *r, struct comm *world, struct err *e)
{
	const struct scene *s = r->scene;
	int dp = s->layout.dp;
	r->pp = comm_rank(world) / dp;
	r->micros = s->micros + (comm_rank(world) % dp ? s->more : 0);
	int messages = messages_of(r);
	r->open = calloc((size_t)messages, sizeof *r->open);
	RANK_CHECK(r->open && cudaSetDevice(comm_rank(world)) == cudaSuccess &&
			   cudaMalloc((void **)&r->memory,
				      (size_t)messages * COUNT * sizeof *r->memory) ==
				   cudaSuccess &&
			   cudaMalloc((void **)&r->sum, COUNT * sizeof *r->sum) == cudaSuccess,
		   "no memory");
	return schedule_build(s->kind, &s->layout, r->micros, &r->table, e) ||
	       schedule_order_messages(&r->table, &r->table, r->pp, &r->messages, e) ||
	       (s->rows && order_by_rows(r)) || open_gpu(world, s, &r->gpu, e) ||
	       comm_split(r->gpu, comm_rank(world) % dp, r->pp, "pp", &r->pipe, e) ||
	       (dp > 1 && comm_split(r->gpu, r->pp, comm_rank(world) % dp, "dp", &r->replicas, e));
}

static int close_rank(struct rank *r)
{
	comm_close(r->replicas);
	comm_close(r->pipe);
	comm_close(r->gpu);
	cudaFree(r->memory);
	cudaFree(r->sum);
	free(r->open);
	schedule_messages_free(&r->messages);
	schedule_free(&r->table);
	RANK_CHECK(double_open_comms() == 0 && double_open_things() == 0,
		   "%d communicators, %d streams, events and buffers are still open",
		   double_open_comms(), double_open_things());
	return 0;
}

/* Returns 0: the pipeline came to its end; 2: it did not within the time; 1: anything else. */
static int run_pipeline(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct rank r = { .scene = arg };
	RANK_CHECK(open_rank(&r, world, &e) == 0, "%s", e.text);
	if (r.scene->limit > 0) {
		RANK_CHECK(comm_barrier(world, &e) == 0, "%s", e.text);
		ranks_hurry(world, r.scene->limit);
	}
	int messages = messages_of(&r);
	int rc = run_row(&r, &e);
	rc = wait_all(&r, messages, rc ? NULL : &e) || rc;
	if (rc)
		RANK_CHECK(e.code == ERR_TIMEOUT || e.code == ERR_PEER || e.code == ERR_ABORTED,
			   "%s", e.text);
	else if (check_received(&r))
		return 1;
	return close_rank(&r) ? 1 : rc ? 2 : 0;
}

/* --- The ring of cp, and gathers ---------------------------------------------------------- */

enum { STEPS = 40 };

/* One step: a shift of the ring and a gather of the other group are started in an order that all
 * ranks share, and waited for later. */
static int run_ring(struct comm *world, void *arg)
{
	struct scene *s = arg;
	struct err e = ERR_INIT;
	struct comm *gpu, *ring, *shards;
	struct comm_request *shift = NULL, *gather = NULL;
	int64_t *kv, *params;
	int me = comm_rank(world), cp = me % 2;
	s->residents = 1;
	RANK_CHECK(open_gpu(world, s, &gpu, &e) == 0 &&
			   comm_split(gpu, me / 2, cp, "cp", &ring, &e) == 0 &&
			   comm_split(gpu, cp, me / 2, "shards", &shards, &e) == 0 &&
			   cudaMalloc((void **)&kv, 2 * COUNT * sizeof *kv) == cudaSuccess &&
			   cudaMalloc((void **)&params, 2 * COUNT * sizeof *params) == cudaSuccess,
		   "%s", e.text);
	for (int i = 0; i < 2 * COUNT; i++)
		kv[i] = params[i] = me;
	for (int i = 0; i < STEPS; i++) {
		const struct comm_p2p ops[] = {
			{ .send = true,
			  .data = kv + i % 2 * COUNT,
			  .count = COUNT,
			  .type = COMM_I64,
			  .peer = 1 - cp },
			{ .data = kv + (i + 1) % 2 * COUNT,
			  .count = COUNT,
			  .type = COMM_I64,
			  .peer = 1 - cp },
		};
		RANK_CHECK(comm_batch_send_recv_start(ring, ops, 2, &shift, &e) == 0, "%s", e.text);
		if (draw(s->seed, (unsigned)i, 3)) {
			RANK_CHECK(comm_wait(gather, &e) == 0 &&
					   comm_all_gather_start(
						   shards, params + comm_rank(shards) * COUNT,
						   params, COUNT, COMM_I64, &gather, &e) == 0,
				   "%s", e.text);
		}
		RANK_CHECK(comm_wait(shift, &e) == 0, "%s", e.text);
	}
	RANK_CHECK(comm_wait(gather, &e) == 0 && comm_sync(ring, &e) == 0 &&
			   comm_sync(shards, &e) == 0,
		   "%s", e.text);
	RANK_CHECK(kv[0] == me, "the ring brought %lld to rank %d", (long long)kv[0], me);
	comm_close(shards);
	comm_close(ring);
	comm_close(gpu);
	cudaFree(kv);
	cudaFree(params);
	return 0;
}

/* --- Runs --------------------------------------------------------------------------------- */

static struct scene scene_of(unsigned seed, bool unequal)
{
	struct scene s = { .seed = seed,
			   .residents = 1 + (int)draw(seed, 1, 2),
			   .launches = true,
			   .kind = (enum job_schedule)draw(seed, 2, SCHEDULES),
			   .micros = 1 + (int)draw(seed, 3, MICROS) };
	const struct schedule_kind *k = schedule_kinds[s.kind];
	bool two = unequal || draw(seed, 4, 2);
	s.more = unequal ? 1 + (int)draw(seed, 5, FEW) : 0;
	s.layout = (struct layout){ .tp = 1,
				    .cp = 1,
				    .ep = 1,
				    .dp = two ? 2 : 1,
				    .pp = two ? 2 : 4,
				    .chunks = k->chunks_least,
				    .vee = k->vee };
	return s;
}

/* Runs a function with the seeds; each must end well. */
static void run_seeds(int (*fn)(struct comm *world, void *arg), unsigned n, bool unequal)
{
	const char *given = getenv("MUSTER_SEED");
	unsigned first = given ? (unsigned)strtoul(given, NULL, 0) : 0;
	for (unsigned seed = first; seed < (given ? first + 1 : n); seed++) {
		struct scene s = scene_of(seed, unequal);
		struct ranks r = { .n = WORLD, .timeout_s = 120, .fn = fn, .arg = &s };
		if (ranks_run(&r))
			fail_msg("MUSTER_SEED=%u (%s, pp %d, dp %d, %d micro-batches, %d kernels "
				 "at a time): failed",
				 seed, schedule_words[s.kind], s.layout.pp, s.layout.dp, s.micros,
				 s.residents);
	}
}

static void pipelines_in_the_common_order_never_deadlock(void **state)
{
	(void)state;
	run_seeds(run_pipeline, SEEDS, false);
}

/* plan/spec/batch.h gives unequal devices unequal numbers of micro-batches under ZeRO 0 and 1. */
static void replicas_with_unequal_rows_never_deadlock(void **state)
{
	(void)state;
	run_seeds(run_pipeline, SEEDS, true);
}

static void a_ring_and_gathers_never_deadlock(void **state)
{
	(void)state;
	run_seeds(run_ring, FEW, false);
}

/* Every rank that does not get on has waited until the time is over, and left nothing. */
static void check_deadlock(const struct scene *s)
{
	struct ranks r = {
		.n = WORLD, .timeout_s = PATIENT_WAIT_S, .fn = run_pipeline, .arg = (void *)s
	};
	int stuck = 0;
	ranks_start(&r);
	for (int i = 0; i < WORLD; i++) {
		int rc = ranks_end(&r, i);
		assert_true(rc == 0 || rc == 2);
		stuck += rc == 2;
	}
	munmap(r.board, sizeof *r.board);
	assert_true(stuck > 1);
}

static void other_orders_deadlock(void **state)
{
	(void)state;
	struct scene s = {
		.limit = 2, .residents = 1, .rows = true, .launches = true, .micros = 6
	};
	s.layout = (struct layout){ .tp = 1, .cp = 1, .ep = 1, .dp = 1, .pp = 4, .chunks = 1 };
	check_deadlock(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pipelines_in_the_common_order_never_deadlock),
		cmocka_unit_test(replicas_with_unequal_rows_never_deadlock),
		cmocka_unit_test(a_ring_and_gathers_never_deadlock),
		cmocka_unit_test(other_orders_deadlock),
	};
	return cmocka_run_group_tests_name("the order of NCCL's operations", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"the order of NCCL's operations")

#endif
