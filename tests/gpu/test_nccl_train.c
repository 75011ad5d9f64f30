/*
 * Training on four devices over the doubles of CUDA and NCCL: the losses of the CPU's run, with
 * pipelines, rings and shards at the same time, on devices that hold one of NCCL's kernels at a
 * time. There two ranks that start two operations in two orders never come to their end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "agent/tools/bench_chip.h"
#include "base/file.h"
#include "plan/spec/processors.h"
#include "tests/gpu/doubles/collectives.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, WORDS = 10 };

static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 4, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 4, 0.1 },
	pairs = { "pairs", FAMILY_MIXTRAL, 4, 16, 2, 2, 8, 16, 61, 8, TIE_NO, 1, 4, 0.1 },
	mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 16, 4, 2, 4, 24, 61, 8, TIE_NO, 1, 4, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 4, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 2, 0.1 },
	even = { "even", FAMILY_LLAMA, 4, 16, 4, 2, 4, 32, 61, 8, TIE_NO, 1, 2, 0.1 };

/* comms: communicators of a rank. processors: the limits of those of messages and of shards; -1:
 * there is no such communicator. */
struct cell {
	const char *name;
	const struct tiny *model;
	const char *how[WORDS];
	int comms, of_messages, of_shards;
	int registered;                /* at least so many buffers */
	enum double_fault all, second; /* of all ranks; of rank 1 */
	/* registered as such: equally large on all ranks. 3 experts are not, nor are activations with
	 * tp's shards of 20 elements and parameters with those of 61 words */
	enum { NONE, SOME, ALL } windows;
	bool shares;         /* groups share resources */
	const char *both[3]; /* of the run on the CPU, too */
};

