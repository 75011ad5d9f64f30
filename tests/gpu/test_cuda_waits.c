/*
 * Counts what a training step costs the host on a device: how often the training thread waits for
 * the device, and what it launches. In the one way, the host reads loss and norm before it queues
 * the update; in the other, it reads them one step later (agent/engine/train/late.c).
 *
 * With 2 ranks NCCL's double only counts calls, so that the ranks' numbers mean nothing.
 */
#include "tests/gpu/doubles/recorder.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

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

struct count {
	const struct tiny *model;
	struct job job;
	bool late;
	struct cost step[STEPS];
	double loss[STEPS], norm[STEPS];
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
	a.calls.queries -= b.calls.queries;
	a.transfers -= b.transfers;
	return a;
}

/* The numbers of a late step come with the next one. */
static int one_step(struct trainee *t, struct count *c, int step, struct err *e)
{
	double loss, norm;
	int rc = c->late ? trainee_step_late(t, step, &loss, &norm, e)
			 : trainee_step(t, step, &loss, &norm, e);
	int of = step - c->late;
	if (!rc && of >= 0 && comm_rank(t->world) == 0) {
		c->loss[of] = loss;
		c->norm[of] = norm;
	}
	return rc;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct count *c = arg;
	struct trainee t;
	trainee_device = comm_rank(world);
	int rc = trainee_open(c->model, &c->job, world, "cuda", 1, &t, e);
	if (!rc && c->late)
		trainee_late(&t);
	for (int step = 0; !rc && step < STEPS; step++) {
		struct cost before = cost_now();
		rc = one_step(&t, c, step, e);
		if (comm_rank(world) == 0)
			c->step[step] = less(cost_now(), before);
	}
	if (!rc && c->late)
		rc = trainee_settle(&t, &c->loss[STEPS - 1], &c->norm[STEPS - 1], e);
	trainee_close(&t);
	return rc;
}

static struct count *count_of(const struct tiny *model, const char *const *words, bool late)
{
	struct count *c = world_shared(sizeof *c);
	struct err e = ERR_INIT;
	const char *all[WORDS] = { "job.device=cuda" };
	for (int i = 0; words[i]; i++)
		all[i + 1] = words[i];
	c->model = model;
	c->late = late;
	if (trainee_job(model, all, &c->job, &e))
		fail_msg("%s", e.text);
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&l), attend, c), 0);
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
static void compare(const struct tiny *model, const char *const *words, int waits_at_once)
{
	struct count *once = count_of(model, words, false), *late = count_of(model, words, true);
	char name[64];
	for (int i = SETTLED; i < STEPS; i++) {
		const struct cost *a = &once->step[i], *b = &late->step[i];
		snprintf(name, sizeof name, "%s, step %d, at once", words[0] ? words[0] : "1 rank",
			 i + 1);
		print_cost(name, a);
		print_cost("                      later", b);
		assert_int_equal(a->calls.stream_waits + a->calls.event_waits, waits_at_once);
		assert_int_equal(b->calls.stream_waits, 0);
		assert_in_range(b->calls.event_waits, 0, 1);
		assert_true(a->calls.launches > 0);
		assert_int_equal(b->calls.launches, 0);
		assert_int_equal(b->calls.graphs, a->calls.graphs + 1);
	}
	world_unshared(once, sizeof *once);
	world_unshared(late, sizeof *late);
}

static void one_rank_waits_only_for_the_step_before(void **state)
{
	(void)state;
	compare(&gpt2, (const char *[]){ NULL }, 2);
}

static void two_ranks_wait_only_for_the_step_before(void **state)
{
	(void)state;
	compare(&gpt2, (const char *[]){ "parallel.dp=2", "parallel.zero=1", NULL }, 2);
}

/* With the balancing loss, and with a loss scale that the device sets. */
static void experts_wait_only_for_the_step_before(void **state)
{
	(void)state;
	compare(&experts, (const char *[]){ "precision.dtype=bf16", NULL }, 2);
	compare(&experts, (const char *[]){ "precision.dtype=fp16", "model.capacity=1", NULL }, 2);
}

/* The ranks exchange blocks of rows, of which a capacity fixes the sizes. */
static void experts_of_two_ranks_wait_only_for_the_step_before(void **state)
{
	(void)state;
	compare(&experts,
		(const char *[]){ "precision.dtype=bf16", "parallel.dp=2", "parallel.ep=2",
				  "model.capacity=1", NULL },
		2);
}

static void numbers_that_are_read_later_have_the_same_bits(void **state)
{
	(void)state;
	const char *words[] = { "precision.dtype=fp16", "precision.loss_scale=1024", NULL };
	struct count *once = count_of(&gpt2, words, false), *late = count_of(&gpt2, words, true);
	assert_memory_equal(once->loss, late->loss, sizeof once->loss);
	assert_memory_equal(once->norm, late->norm, sizeof once->norm);
	assert_true(once->loss[0] > once->loss[STEPS - 2]);
	world_unshared(once, sizeof *once);
	world_unshared(late, sizeof *late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank_waits_only_for_the_step_before),
		cmocka_unit_test(two_ranks_wait_only_for_the_step_before),
		cmocka_unit_test(experts_wait_only_for_the_step_before),
		cmocka_unit_test(experts_of_two_ranks_wait_only_for_the_step_before),
		cmocka_unit_test(numbers_that_are_read_later_have_the_same_bits),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("waits of the host in a step", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("waits of the host in a step")

#endif
