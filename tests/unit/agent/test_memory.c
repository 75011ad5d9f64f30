/*
 * The plan's memory is the engine's: for each rank of each layout what plan_memory_rank predicts is
 * what the engine and the optimizer then allocate, to the byte. (The snapshot is checked where it is saved, test_train_state.c.)
 */
#include "agent/optim/optim.h"
#include "agent/pipeline/engine.h"
#include "plan/plan.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Activations, logits in several chunks, parameters: each is most of the memory once. */
static const struct tiny
	gpt2 = { "gpt2, activations", FAMILY_GPT2, 6, 64, 4, 4, 16, 200, 300, 64, TIE_YES, 4, 64, 0.02 },
	llama = { "llama, activations", FAMILY_LLAMA, 6, 64, 8, 4, 8, 190, 301, 64, TIE_NO, 4, 64, 0.02 },
	wide = { "gpt2, logits", FAMILY_GPT2, 4, 16, 4, 4, 4, 64, 60000, 128, TIE_YES, 4, 64, 0.02 },
	deep = { "llama, parameters", FAMILY_LLAMA, 8, 128, 4, 4, 32, 352, 128, 8, TIE_YES, 1, 64, 0.02 };

static const struct layout layouts[] = {
	{ .tp = 1, .pp = 1, .dp = 1 }, { .tp = 2, .pp = 1, .dp = 1 }, { .tp = 1, .pp = 4, .dp = 1 },
	{ .tp = 1, .pp = 1, .dp = 2 }, { .tp = 2, .pp = 2, .dp = 2 }, { .tp = 4, .pp = 2, .dp = 1 },
};

struct course {
	const struct tiny *model;
	struct layout layout;
	enum job_schedule schedule;
	struct account {
		double predicted, taken;
	} *accounts; /* [world], shared */
};

static double predict(const struct job *job, const struct layout *l, struct coords at, struct err *e)
{
	struct model_shape shape;
	struct stage stages[8];
	struct plan_rank r = { .at = at };
	model_shape(job, &shape);
	if (layout_stages(&shape, l->pp, stages, e))
		return 0;
	plan_memory_rank(job, &shape, l, (int)(job->batch.global / job->batch.micro / l->dp), &stages[at.pp], &r);
	return r.total;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	const struct course *c = arg;
	struct account *a = &c->accounts[comm_rank(world)];
	struct coords at = layout_coords(&c->layout, comm_rank(world));
	struct job job;
	struct engine_options opt = { .job = &job, .layout = c->layout, .at = at, .world = world, .backend = "cpu", .threads = 1 };
	struct engine *engine = NULL;
	struct optim *optim = NULL;
	tiny_job(c->model, &job);
	job.parallel.schedule = c->schedule;
	int64_t tokens = job.batch.global / c->layout.dp * job.model.seq;
	int rc = engine_open(&opt, &engine, e) ||
		 optim_open(engine_kern(engine), engine_catalogue(engine), &job, &optim, e) ? -1 : 0;
	if (!rc) {
		a->predicted = predict(&job, &c->layout, at, e);
		/* The trainer holds the step's tokens: inputs and targets. */
		a->taken = (double)engine_peak_bytes(engine) + 2.0 * (double)tokens * sizeof(int32_t);
	}
	optim_close(optim);
	engine_close(engine);
	return rc;
}

static void check(const struct tiny *model, enum job_schedule schedule)
{
	size_t bytes = WORLD_MOST * sizeof(struct account);
	struct account *accounts = world_shared(bytes);
	int wrong = 0;
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		struct course c = { model, layouts[i], schedule, accounts };
		int world = layout_world(&c.layout);
		memset(accounts, 0, bytes);
		assert_int_equal(world_run(world, attend, &c), 0);
		for (int r = 0; r < world; r++) {
			if (accounts[r].predicted == accounts[r].taken)
				continue;
			wrong++;
			printf("  %s, tp %d pp %d dp %d, rank %d: %.0f bytes predicted, %.0f taken\n", model->name, c.layout.tp,
			       c.layout.pp, c.layout.dp, r, accounts[r].predicted, accounts[r].taken);
		}
	}
	assert_int_equal(wrong, 0);
	world_unshared(accounts, bytes);
}

static void gpt2_takes_what_was_predicted(void **state)
{
	(void)state;
	check(&gpt2, SCHEDULE_1F1B);
}

static void llama_takes_what_was_predicted(void **state)
{
	(void)state;
	check(&llama, SCHEDULE_1F1B);
}

static void gpipe_keeps_every_micro_batch(void **state)
{
	(void)state;
	check(&gpt2, SCHEDULE_GPIPE);
	check(&llama, SCHEDULE_GPIPE);
}

static void logits_are_cut_as_predicted(void **state)
{
	(void)state;
	check(&wide, SCHEDULE_1F1B);
}

static void parameters_and_moments_are_counted(void **state)
{
	(void)state;
	check(&deep, SCHEDULE_1F1B);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_takes_what_was_predicted),
		cmocka_unit_test(llama_takes_what_was_predicted),
		cmocka_unit_test(gpipe_keeps_every_micro_batch),
		cmocka_unit_test(logits_are_cut_as_predicted),
		cmocka_unit_test(parameters_and_moments_are_counted),
	};
	return cmocka_run_group_tests_name("memory, predicted and taken", tests, NULL, NULL);
}