/* clang-format off */
static const struct cell cells[] = {
	{ "pp 2, dp 2, zero 3", &gpt2, { "parallel.pp=2", "parallel.dp=2", "parallel.zero=3" }, 4, 8, 16, 6, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 4", &llama, { "parallel.pp=4" }, 2, 8, -1, 0, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 2, interleaved, dp 2", &gpt2, { "parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp=2" }, 4, 8, -1, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 2, interleaved, dp 2, zero 1", &gpt2, { "parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp=2", "parallel.zero=1" }, 4, 8, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 2, dp 2, zero 2", &llama, { "parallel.pp=2", "parallel.dp=2", "parallel.zero=2" }, 3, 8, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 2, interleaved, dp 2, zero 2", &gpt2, { "parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp=2", "parallel.zero=2" }, 4, 8, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "pp 2, zb-v, dp 2, zero 2", &llama, { "parallel.pp=2", "parallel.schedule=zb-v", "parallel.dp=2", "parallel.zero=2" }, 3, 8, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "dp 2, ep 2, zero 1", &mixtral, { "parallel.dp=2", "parallel.ep=2", "parallel.zero=1" }, 3, -1, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, NONE, false, { NULL } },
	{ "pp 2, zb-v, tp 2", &llama, { "parallel.pp=2", "parallel.schedule=zb-v", "parallel.tp=2" }, 3, 8, -1, 4, DOUBLE_SOUND, DOUBLE_SOUND, NONE, false, { NULL } },
	{ "tp 2, sp, dp 2", &even, { "parallel.tp=2", "parallel.sp=yes", "parallel.dp=2" }, 3, -1, -1, 4, DOUBLE_SOUND, DOUBLE_SOUND, SOME, false, { NULL } },
	{ "tp 2, sp, one rank cannot register", &gpt2, { "parallel.tp=2", "parallel.sp=yes" }, 2, -1, -1, 0, DOUBLE_SOUND, DOUBLE_UNREGISTERED, NONE, false, { NULL } },
	{ "cp 2, dp 2, zero 3", &llama, { "parallel.cp=2", "parallel.dp=2", "parallel.zero=3" }, 3, -1, 16, 6, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "dp 4, zero 3, without overlap", &gpt2, { "parallel.dp=4", "parallel.zero=3", "parallel.overlap=no" }, 2, -1, 0, 6, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "dp 2, zero 1", &gpt2, { "parallel.dp=2", "parallel.zero=1" }, 2, -1, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "dp 2, zero 2", &gpt2, { "parallel.dp=2", "parallel.zero=2" }, 2, -1, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, ALL, false, { NULL } },
	{ "dp 2, zero 3, without windows on a rank", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 6, DOUBLE_SOUND, DOUBLE_WITHOUT_WINDOWS, NONE, false, { NULL } },
	{ "dp 2, zero 3, without registered memory", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 0, DOUBLE_NO_MEMORY, DOUBLE_SOUND, NONE, false, { NULL } },
	{ "dp 2, zero 3, without memory on a rank", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 0, DOUBLE_SOUND, DOUBLE_NO_MEMORY, NONE, false, { NULL } },
	{ "dp 2, zero 3, one rank cannot register", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 0, DOUBLE_SOUND, DOUBLE_UNREGISTERED, NONE, false, { NULL } },
	{ "dp 2, zero 3, without windows between ranks", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 6, DOUBLE_EMPTY_WINDOWS, DOUBLE_SOUND, NONE, false, { NULL } },
	{ "dp 2, zero 3, windows on one rank only", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 6, DOUBLE_SOUND, DOUBLE_EMPTY_WINDOWS, NONE, false, { NULL } },
	{ "dp 2, zero 3, with shared resources", &gpt2, { "parallel.dp=2", "parallel.zero=3" }, 2, -1, 16, 6, DOUBLE_SOUND, DOUBLE_SOUND, ALL, true, { NULL } },
	{ "dp 2, ep 2, zero 3", &mixtral, { "parallel.dp=2", "parallel.ep=2", "parallel.zero=3" }, 3, -1, 16, 6, DOUBLE_SOUND, DOUBLE_SOUND, NONE, false, { NULL } },
	/* The ranks exchange blocks of rows, which hold one of NCCL's kernels each. */
	{ "dp 2, ep 2, zero 1, a capacity", &pairs, { "parallel.dp=2", "parallel.ep=2", "parallel.zero=1" }, 3, -1, 16, 1, DOUBLE_SOUND, DOUBLE_SOUND, NONE, false, { "precision.dtype=bf16", "model.capacity=1" } },
};
/* clang-format on */

struct course {
	const struct cell *cell;
	struct job job;
	bool device;
	double loss[STEPS], eval;
};

/* All that the replicas' groups and tp's exchange is in registered memory. */
static int check_memory(const struct cell *cell, struct err *e)
{
	int all, registered, windows = double_count_windows();
	double_count_buffers(&all, &registered);
	if (double_registered() < cell->registered || registered != all ||
	    (cell->registered > 0) != (registered > 0))
		return err_set(e, ERR_INTERNAL, "%d of %d buffers were registered, in %d pieces",
			       registered, all, double_registered());
	if (cell->windows == SOME ? windows == 0 || windows == registered
				  : windows != (cell->windows == ALL ? registered : 0))
		return err_set(e, ERR_INTERNAL, "%d of %d registered buffers were in windows",
			       windows, registered);
	if (double_count_allocated() != registered)
		return err_set(e, ERR_INTERNAL,
			       "%d of %d registered buffers were in memory of ncclMemAlloc",
			       double_count_allocated(), registered);
	return 0;
}

static int check_comms(const struct cell *cell, struct err *e)
{
	if (double_open_comms() != cell->comms)
		return err_set(e, ERR_INTERNAL, "%d communicators, not %d", double_open_comms(),
			       cell->comms);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	int messages = double_comm_processors("pp"), shards = double_comm_processors("zero shards");
	if (messages != cell->of_messages || shards != cell->of_shards)
		return err_set(e, ERR_INTERNAL, "%d processors for messages and %d for shards",
			       messages, shards);
#endif
	return 0;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	double loss, norm, eval;
	trainee_device = comm_rank(world);
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
	if (c->cell->shares)
		setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
	if (c->device)
		double_set_residency(1);
	if (c->device)
		double_set_fault(comm_rank(world) == 1 && c->cell->second ? c->cell->second
									  : c->cell->all);
	int rc = trainee_open(c->cell->model, &c->job, world, c->device ? "cuda" : "cpu", 1, &t, e);
	if (!rc && c->device)
		rc = check_comms(c->cell, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		rc = trainee_step(&t, step, &loss, &norm, e);
		if (!rc && comm_rank(world) == 0)
			c->loss[step] = loss;
	}
	if (!rc)
		rc = trainee_eval(&t, STEPS, &eval, e);
	if (!rc && comm_rank(world) == 0)
		c->eval = eval;
	if (!rc && c->device)
		rc = check_memory(c->cell, e);
	trainee_close(&t);
	if (!rc && double_registered())
		rc = err_set(e, ERR_INTERNAL, "%d buffers are still registered",
			     double_registered());
	if (!rc && double_allocated())
		rc = err_set(e, ERR_INTERNAL, "%d pieces of ncclMemAlloc are not freed",
			     double_allocated());
	return rc;
}

/* Trains on the devices as the cell says, or on the CPU with one rank. */
static struct course *train(const struct cell *cell, bool device)
{
	const char *words[WORDS + 4] = { NULL };
	struct err e = ERR_INIT;
	struct course *c = world_shared(sizeof *c);
	int n = 0;
	for (; device && cell->how[n]; n++)
		words[n] = cell->how[n];
	for (int i = 0; cell->both[i]; i++)
		words[n++] = cell->both[i];
	if (device)
		words[n++] = "job.device=cuda";
	*c = (struct course){ .cell = cell, .device = device };
	if (trainee_job(cell->model, words, &c->job, &e))
		fail_msg("%s: %s", cell->name, e.text);
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	if (world_run(layout_world(&l), attend, c))
		fail_msg("%s: failed on %s", cell->name, device ? "the devices" : "the CPU");
	return c;
}

/* The CPU rounds products of 16-bit numbers elsewhere. */
static bool near(const struct course *c, double a, double b)
{
	return fabs(a - b) <= (c->job.precision.dtype == DTYPE_FP32 ? 1e-4 : 1e-2) * fabs(b);
}

static void every_layout_gives_the_losses_of_the_cpu(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
		struct course *cpu = train(&cells[i], false), *gpu = train(&cells[i], true);
		print_message("    %s\n", cells[i].name);
		for (int step = 0; step < STEPS; step++)
			if (!near(gpu, gpu->loss[step], cpu->loss[step]))
				fail_msg("%s: step %d: loss %.9g, %.9g on the CPU", cells[i].name,
					 step, gpu->loss[step], cpu->loss[step]);
		if (!near(gpu, gpu->eval, cpu->eval))
			fail_msg("%s: evaluation %.9g, %.9g on the CPU", cells[i].name, gpu->eval,
				 cpu->eval);
		world_unshared(cpu, sizeof *cpu);
		world_unshared(gpu, sizeof *gpu);
	}
}

