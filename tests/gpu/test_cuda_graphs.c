/*
 * Recorded passes with the collectives of NCCL in them: training over the emulator and doubles,
 * with a device per rank. With graphs and without, a step has the same bits; with them the host
 * queues much less.
 */
#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/large.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "libcomm/group.h"

#include <unistd.h>

enum { STEPS = 10, WORDS = 12, BUCKET = 4000 };

/* A bucket has one or two layers, so that most are full during a pass. */
int64_t __wrap_zero_bucket(bool device, int replicas);

int64_t __wrap_zero_bucket(bool device, int replicas)
{
	(void)device, (void)replicas;
	return BUCKET;
}

static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 4, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 2, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 4, 0.1 },
	deep = { "deep", FAMILY_GPT2, 4, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 4, 0.1 },
	six = { "six", FAMILY_GPT2, 6, 16, 2, 2, 8, 128, 61, 8, TIE_YES, 1, 4, 0.1 },
	uneven = { "uneven", FAMILY_MIXTRAL, 2, 16, 2, 2, 8, 20, 61, 8, TIE_NO, 1, 4, 0.1 },
	odd = { "odd", FAMILY_LLAMA, 3, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 4, 0.1 },
	experts = { "experts", FAMILY_MIXTRAL, 2, 16, 2, 2, 8, 16, 61, 8, TIE_NO, 1, 4, 0.1 };

#define BF16    "precision.dtype=bf16", "optimizer.lr=1e-3"
#define EP      "parallel.dp=2", "parallel.ep=2"
#define DELAYED "precision.fp8_scaling=delayed"

/* most: of what the host queues in a step with graphs, as a share of a step without. */
struct cell {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
	double most;
};

/* clang-format off */
static const struct cell cells[] = {
	{ "one rank", &gpt2, { BF16 }, 0.5 },
	{ "tp 2", &gpt2, { BF16, "parallel.tp=2" }, 0.5 },
	{ "tp 2, fp16, another scale", &gpt2, { "precision.dtype=fp16", "precision.loss_scale=1024", "optimizer.lr=1e-3", "parallel.tp=2" }, 0.5 },
	{ "tp 2, fp16, steps that overflow", &gpt2, { "precision.dtype=fp16", "precision.loss_scale_window=1", "optimizer.lr=1e-3", "parallel.tp=2" }, 0.5 },
	{ "tp 2, sp", &llama, { BF16, "parallel.tp=2", "parallel.sp=yes" }, 0.5 },
	{ "cp 2", &gpt2, { BF16, "parallel.cp=2" }, 0.5 },
	{ "cp 2, tp 2", &gpt2, { BF16, "parallel.cp=2", "parallel.tp=2" }, 0.5 },
	{ "dp 2", &gpt2, { BF16, "parallel.dp=2" }, 0.5 },
	{ "dp 2, zero 1", &gpt2, { BF16, "parallel.dp=2", "parallel.zero=1" }, 0.5 },
	/* The chunks' slots take turns differently, so that some passes are recorded late. */
	{ "pp 2, three chunks, dp 2, zero 1", &six, { BF16, "parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=3", "parallel.dp=2", "parallel.zero=1", "batch.global=8" }, 0.6 },
	{ "dp 2, zero 2, four micro-batches", &llama, { BF16, "parallel.dp=2", "parallel.zero=2", "batch.global=8" }, 0.5 },
	{ "pp 2, zb-v, dp 2, zero 2", &deep, { BF16, "parallel.pp=2", "parallel.schedule=zb-v", "parallel.dp=2", "parallel.zero=2", "batch.global=8" }, 0.5 },
	{ "dp 2, zero 3, four micro-batches", &deep, { BF16, "parallel.dp=2", "parallel.zero=3", "batch.global=8" }, 0.5 },
	{ "pp 2, interleaved, dp 2, zero 3", &deep, { BF16, "parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp=2", "parallel.zero=3", "batch.global=8" }, 0.5 },
	{ "experts, dp 2, zero 3", &experts, { BF16, "parallel.dp=2", "parallel.zero=3" }, 0.5 },
	{ "8 bits, dp 2, zero 3", &gpt2, { BF16, "precision.fp8=hybrid", "parallel.dp=2", "parallel.zero=3" }, 0.5 },
	{ "experts", &experts, { BF16 }, 0.5 },
	{ "experts, a capacity, full recomputation", &experts, { BF16, "model.capacity=1", "model.z_loss=0.01", "recompute.mode=full" }, 0.5 },
	{ "experts, dp 2, zero 1", &experts, { BF16, "parallel.dp=2", "parallel.zero=1" }, 0.5 },
	{ "experts, tp 2, fp16, another scale", &experts, { "precision.dtype=fp16", "precision.loss_scale=1024", "optimizer.lr=1e-3", "parallel.tp=2" }, 0.5 },
	{ "experts, fp16, steps that overflow", &experts, { "precision.dtype=fp16", "precision.loss_scale_window=1", "optimizer.lr=1e-3" }, 0.5 },
	{ "experts, tp 2, unequal shards", &uneven, { BF16, "parallel.tp=2" }, 1 },
	{ "experts, ep 2, a capacity", &experts, { BF16, EP, "model.capacity=1" }, 0.5 },
	{ "experts, ep 2, a capacity, full recomputation, zero 1", &experts, { BF16, EP, "model.capacity=1", "parallel.zero=1", "model.z_loss=0.01", "recompute.mode=full" }, 0.5 },
	{ "8 bits", &gpt2, { BF16, "precision.fp8=hybrid" }, 0.5 },
	{ "8 bits, delayed, tp 2", &llama, { BF16, "precision.fp8=hybrid", DELAYED, "parallel.tp=2" }, 0.5 },
	/* casts of weights are parts of the graphs */
	{ "8 bits, dp 2, zero 1", &gpt2, { BF16, "precision.fp8=hybrid", "parallel.dp=2", "parallel.zero=1" }, 0.2 },
	{ "8 bits, delayed, dp 2, zero 1", &llama, { BF16, "precision.fp8=e4m3", DELAYED, "parallel.dp=2", "parallel.zero=1" }, 0.26 },
	{ "tp 2, dp 2, zero 1", &llama, { BF16, "parallel.tp=2", "parallel.dp=2", "parallel.zero=1" }, 0.5 },
};

