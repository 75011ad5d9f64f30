/*
 * Tests the param_store for every ZeRO stage, number of shards and copies, storage type and split
 * of the model. Each piece's gradient is the sum over all replicas, every rank sees the same new
 * parameters, every element is counted once, and the memory is what the plan predicts.
 */
#include "tests/unit/agent/store_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 3 };

static int train(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) ? -1 : 0;
	for (int step = 0; step < STEPS && !rc; step++)
		rc = bench_pass(&b, step, e) || bench_check(&b, e) || bench_update(&b, step, e) ? -1
												: 0;
	bench_close(&b);
	return rc;
}

static const struct cut models[] = {
	{ "gpt2", FAMILY_GPT2, 4, 1, false, 1, .pp = 1 },
	{ "gpt2, tp 2, sp", FAMILY_GPT2, 4, 2, true, 1, .pp = 1 },
	{ "gpt2, pp 2, tied", FAMILY_GPT2, 4, 1, false, 1, .pp = 2 },
	{ "llama, tp 2, kv shared", FAMILY_LLAMA, 1, 2, false, 1, .pp = 1 },
	{ "llama, tp 4, kv 2, sp", FAMILY_LLAMA, 2, 4, true, 1, .pp = 1 },
	{ "mixtral, ep 3", FAMILY_MIXTRAL, 2, 1, false, 3, .pp = 1 },
	{ "mixtral, ep 2, tp 2", FAMILY_MIXTRAL, 2, 2, true, 2, .pp = 1 },
};

static const struct {
	int shards, copies;
} grids[] = { { 1, 1 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 1, 2 }, { 2, 2 }, { 3, 2 }, { 7, 1 } };

static const struct {
	const char *backend_name;
	bool overlap, stochastic;
	int micros;
} manners[] = {
	{ "reference", true, false, 2 },
	{ "reference:bf16", true, false, 1 },
	{ "reference:fp16", false, false, 3 },
	{ "reference:bf16", true, true, 2 },
};

/* Runs every second pair of model and grid that needs at most 8 processes. The next stage runs the
 * other pairs. The manners are used in turn. */
static void train_all(int zero)
{
	int turn = 0, ran = 0;
	for (size_t m = 0; m < sizeof models / sizeof *models; m++)
		for (size_t g = 0; g < sizeof grids / sizeof *grids; g++, turn++) {
			struct cut c = models[m];
			size_t manner = (size_t)turn / 2 % (sizeof manners / sizeof *manners);
			c.zero = zero;
			c.shards = grids[g].shards;
			c.copies = grids[g].copies;
			c.backend_name = manners[manner].backend_name;
			c.overlap = manners[manner].overlap;
			c.stochastic = manners[manner].stochastic;
			c.micros = manners[manner].micros;
			if (cut_world(&c) > 8 || (turn + zero) % 2)
				continue;
			ran++;
			if (world_run(cut_world(&c), train, &c))
				fail_msg("%s, zero %d, %d shards, %d copies, %s", c.name, zero,
					 c.shards, c.copies, c.backend_name);
		}
	assert_true(ran > 10);
}

static void stage_0_keeps_everything_whole(void **state)
{
	(void)state;
	train_all(0);
}
static void stage_1_shards_the_state(void **state)
{
	(void)state;
	train_all(1);
}
static void stage_2_shards_the_gradients(void **state)
{
	(void)state;
	train_all(2);
}
static void stage_3_shards_the_parameters(void **state)
{
	(void)state;
	train_all(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stage_0_keeps_everything_whole),
		cmocka_unit_test(stage_1_shards_the_state),
		cmocka_unit_test(stage_2_shards_the_gradients),
		cmocka_unit_test(stage_3_shards_the_parameters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
