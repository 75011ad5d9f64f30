/*
 * Counts what a training step costs the host on a device: how often the training thread waits for
 * the device, and what it launches. In the one way, the host reads loss and norm before it queues
 * the update; in the other, it reads them one step later (agent/engine/train/stepper.h). The steps
 * are the engine's own, in each case that once had to wait for its own numbers.
 *
 * With 2 ranks NCCL's double only counts calls, so that the ranks' numbers mean nothing.
 */
#include "tests/gpu/doubles/recorder.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined HAVE_NCCL && defined HAVE_CUDA

enum { STEPS = 6, SETTLED = 3, WORDS = 8 };

static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 2, 0.1 },
	experts = { "experts", FAMILY_MIXTRAL, 2, 16, 2, 2, 8, 16, 61, 8, TIE_NO, 1, 2, 0.1 };

struct cost {
	struct double_calls calls;
	int64_t transfers; /* calls of NCCL */
};

/* What is counted. */
struct scene {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
	bool overflows; /* the gradients of some steps become NaN, and fp16 skips these */
	bool launches;  /* a late step launches more than graphs */
};

struct count {
	const struct scene *scene;
	struct job job;
	struct layout layout;
	bool late;
	struct cost step[STEPS];
	double loss[STEPS], norm[STEPS];
	bool skipped[STEPS];
};

struct rank {
	struct trainee t;
	const struct count *c;
	int step;
};

static int64_t transfers(void)
{
	struct recorded all = recorder_calls();
	int64_t n = 0;
	for (int i = 0; i < RECORDED_KINDS; i++)
		n += all.calls[i];
	return n;
}

static struct cost cost_now(void)
{
	return (struct cost){ double_calls(), transfers() };
}

static struct cost less(struct cost a, struct cost b)
{
	a.calls.launches -= b.calls.launches;
	a.calls.graphs -= b.calls.graphs;
	a.calls.copies -= b.calls.copies;
	a.calls.stream_waits -= b.calls.stream_waits;
	a.calls.event_waits -= b.calls.event_waits;
	a.transfers -= b.transfers;
	return a;
}

static bool overflows(const struct scene *s, int step)
{
	return s->overflows && (step == SETTLED || step == SETTLED + 1);
}

static int spoil_gradients(void *arg, struct err *e)
{
	const struct rank *r = arg;
	const float nan = NAN;
	int n;
	const struct param_piece *pieces = param_store_pieces(r->t.state.store, &n);
	(void)e;
	if (overflows(r->c->scene, r->step))
		backend_put(pipeline_backend(r->t.engine), pieces[0].grad, &nan, sizeof nan);
	return 0;
}

/* Takes down the numbers that are known. */
static void note(const struct rank *r, struct count *c)
{
	const struct step_result *n = &r->t.stepper.last;
	if (comm_rank(r->t.world) || isnan(n->loss))
		return;
	c->loss[n->step] = n->loss;
	c->norm[n->step] = n->norm;
	c->skipped[n->step] = n->skipped;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct count *c = arg;
	struct rank r = { .c = c };
	double loss, norm;
	trainee_device = comm_rank(world);
	trainee_reading = c->late ? TRAIN_READS_AS_FITS : TRAIN_READS_AT_ONCE;
	int rc = trainee_open(c->scene->model, &c->job, world, "cuda", 1, &r.t, e);
	if (!rc && r.t.stepper.late != c->late)
		rc = err_set(e, ERR_INTERNAL, "%s: numbers are read in the wrong way",
			     c->scene->name);
	r.t.hooks.arg = &r;
	r.t.hooks.queued = spoil_gradients;
	for (r.step = 0; !rc && r.step < STEPS; r.step++) {
		struct cost before = cost_now();
		rc = trainee_step(&r.t, r.step, &loss, &norm, e);
		if (comm_rank(world) == 0)
			c->step[r.step] = less(cost_now(), before);
		note(&r, c);
	}
	if (!rc)
		rc = trainee_settle(&r.t, &loss, &norm, e);
	note(&r, c);
	trainee_close(&r.t);
	return rc;
}

static struct count *count_of(const struct scene *scene, bool late)
{
	struct count *c = world_shared(sizeof *c);
	struct err e = ERR_INIT;
	const char *all[WORDS + 2] = { "job.device=cuda" };
	for (int i = 0; scene->words[i]; i++)
		all[i + 1] = scene->words[i];
	c->scene = scene;
	c->late = late;
	if (trainee_job(scene->model, all, &c->job, &e))
		fail_msg("%s", e.text);
	c->layout = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&c->layout), attend, c), 0);
	return c;
}