/* --- Stops --- */

/* Training stops after half of the steps, and continues from the checkpoint. */
struct halt {
	struct job job;
	char dir[64];
	bool saves, continues; /* both: in one process, as after a warm restart */
	double loss[STEPS];
};

static int run_steps(struct halt *h, struct comm *world, bool resumed, struct err *e)
{
	struct trainee t;
	double loss, norm;
	int half = STEPS / 2, from = resumed ? half : 0, to = !resumed && h->saves ? half : STEPS;
	int rc = trainee_resume(&gpt2, &h->job, world, "cuda", 1, resumed ? h->dir : NULL, &t, e);
	for (int step = from; !rc && step < to; step++) {
		rc = trainee_step(&t, step, &loss, &norm, e);
		if (!rc && comm_rank(world) == 0)
			h->loss[step] = loss;
	}
	if (!rc && to == half)
		rc = trainee_save(&t, h->dir, half, e);
	trainee_close(&t);
	if (!rc && (double_open_comms() || double_registered() || double_allocated()))
		rc = err_set(e, ERR_INTERNAL, "a rank left something open");
	return rc;
}

static int halt(struct comm *world, void *arg, struct err *e)
{
	struct halt *h = arg;
	trainee_device = comm_rank(world);
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
	if ((h->saves || !h->continues) && run_steps(h, world, false, e))
		return -1;
	return h->continues ? run_steps(h, world, true, e) : 0;
}

static void check_halt(struct halt *h, const struct halt *whole, const char *how)
{
	for (int step = 0; step < STEPS; step++)
		if (h->loss[step] != whole->loss[step])
			fail_msg("%s: step %d: loss %.17g, %.17g without a stop", how, step,
				 h->loss[step], whole->loss[step]);
}

static void a_stop_changes_no_bit(void **state)
{
	const char *words[] = { "parallel.dp=2", "parallel.zero=3", "job.device=cuda", NULL };
	struct err e = ERR_INIT;
	struct halt *whole = world_shared(sizeof *whole), *h = world_shared(sizeof *h);
	(void)state;
	assert_non_null(tmpdir_make(h->dir, sizeof h->dir));
	if (trainee_job(&gpt2, words, &h->job, &e))
		fail_msg("%s", e.text);
	*whole = *h;
	assert_int_equal(world_run(2, halt, whole), 0);
	h->saves = h->continues = true;
	assert_int_equal(world_run(2, halt, h), 0);
	check_halt(h, whole, "in one process");
	memset(h->loss, 0, sizeof h->loss);
	h->continues = false;
	assert_int_equal(world_run(2, halt, h), 0);
	h->saves = false;
	h->continues = true;
	assert_int_equal(world_run(2, halt, h), 0);
	check_halt(h, whole, "in a new process");
	file_remove_tree(h->dir);
	world_unshared(h, sizeof *h);
	world_unshared(whole, sizeof *whole);
}

/* --- Calibration --- */

static int measure(struct comm *world, void *arg, struct err *e)
{
	static struct measured_chip out;
	const struct bench_chip b = { .elements = 2048, .seconds = 1e-4 };
	int all, registered;
	(void)arg;
	if (bench_chip_exchanges(world, &b, &out, e))
		return -1;
	double_count_buffers(&all, &registered);
	if (!registered || registered != all || double_count_windows() != all)
		return err_set(e, ERR_INTERNAL, "%d of %d buffers were registered, %d in windows",
			       registered, all, double_count_windows());
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	int last = double_comm_processors("calibration");
	if (last != PROCESSORS_OF_MESSAGES)
		return err_set(e, ERR_INTERNAL, "messages have %d processors", last);
#endif
	return 0;
}

static void calibration_measures_what_training_does(void **state)
{
	(void)state;
	assert_int_equal(world_run(2, measure, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calibration_measures_what_training_does),
		cmocka_unit_test(a_stop_changes_no_bit),
		cmocka_unit_test(every_layout_gives_the_losses_of_the_cpu),
	};
	return cmocka_run_group_tests_name("training over doubles of CUDA and NCCL", tests, NULL,
					   NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"training over doubles of CUDA and NCCL")

#endif