/* Of make check-all. */
static const struct cell large_cells[] = {
	{ "dp 2, zero 2, three layers", &odd, { BF16, "parallel.dp=2", "parallel.zero=2", "batch.global=6" }, 0.5 },
	{ "pp 2, interleaved, dp 2, zero 2", &deep, { BF16, "parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp=2", "parallel.zero=2", "batch.global=8" }, 0.5 },
	{ "tp 2, dp 2, zero 2", &llama, { BF16, "parallel.tp=2", "parallel.dp=2", "parallel.zero=2" }, 0.5 },
	{ "dp 2, zero 3, three layers", &odd, { BF16, "parallel.dp=2", "parallel.zero=3", "batch.global=6" }, 0.5 },
	{ "dp 2, zero 3, without overlap", &odd, { BF16, "parallel.dp=2", "parallel.zero=3", "parallel.overlap=no" }, 0.5 },
	{ "tp 2, dp 2, zero 3", &llama, { BF16, "parallel.tp=2", "parallel.dp=2", "parallel.zero=3" }, 0.5 },
	{ "experts, dp 2, zero 2", &experts, { BF16, "parallel.dp=2", "parallel.zero=2" }, 0.5 },
	{ "8 bits, dp 2, zero 2", &gpt2, { BF16, "precision.fp8=hybrid", "parallel.dp=2", "parallel.zero=2" }, 0.5 },
};
/* clang-format on */

struct course {
	const struct tiny *model;
	struct job job;
	bool scales; /* and the host reads the numbers of a step before it queues the update */
	double loss[STEPS], norm[STEPS], eval[STEPS];
	struct double_queued queued; /* in the last step */
	_Atomic bool replays;        /* the update of lose_a_rank */
};

static struct double_queued less(struct double_queued a, struct double_queued b)
{
	return (struct double_queued){ a.work - b.work, a.events - b.events, a.others - b.others,
				       a.graphs - b.graphs };
}

/* One step, and every second time an evaluation after it, which comes between recorded work. The
 * numbers of a late step come with the next one, or before the evaluation. */
