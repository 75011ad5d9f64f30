/*
 * The layout changes how a step is computed, not what: losses and gradient norms of
 * twenty AdamW steps in every layout are those of one process. And bits that must be
 * equal are: the loss on all ranks, parameters over dp, the tied table on first and last stage.
 */
#include "agent/optim/optim.h"
#include "agent/pipeline/engine.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20 };
static const double tolerance = 1e-5;

/* Sizes that nothing divides: 5 layers over 2 and 4 stages, 5 key/value heads and an odd ffn over 2 and 4 ranks. */
static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 5, 20, 5, 5, 4, 51, 101, 9, TIE_YES, 1, 8, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 5, 24, 10, 5, 4, 45, 103, 9, TIE_NO, 2, 8, 0.1 },
	llama_tied = { "llama, 3 kv heads, tied", FAMILY_LLAMA, 3, 20, 6, 3, 6, 37, 67, 7, TIE_YES, 1, 8, 0.1 },
	vocabulary = { "gpt2, vocabulary of 50257", FAMILY_GPT2, 2, 24, 4, 4, 6, 41, 50257, 4, TIE_YES, 1, 4, 0.1 };

static const struct layout three_d[] = {
	{ .tp = 2, .pp = 1, .dp = 1 }, { .tp = 4, .pp = 1, .dp = 1 }, { .tp = 1, .pp = 2, .dp = 1 },
	{ .tp = 1, .pp = 4, .dp = 1 }, { .tp = 1, .pp = 1, .dp = 2 }, { .tp = 1, .pp = 1, .dp = 4 },
	{ .tp = 2, .pp = 2, .dp = 1 }, { .tp = 2, .pp = 1, .dp = 2 }, { .tp = 1, .pp = 2, .dp = 2 },
	{ .tp = 2, .pp = 2, .dp = 2 }, { .tp = 4, .pp = 2, .dp = 1 }, { .tp = 4, .pp = 1, .dp = 2 },
	{ .tp = 1, .pp = 4, .dp = 2 }, { .tp = 2, .pp = 4, .dp = 1 }, { .tp = 1, .pp = 2, .dp = 4 },
	{ .tp = 2, .pp = 1, .dp = 4 },
};
static const struct layout few[] = {
	{ .tp = 2, .pp = 1, .dp = 1 }, { .tp = 1, .pp = 2, .dp = 2 }, { .tp = 2, .pp = 2, .dp = 2 },
};

/* What a rank has to say. */
struct account {
	double loss[STEPS], norm[STEPS], eval;
	uint64_t params, tied; /* digests of the flat buffer and of the tied table; 0: none here */
};

struct course {
	const struct tiny *model;
	struct layout layout;
	enum job_schedule schedule;
	struct account *accounts; /* [world], shared */
};

static uint64_t digest(const float *x, int64_t n)
{
	uint64_t h = 1469598103934665603u;
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		h = (h ^ bits) * 1099511628211u;
	}
	return h;
}

struct trainee {
	struct engine *engine;
	struct optim *optim;
	struct job job;
	const struct course *course;
	struct coords at;
	int64_t each;               /* sequences of a dp rank in a step */
	int32_t *inputs, *targets;
};

/* Four batches in turn: seen again, they are learned whatever the vocabulary. */
static void batch_of(struct trainee *t, int step)
{
	int64_t first = step % 4 * t->course->model->global + t->at.dp * t->each;
	tiny_batch(t->course->model, first, t->each, t->inputs, t->targets);
}

static int train(struct trainee *t, struct account *a, struct err *e)
{
	struct engine *g = t->engine;
	for (int step = 0; step < STEPS; step++) {
		batch_of(t, step);
		if (engine_step(g, t->inputs, t->targets, &a->loss[step], e) || engine_grad_norm(g, &a->norm[step], e))
			return -1;
		optim_step(t->optim, engine_params(g), engine_grads(g), a->norm[step], step);
	}
	batch_of(t, STEPS);
	if (engine_eval(g, t->inputs, t->targets, &a->eval, e))
		return -1;
	const struct param *table = catalogue_find(engine_catalogue(g), PARAM_EMBED, -1);
	a->params = digest(engine_params(g), engine_catalogue(g)->elements);
	a->tied = table ? digest(engine_params(g) + table->offset, table->count) : 0;
	return 0;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	const struct course *c = arg;
	struct trainee t = { .course = c, .at = layout_coords(&c->layout, comm_rank(world)) };
	struct engine_options opt = { .job = &t.job, .layout = c->layout, .at = t.at, .world = world, .backend = "cpu", .threads = 1 };
	int rc = -1;

	tiny_job(c->model, &t.job);
	t.job.parallel.schedule = c->schedule;
	t.job.optimizer.lr = 3e-3; /* a larger rate lets training itself blow rounding up within twenty steps */
	t.each = c->model->global / c->layout.dp;
	t.inputs = calloc((size_t)(t.each * c->model->seq), sizeof *t.inputs);
	t.targets = calloc((size_t)(t.each * c->model->seq), sizeof *t.targets);
	if (engine_open(&opt, &t.engine, e))
		goto out;
	engine_init(t.engine);
	tiny_shake(engine_catalogue(t.engine), engine_params(t.engine));
	if (optim_open(engine_kern(t.engine), engine_catalogue(t.engine), &t.job, &t.optim, e))
		goto out;
	rc = train(&t, &c->accounts[comm_rank(world)], e);
out:
	optim_close(t.optim);
	engine_close(t.engine);
	free(t.inputs);
	free(t.targets);
	return rc;
}

