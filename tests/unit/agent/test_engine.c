/* The engine's edges: what it refuses, what it reports, and what a rank sees when another one is gone. */
#include "agent/pipeline/engine.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny model = { "gpt2", FAMILY_GPT2, 2, 16, 4, 4, 4, 37, 29, 9, TIE_YES, 1, 4, 0.1 };

struct tokens {
	int32_t inputs[256], targets[256];
};

static struct engine_options options(const struct job *job, struct layout l, struct comm *world)
{
	return (struct engine_options){ .job = job, .layout = l, .at = layout_coords(&l, comm_rank(world)), .world = world,
					.backend = "plain", .threads = 1 };
}

/* What is wrong with a job, and what the refusal must say. */
struct refusal {
	int64_t micro, global;
	struct layout layout;
	const char *backend, *says;
};

static const struct refusal refusals[] = {
	{ 3, 4, { .tp = 1, .pp = 1, .dp = 1 }, "plain", "batch.global = 4 is no multiple of batch.micro = 3" },
	{ 1, 4, { .tp = 1, .pp = 3, .dp = 1 }, "plain", "pp = 3" },
	{ 1, 4, { .tp = 2, .pp = 1, .dp = 1 }, "plain", "the world is rank 0 of 1" },
	{ 1, 4, { .tp = 1, .pp = 1, .dp = 1 }, "abacus", "backend 'abacus'" },
};

static int refuse(struct comm *world, void *arg, struct err *e)
{
	const struct refusal *r = arg;
	struct job job;
	struct engine *g = NULL;
	tiny_job(&model, &job);
	job.batch.micro = r->micro;
	job.batch.global = r->global;
	struct engine_options opt = options(&job, r->layout, world);
	opt.backend = r->backend;
	if (!engine_open(&opt, &g, e)) {
		engine_close(g);
		return err_set(e, ERR_INTERNAL, "opened, where it had to say '%s'", r->says);
	}
	return g || !strstr(e->text, r->says) ? err_prefix(e, "expected '%s', got", r->says) : 0;
}

static void a_job_it_cannot_run_is_refused_by_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		assert_int_equal(world_run(1, refuse, (void *)&refusals[i]), 0);
	engine_close(NULL);
}

struct phases {
	char text[4096];
};

static void note(const char *what, void *arg)
{
	struct phases *p = arg;
	strncat(p->text, what, sizeof p->text - strlen(p->text) - 2);
	strcat(p->text, " ");
}

/* Two stages, four micro-batches, 1F1B: the row of each stage, step by step. */
static const char *const rows[] = {
	"forward send-activations "
	"forward send-activations receive-gradients backward forward send-activations receive-gradients backward "
	"forward send-activations receive-gradients backward receive-gradients backward reduce-gradients share-loss ",
	"receive-activations forward backward send-gradients receive-activations forward backward send-gradients "
	"receive-activations forward backward send-gradients receive-activations forward backward send-gradients "
	"reduce-gradients share-loss ",
};

static int walk(struct comm *world, void *arg, struct err *e)
{
	struct job job;
	struct tokens t;
	struct phases seen = { "" };
	struct engine *g;
	struct engine_times times;
	double loss;
	int rank = comm_rank(world);

	(void)arg;
	tiny_job(&model, &job);
	tiny_batch(&model, 0, model.global, t.inputs, t.targets);
	struct engine_options opt = options(&job, (struct layout){ .tp = 1, .pp = 2, .dp = 1 }, world);
	opt.phase = note;
	opt.phase_arg = &seen;
	if (engine_open(&opt, &g, e))
		return -1;
	engine_init(g);
	int rc = engine_step(g, t.inputs, t.targets, &loss, e);
	engine_times(g, &times);
	if (!rc && strcmp(seen.text, rows[rank]))
		rc = err_set(e, ERR_INTERNAL, "walked %s", seen.text);
	if (!rc && (times.compute <= 0 || times.pp <= 0 || times.tp != 0))
		rc = err_set(e, ERR_INTERNAL, "times: compute %g pp %g tp %g", times.compute, times.pp, times.tp);
	if (!rc && engine_peak_bytes(g) < 8 * engine_catalogue(g)->elements)
		rc = err_set(e, ERR_INTERNAL, "peak of %lld bytes does not hold parameters and gradients", (long long)engine_peak_bytes(g));
	engine_close(g);
	return rc;
}

static void each_stage_walks_its_row_and_says_so(void **state)
{
	(void)state;
	assert_int_equal(world_run(2, walk, NULL), 0);
}

/* Rank 3 leaves after the first step; the others' second step must fail, by itself, and close. */
static int lose_one(struct comm *world, void *arg, struct err *e)
{
	static const struct layout cube = { .tp = 2, .pp = 2, .dp = 2 };
	struct job job;
	struct tokens t;
	struct engine *g;
	double loss;

	(void)arg;
	tiny_job(&model, &job);
	tiny_batch(&model, 0, model.global, t.inputs, t.targets);
	struct engine_options opt = options(&job, cube, world);
	if (engine_open(&opt, &g, e))
		return -1;
	engine_init(g);
	int rc = engine_step(g, t.inputs, t.targets, &loss, e);
	if (!rc && comm_rank(world) == 3) {
		engine_close(g);
		comm_abort(world, "rank 3 leaves");
		return 0;
	}
	if (!rc && !engine_step(g, t.inputs, t.targets, &loss, e))
		rc = err_set(e, ERR_INTERNAL, "a step without rank 3 came to an end");
	engine_close(g);
	return rc;
}

static void a_lost_rank_ends_the_step_of_all(void **state)
{
	(void)state;
	assert_int_equal(world_run(8, lose_one, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_it_cannot_run_is_refused_by_name),
		cmocka_unit_test(each_stage_walks_its_row_and_says_so),
		cmocka_unit_test(a_lost_rank_ends_the_step_of_all),
	};
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