static int one_step(struct trainee *t, struct course *c, int step, struct course *own,
		    struct err *e)
{
	struct double_queued before = double_queued();
	double loss, norm;
	int of = step - !c->scales;
	int rc = trainee_step(t, step, &loss, &norm, e);
	own->queued = less(double_queued(), before);
	if (!rc && of >= 0 && (c->scales || of % 2 == 0)) {
		own->loss[of] = loss;
		own->norm[of] = norm;
	}
	if (!rc && !c->scales && step % 2)
		rc = trainee_settle(t, &own->loss[step], &own->norm[step], e);
	return rc || step % 2 == 0 ? rc : trainee_eval(t, step, &own->eval[step], e);
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg, own = { .model = NULL };
	struct trainee t;
	trainee_device = comm_rank(world);
	/* The device has room for one kernel of NCCL. */
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
	double_set_residency(1);
	trainee_reading = c->scales ? TRAIN_READS_AT_ONCE : TRAIN_READS_LATE;
	int rc = trainee_open(c->model, &c->job, world, "cuda", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		/* All ranks record their passes again. */
		if (c->scales && step == STEPS / 2)
			t.stepper.scaler.scale /= 2;
		rc = one_step(&t, c, step, &own, e);
	}
	trainee_close(&t);
	if (!rc && comm_rank(world) == 0) {
		memcpy(c->loss, own.loss, sizeof c->loss);
		memcpy(c->norm, own.norm, sizeof c->norm);
		memcpy(c->eval, own.eval, sizeof c->eval);
		c->queued = own.queued;
	}
	return rc;
}

static struct course *course_of(const struct cell *cell, const char *more)
{
	const char *words[WORDS + 3] = { NULL };
	struct err e = ERR_INIT;
	struct course *c = world_shared(sizeof *c);
	int n = 0;
	while (cell->words[n]) {
		words[n] = cell->words[n];
		n++;
	}
	words[n++] = "job.device=cuda";
	words[n] = more;
	c->model = cell->model;
	c->scales = !!strstr(cell->name, "scale");
	if (trainee_job(cell->model, words, &c->job, &e))
		fail_msg("%s: %s", cell->name, e.text);
	return c;
}

static void go(struct course *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&l), attend, c), 0);
}

static bool same_bits(const struct course *a, const struct course *b)
{
	return !memcmp(a->loss, b->loss, sizeof a->loss) &&
	       !memcmp(a->norm, b->norm, sizeof a->norm) &&
	       !memcmp(a->eval, b->eval, sizeof a->eval);
}

/* Counts the steps whose numbers are not finite, after the step in which the update is
 * recorded; -1: none of those that follow is good again. */
static int skipped_steps(const struct course *c)
{
	int n = 0;
	bool good = false;
	for (int i = 2; i < STEPS; i++) {
		good = n && (good || isfinite(c->norm[i]));
		n += !isfinite(c->norm[i]);
	}
	return n && !good ? -1 : n;
}

static int64_t all_of(const struct double_queued *q)
{
	return q->work + q->events + q->others + q->graphs;
}

static void print_queued(const char *name, const struct double_queued *q)
{
	printf("    %-32s %5lld calls: work %5lld, events %4lld, NCCL %3lld, graphs %2lld\n", name,
	       (long long)all_of(q), (long long)q->work, (long long)q->events, (long long)q->others,
	       (long long)q->graphs);
	fflush(stdout);
}

/* Whether both ways give the same bits, and graphs save what they should. */
static bool compare_ways(const struct cell *cell)
{
	struct course *with = course_of(cell, NULL), *without = course_of(cell, "job.graphs=no");
	go(without);
	go(with);
	print_queued(cell->name, &without->queued);
	print_queued("  with graphs", &with->queued);
	if ((skipped_steps(with) > 0) != !!strstr(cell->name, "overflow"))
		fail_msg("%s: %d steps were skipped", cell->name, skipped_steps(with));
	bool same = same_bits(with, without),
	     few = (double)all_of(&with->queued) <= cell->most * (double)all_of(&without->queued),
	     good = same && few && with->queued.graphs && !without->queued.graphs;
	if (!good)
		print_message("%s: %s bits, %s calls\n", cell->name, same ? "the same" : "other",
			      few ? "few" : "too many");
	world_unshared(with, sizeof *with);
	world_unshared(without, sizeof *without);
	return good;
}

static int compare_cells(const struct cell *list, size_t n, const char *only)
{
	int wrong = 0;
	for (size_t i = 0; i < n; i++)
		wrong += strstr(list[i].name, only) && !compare_ways(&list[i]);
	return wrong;
}

static void graphs_change_no_bits_and_save_calls(void **state)
{
	const char *only = *state;
	int wrong = compare_cells(cells, sizeof cells / sizeof *cells, only);
	if (large_run() || *only)
		wrong += compare_cells(large_cells, sizeof large_cells / sizeof *large_cells, only);
	assert_int_equal(wrong, 0);
}