static double off(double got, double want)
{
	return fabs(got - want) / fabs(want);
}

/* The largest relative difference, which is NaN when anything is. */
static double difference(const struct account *a, const struct account *alone)
{
	double most = off(a->eval, alone->eval);
	for (int i = 0; i < STEPS; i++) {
		double loss = off(a->loss[i], alone->loss[i]), norm = off(a->norm[i], alone->norm[i]);
		if (!(loss <= most))
			most = loss;
		if (!(norm <= most))
			most = norm;
	}
	return most;
}

static void check_bits(const struct course *c)
{
	const struct layout *l = &c->layout;
	for (int rank = 0; rank < layout_world(l); rank++) {
		struct coords at = layout_coords(l, rank);
		const struct account *a = &c->accounts[rank], *first = &c->accounts[0];
		assert_memory_equal(a->loss, first->loss, sizeof a->loss);
		assert_memory_equal(a->norm, first->norm, sizeof a->norm);
		assert_true(a->eval == first->eval);
		int replica = layout_rank(l, (struct coords){ at.tp, 0, at.pp });
		assert_int_equal(a->params, c->accounts[replica].params);
		int origin = layout_rank(l, (struct coords){ at.tp, at.dp, 0 });
		if (c->model->tie == TIE_YES && at.pp == l->pp - 1)
			assert_int_equal(a->tied, c->accounts[origin].tied);
	}
}

static void run_course(struct course *c)
{
	assert_int_equal(world_run(layout_world(&c->layout), attend, c), 0);
}

static void check_layouts(const struct tiny *model, enum job_schedule schedule, const struct layout *layouts, size_t n)
{
	size_t bytes = (WORLD_MOST + 1) * sizeof(struct account);
	struct account *accounts = world_shared(bytes), *alone = &accounts[WORLD_MOST];
	struct course single = { model, { .tp = 1, .pp = 1, .dp = 1 }, schedule, alone };
	double most = 0;

	run_course(&single);
	assert_true(alone->loss[STEPS - 1] < alone->loss[0]); /* it learns */
	for (size_t i = 0; i < n; i++) {
		struct course c = { model, layouts[i], schedule, accounts };
		run_course(&c);
		double d = difference(&accounts[0], alone);
		printf("  %s, tp %d pp %d dp %d: losses and norms off by %.1e\n", model->name, c.layout.tp, c.layout.pp, c.layout.dp, d);
		if (!(d <= most))
			most = d;
		check_bits(&c);
	}
	assert_true(most <= tolerance);
	world_unshared(accounts, bytes);
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void gpt2_trains_alike_in_every_layout(void **state)
{
	(void)state;
	check_layouts(&gpt2, SCHEDULE_1F1B, three_d, COUNT(three_d));
}

static void llama_trains_alike_in_every_layout(void **state)
{
	(void)state;
	check_layouts(&llama, SCHEDULE_1F1B, three_d, COUNT(three_d));
}

static void three_kv_heads_and_a_tied_llama_train_alike(void **state)
{
	(void)state;
	check_layouts(&llama_tied, SCHEDULE_1F1B, few, COUNT(few));
}

static void gpipe_trains_alike(void **state)
{
	(void)state;
	check_layouts(&llama_tied, SCHEDULE_GPIPE, few, COUNT(few));
}

static void a_vocabulary_that_nothing_divides_trains_alike(void **state)
{
	(void)state;
	check_layouts(&vocabulary, SCHEDULE_1F1B, few, COUNT(few));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_trains_alike_in_every_layout),
		cmocka_unit_test(llama_trains_alike_in_every_layout),
		cmocka_unit_test(three_kv_heads_and_a_tied_llama_train_alike),
		cmocka_unit_test(gpipe_trains_alike),
		cmocka_unit_test(a_vocabulary_that_nothing_divides_trains_alike),
	};
	return cmocka_run_group_tests_name("layouts against one process", tests, NULL, NULL);
}