static void print_cost(const char *name, const struct cost *c)
{
	printf("    %-36s %3lld waits, %3lld launches, %2lld graphs, %3lld copies, %2lld calls of "
	       "NCCL\n",
	       name, (long long)(c->calls.stream_waits + c->calls.event_waits),
	       (long long)c->calls.launches, (long long)c->calls.graphs, (long long)c->calls.copies,
	       (long long)c->transfers);
}

/* A late step waits once, for the copy of the numbers of the step before, and never for a
 * stream, whose end is that of the passes that were just queued. Norm, judgement and update are
 * one graph, so that nothing is launched by itself. */
static void compare_costs(const struct scene *s, const struct count *once, const struct count *late)
{
	char name[64];
	for (int i = SETTLED; i < STEPS; i++) {
		const struct cost *a = &once->step[i], *b = &late->step[i];
		snprintf(name, sizeof name, "%s, step %d", s->name, i + 1);
		print_cost(name, a);
		print_cost("                      later", b);
		assert_int_equal(a->calls.stream_waits + a->calls.event_waits, 2);
		assert_int_equal(b->calls.stream_waits, 0);
		assert_int_equal(b->calls.event_waits, 1);
		assert_true(a->calls.launches > 0);
		if (s->launches)
			continue;
		assert_int_equal(b->calls.launches, 0);
		assert_int_equal(b->calls.graphs, a->calls.graphs + 1);
	}
}

static void compare_numbers(const struct scene *s, const struct count *once,
			    const struct count *late)
{
	assert_memory_equal(once->loss, late->loss, sizeof once->loss);
	assert_memory_equal(once->norm, late->norm, sizeof once->norm);
	assert_memory_equal(once->skipped, late->skipped, sizeof once->skipped);
	for (int i = 0; i < STEPS; i++)
		assert_int_equal(late->skipped[i], overflows(s, i));
}

static void compare(const struct scene *s)
{
	struct count *once = count_of(s, false), *late = count_of(s, true);
	compare_costs(s, once, late);
	if (layout_world(&late->layout) == 1)
		compare_numbers(s, once, late);
	world_unshared(once, sizeof *once);
	world_unshared(late, sizeof *late);
}

#define BF16    "precision.dtype=bf16"
#define FP16    "precision.dtype=fp16"
#define RANDOM  "precision.stochastic_rounding=yes"
#define DELAYED "precision.fp8=hybrid", "precision.fp8_scaling=delayed"

static void a_step_waits_only_for_the_step_before(void **state)
{
	/* clang-format off */
	static const struct scene scenes[] = {
		{ "1 rank", &gpt2, { NULL }, false, false },
		{ "dp 2, zero 1", &gpt2, { "parallel.dp=2", "parallel.zero=1" }, false, false },
		/* with the balancing loss, and with a loss scale that the device sets */
		{ "experts", &experts, { BF16 }, false, false },
		{ "experts, fp16", &experts, { FP16, "model.capacity=1" }, false, false },
		/* the ranks exchange blocks of rows, of which a capacity fixes the sizes */
		{ "experts, ep 2", &experts, { BF16, "parallel.dp=2", "parallel.ep=2", "model.capacity=1" }, false, false },
		/* cases that compare or change more than one number */
		{ "skip", &gpt2, { "health.bad_numbers=skip", "health.spike_window=8" }, false, false },
		{ "stop", &gpt2, { "health.bad_numbers=stop", "parallel.dp=2" }, false, false },
		{ "delayed scaling", &gpt2, { BF16, DELAYED }, false, true },
		{ "delayed scaling, dp 2", &gpt2, { BF16, DELAYED, "parallel.dp=2" }, false, true },
		{ "rounded at random, tp 2", &gpt2, { BF16, RANDOM, "parallel.tp=2" }, false, true },
		/* steps that are skipped */
		{ "overflows", &gpt2, { FP16 }, true, false },
		{ "overflows, rounded at random", &gpt2, { FP16, RANDOM, "health.bad_numbers=stop" }, true, true },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		compare(&scenes[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_waits_only_for_the_step_before),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("waits of the host in a step", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("waits of the host in a step")

#endif