/* Experts multiply the same rows in the same order, whether their counts are known to the host or only
 * to the device. 3 experts do not divide by 2 ranks, and with a capacity of 1 both drop choices and
 * pad blocks. A job for another engine than muster sends no blocks. */
static void counts_on_the_device_change_no_bits(void **state)
{
	static const struct cell rows[] = {
		{ "ep 2", &experts, { BF16, EP, "model.capacity=1" }, 0 },
		{ "ep 2, uneven",
		  &experts,
		  { BF16, EP, "model.capacity=1", "model.experts=3" },
		  0 },
		{ "ep 2, more padding", &experts, { BF16, EP, "model.capacity=1.5" }, 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct course *device = course_of(&rows[i], NULL),
			      *host = course_of(&rows[i], NULL);
		host->job.plan.engine = ENGINE_MEGATRON_CORE;
		go(device);
		go(host);
		print_queued(rows[i].name, &device->queued);
		print_queued("  counts on the host", &host->queued);
		assert_true(device->queued.graphs > host->queued.graphs);
		if (!same_bits(device, host))
			fail_msg("%s: loss %.17g, %.17g with counts on the host", rows[i].name,
				 device->loss[STEPS - 1], host->loss[STEPS - 1]);
		world_unshared(device, sizeof *device);
		world_unshared(host, sizeof *host);
	}
}

enum { RECORDED = 3, LOOKS = 300000 /* microseconds: many looks of a watcher */ };

/* Of rank 0 in lose_a_rank. NULL: it has not come to the update. */
static struct {
	const struct comm *world;
	struct course *course;
} losing;

/* The library finds this function before that of the double. The double ends the process if the
 * communicator has ended, as it may when the peer has. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
	cudaError_t (*real)(cudaGraphExec_t, cudaStream_t);
	*(void **)(void *)&real = dlsym(RTLD_NEXT, "cudaGraphLaunch");
	if (losing.world) {
		losing.course->replays = true;
		while (!world_failed(losing.world->world))
			usleep(1000);
		usleep(LOOKS);
	}
	return real(graph, stream);
}

/* Rank 1 ends while rank 0 launches the update, which is a replay. */
static int lose_a_rank(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	struct step_numbers n;
	double loss, norm;
	trainee_device = comm_rank(world);
	trainee_reading = TRAIN_READS_LATE;
	int rc = trainee_open(c->model, &c->job, world, "cuda", 1, &t, e);
	for (int step = 0; !rc && step < RECORDED; step++)
		rc = trainee_step(&t, step, &loss, &norm, e);
	if (rc || trainee_settle(&t, &loss, &norm, e))
		return -1;
	int64_t before = double_queued().graphs;
	while (comm_rank(world) == 1 && !c->replays)
		usleep(1000);
	if (comm_rank(world) == 1)
		raise(SIGKILL);
	losing.course = c;
	losing.world = world;
	rc = train_stepper_update(&t.stepper, e) || optim_queue_read(t.optim, &n, e);
	bool named = rc && e->code == ERR_PEER && strstr(e->text, "(world rank 1, ");
	if (!named || double_queued().graphs != before + 1)
		print_message("%lld graphs, %s\n", (long long)(double_queued().graphs - before),
			      rc ? e->text : "no failure");
	t.failed = true;
	trainee_close(&t);
	return named && double_queued().graphs == before + 1 ? 0 : 1;
}

static void a_rank_that_ends_is_named_during_the_update(void **state)
{
	(void)state;
	struct course *c = course_of(&(struct cell){ "dp 2", &gpt2, { BF16, "parallel.dp=2" }, 0 },
				     NULL);
	int outcomes[2];
	world_outcomes(2, lose_a_rank, c, outcomes);
	assert_int_equal(outcomes[0], 0);
	assert_int_equal(outcomes[1], -1);
	world_unshared(c, sizeof *c);
}

/* --- Losses -------------------------------------------------------------------------------- */

/* The ranks of tp have the same losses, which count once. A diagnosis compares each rank's own. */
static int keep_loss(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	double loss, norm, all[2], own;
	trainee_device = comm_rank(world);
	trainee_reading = TRAIN_READS_LATE;
	int rc = trainee_open(c->model, &c->job, world, "cuda", 1, &t, e);
	if (rc || trainee_step(&t, 0, &loss, &norm, e) || trainee_settle(&t, &loss, &norm, e))
		return -1;
	own = pipeline_local_loss(t.engine);
	rc = comm_all_gather(world, &own, all, 1, COMM_F64, e);
	bool right = !rc && all[0] == all[1] && all[0] / (double)t.view.global_tokens == loss;
	if (!rc && !right)
		print_message("loss %g: %g and %g\n", loss, all[0], all[1]);
	trainee_close(&t);
	return rc ? -1 : !right;
}

static void each_rank_knows_its_own_loss_also_where_it_does_not_count(void **state)
{
	(void)state;
	struct course *c = course_of(&(struct cell){ "tp 2", &gpt2, { BF16, "parallel.tp=2" }, 0 },
				     NULL);
	assert_int_equal(world_run(2, keep_loss, c), 0);
	world_unshared(c, sizeof *c);
}

/* --- A device that does not record --------------------------------------------------------- */

static cudaError_t fail_capture;

/* The library finds this function before that of the double. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	cudaError_t (*real)(cudaStream_t, enum cudaStreamCaptureMode);
	*(void **)(void *)&real = dlsym(RTLD_NEXT, "cudaStreamBeginCapture");
	return fail_capture != cudaSuccess ? fail_capture : real(stream, mode);
}

struct refusal {
	struct course *course;
	cudaError_t rc;
	bool update;        /* it is the update that is recorded; false: a pass */
	enum err_code code; /* what the step fails with; ERR_NONE: it does not */
};

