/*
 * Gradients in 8 bits have the same bits whichever op casts them. In a whole backward pass a norm
 * casts the gradient of the linear that comes next, unless dropout, a gather or recomputed products
 * come between. In a pass that is split (zb-h1) each gradient has a cast of its own. Otherwise the two
 * schedules do the same.
 */
#include "base/log.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 4, WORDS = 12 };

static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 4,  32,      4, 4, 8,
				  64,     37,          16, TIE_YES, 1, 4, 0.1 },
			 llama = { "llama", FAMILY_LLAMA, 4,  32,     4, 2, 8,
				   48,      37,           16, TIE_NO, 1, 4, 0.1 },
			 experts = { "experts", FAMILY_MIXTRAL, 4, 32, 4,  2, 8, 24, 37,
				     16,        TIE_NO,         1, 4,  0.1 };

static const struct scene {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
} scenes[] = {
	{ "gpt2", &gpt2, { NULL } },
	{ "llama", &llama, { NULL } },
	{ "experts", &experts, { NULL } },
	{ "e4m3", &gpt2, { "precision.fp8=e4m3" } },
	{ "dropout", &gpt2, { "model.dropout=0.2" } },
	{ "dropout in attention", &gpt2, { "model.attn_dropout=0.2" } },
	{ "full recomputation", &gpt2, { "recompute.mode=full" } },
	{ "every 2nd layer", &gpt2, { "recompute.mode=full", "recompute.every=2" } },
	{ "selective recomputation", &gpt2, { "recompute.mode=selective" } },
	{ "tp 2", &gpt2, { "parallel.tp=2" } },
	{ "tp 2, sp", &gpt2, { "parallel.tp=2", "parallel.sp=yes" } },
};

struct course {
	const struct tiny *model;
	struct job job;
	double loss[STEPS], norm[STEPS];
};

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	double loss, norm;
	int rc = trainee_open(c->model, &c->job, world, "cpu", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		rc = trainee_step(&t, step, &loss, &norm, e);
		if (!rc && comm_rank(world) == 0) {
			c->loss[step] = loss;
			c->norm[step] = norm;
		}
	}
	trainee_close(&t);
	return rc;
}

static struct course *run(const struct scene *s, const char *scaling, const char *schedule)
{
	struct course *c = world_shared(sizeof *c);
	struct err e = ERR_INIT;
	const char *words[WORDS + 8] = { "precision.dtype=bf16",
					 "precision.fp8=hybrid",
					 "optimizer.lr=1e-3",
					 "parallel.pp=2",
					 scaling,
					 schedule };
	for (int i = 0; s->words[i]; i++)
		words[6 + i] = s->words[i];
	c->model = s->model;
	if (trainee_job(s->model, words, &c->job, &e))
		fail_msg("%s: %s", s->name, e.text);
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	if (world_run(layout_world(&l), attend, c))
		fail_msg("%s, %s, %s", s->name, scaling, schedule);
	return c;
}

static void compare(const struct scene *s, const char *scaling)
{
	struct course *whole = run(s, scaling, "parallel.schedule=1f1b"),
		      *split = run(s, scaling, "parallel.schedule=zb-h1");
	for (int i = 0; i < STEPS; i++)
		if (whole->loss[i] != split->loss[i] || whole->norm[i] != split->norm[i])
			fail_msg("%s, %s, step %d: loss %.17g and %.17g, norm %.17g and %.17g",
				 s->name, scaling, i + 1, whole->loss[i], split->loss[i],
				 whole->norm[i], split->norm[i]);
	world_unshared(whole, sizeof *whole);
	world_unshared(split, sizeof *split);
}

static void passes_that_are_split_have_the_same_bits(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		compare(&scenes[i], "precision.fp8_scaling=current");
		compare(&scenes[i], "precision.fp8_scaling=delayed");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passes_that_are_split_have_the_same_bits),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests_name("gradients in 8 bits", tests, NULL, NULL);
}