/* The first rank's device does not record. The other one has left by then. */
static int record_nothing(struct comm *world, void *arg, struct err *e)
{
	const struct refusal *r = arg;
	struct trainee t;
	double loss, norm;
	trainee_device = comm_rank(world);
	trainee_reading = TRAIN_READS_LATE;
	int rc = trainee_open(r->course->model, &r->course->job, world, "cuda", 1, &t, e);
	if (rc || trainee_step(&t, 0, &loss, &norm, e) || trainee_settle(&t, &loss, &norm, e) ||
	    backend_sync(pipeline_backend(t.engine), e) || comm_barrier(world, e))
		return -1;
	fail_capture = r->rc;
	if (comm_rank(world) == 0)
		rc = r->update ? train_stepper_update(&t.stepper, e)
			       : trainee_step(&t, 1, &loss, &norm, e);
	bool right = comm_rank(world) || (rc ? e->code == r->code : r->code == ERR_NONE);
	if (!right)
		print_message("code %d, %s\n", (int)e->code, rc ? e->text : "no failure");
	t.failed = true;
	trainee_close(&t);
	return !right;
}

/* A fault of the device shows when the recording begins, and must not look like a job that is
 * wrong. */
static void a_device_that_fails_is_told_from_one_that_does_not_record(void **state)
{
	static const struct cell alone = { "one rank", &gpt2, { BF16 }, 0 },
				 both = { "tp 2", &gpt2, { BF16, "parallel.tp=2" }, 0 };
	static const struct {
		const struct cell *cell;
		bool update;
		cudaError_t rc;
		enum err_code code;
	} rows[] = {
		{ &alone, false, cudaErrorECCUncorrectable, ERR_DEVICE },
		{ &alone, true, cudaErrorECCUncorrectable, ERR_DEVICE },
		{ &both, true, cudaErrorECCUncorrectable, ERR_DEVICE },
		{ &both, true, cudaErrorStreamCaptureUnsupported, ERR_UNSUPPORTED },
		{ &alone, true, cudaErrorStreamCaptureUnsupported, ERR_NONE },
		{ &alone, false, cudaErrorStreamCaptureUnsupported, ERR_NONE },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct refusal *r = world_shared(sizeof *r);
		*r = (struct refusal){ .course = course_of(rows[i].cell, NULL),
				       .rc = rows[i].rc,
				       .update = rows[i].update,
				       .code = rows[i].code };
		struct layout l = layout_of(&r->course->job, (int)r->course->job.parallel.dp);
		assert_int_equal(world_run(layout_world(&l), record_nothing, r), 0);
		world_unshared(r->course, sizeof *r->course);
		world_unshared(r, sizeof *r);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(graphs_change_no_bits_and_save_calls,
					  argc > 1 ? argv[1] : ""),
		cmocka_unit_test(counts_on_the_device_change_no_bits),
		cmocka_unit_test(a_rank_that_ends_is_named_during_the_update),
		cmocka_unit_test(each_rank_knows_its_own_loss_also_where_it_does_not_count),
		cmocka_unit_test(a_device_that_fails_is_told_from_one_that_does_not_record),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("recorded passes on emulated devices", tests, NULL,
					   NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"recorded passes on emulated devices")

#endif
