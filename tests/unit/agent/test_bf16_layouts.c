/*
 * Measures, for each layout, how far training in bf16 deviates from training in fp32. The deviation
 * is the root mean square, over seeds and steps, of the relative difference of the losses. Rounding
 * is random, so one run proves nothing. The deviation of a Mixtral varies by a factor of 2 and more
 * from seed to seed, because a rounding error sometimes changes the choice of an expert. The mean
 * must not depend on the layout, and it does not. The test checks 3 things:
 *
 *   - The ratio of each layout's deviation to the single process's deviation stays within bounds.
 *   - The ratio also stays within bounds if every token goes to all experts, so that there is no
 *     choice. A Mixtral then deviates no more than a LLaMA does, which is 1/7 of what a Mixtral
 *     deviates with a choice. A sum that is rounded once too often therefore becomes visible.
 *   - Stages change nothing: pp 2 computes what one process computes, and tp 2 × pp 2 what tp 2
 *     computes.
 *
 * The first seed is 1, or MUSTER_SEED.
 */
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20, SEEDS = 10, WORDS = 8 };

/* The largest allowed ratio of a layout's deviation to the single process's deviation. The
 * smallest allowed ratio is its inverse. */
static const double ratio_most = 1.25;

static const struct tiny mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 32, 4,  2, 8, 48, 101,
				     16,        TIE_NO,         2, 8,  0.1 },
			 llama = { "llama", FAMILY_LLAMA, 4,  32,     4, 2, 8,
				   48,      101,          16, TIE_NO, 2, 8, 0.1 };

enum { ONE, TP, PP, TP_PP, EP, LAYOUTS };
static const struct {
	const char *name, *words[2];
} layouts[LAYOUTS] = {
	[ONE] = { "one process", { NULL } },
	[TP] = { "tp 2", { "parallel.tp=2" } },
	[PP] = { "pp 2", { "parallel.pp=2" } },
	[TP_PP] = { "tp 2 x pp 2", { "parallel.tp=2", "parallel.pp=2" } },
	[EP] = { "ep 2 x dp 2", { "parallel.ep=2", "parallel.dp=2" } },
};

struct training {
	const struct tiny *model;
	struct job job;
	double (*losses)[STEPS]; /* [WORLD_MAX], shared */
};

static int train_rank(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double norm;
	int rc = trainee_open(c->model, &c->job, world, "cpu", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++)
		rc = trainee_step(&t, step, &c->losses[comm_rank(world)][step], &norm, e);
	trainee_close(&t);
	return rc;
}

static int first_seed(void)
{
	const char *word = getenv("MUSTER_SEED");
	return word ? atoi(word) : 1;
}

/* more: NULL, or one word of the job. */
static void losses_of(const struct tiny *model, int seed, const char *dtype, const char *more,
		      int layout, double out[STEPS])
{
	char seed_word[32], dtype_word[32];
	const char *words[WORDS] = { seed_word, dtype_word, "optimizer.lr=1e-3" };
	int n = 3;
	struct err e = ERR_INIT;
	struct training c = { .model = model };
	snprintf(seed_word, sizeof seed_word, "job.seed=%d", seed);
	snprintf(dtype_word, sizeof dtype_word, "precision.dtype=%s", dtype);
	for (int i = 0; i < 2 && layouts[layout].words[i]; i++)
		words[n++] = layouts[layout].words[i];
	words[n] = more;
	if (trainee_job(model, words, &c.job, &e))
		fail_msg("%s", e.text);
	struct layout l = layout_of(&c.job, (int)c.job.parallel.dp);
	c.losses = world_shared(WORLD_MAX * sizeof *c.losses);
	assert_int_equal(world_run(layout_world(&l), train_rank, &c), 0);
	memcpy(out, c.losses[0], sizeof c.losses[0]);
	world_unshared(c.losses, WORLD_MAX * sizeof *c.losses);
}

/* Returns the mean square of the relative difference. Raises *most to the largest difference. */
static double square_off(const double *got, const double *want, double *most)
{
	double sum = 0;
	for (int i = 0; i < STEPS; i++) {
		double d = fabs(got[i] - want[i]) / want[i];
		sum += d * d / STEPS;
		*most = d <= *most ? *most : d; /* NaN propagates */
	}
	return sum;
}

/* Computes the deviation of each layout from the single process in fp32. Raises *stages to the
 * largest change that stages cause. */
static void deviations_of(const struct tiny *model, const char *more, int n, double out[],
			  double *stages)
{
	double sums[LAYOUTS] = { 0 }, most[LAYOUTS] = { 0 };
	for (int i = 0; i < SEEDS; i++) {
		double wide[STEPS], bf16[LAYOUTS][STEPS];
		losses_of(model, first_seed() + i, "fp32", more, ONE, wide);
		for (int l = 0; l < n; l++) {
			losses_of(model, first_seed() + i, "bf16", more, l, bf16[l]);
			sums[l] += square_off(bf16[l], wide, &most[l]);
		}
		if (n > TP_PP) {
			square_off(bf16[PP], bf16[ONE], stages);
			square_off(bf16[TP_PP], bf16[TP], stages);
		}
	}
	for (int l = 0; l < n; l++) {
		out[l] = sqrt(sums[l] / SEEDS);
		printf("  %s %s, %-12s deviates by %.2e (%.2f of one process's), at most by %.2e\n",
		       model->name, more ? more : "", layouts[l].name, out[l], out[l] / out[ONE],
		       most[l]);
	}
}

static void no_layout_deviates_more_than_another(void **state)
{
	static const char all_chosen[] = "model.experts_per_token=5", *const choices[] = {
		NULL, all_chosen
	};
	double d[2][LAYOUTS], dense[1], stages = 0;
	(void)state;
	printf("  seeds %d to %d\n", first_seed(), first_seed() + SEEDS - 1);
	deviations_of(&llama, NULL, 1, dense, &stages);
	for (int i = 0; i < 2; i++) {
		deviations_of(&mixtral, choices[i], LAYOUTS, d[i], &stages);
		for (int l = 0; l < LAYOUTS; l++)
			assert_true(d[i][l] <= ratio_most * d[i][ONE] &&
				    d[i][ONE] <= ratio_most * d[i][l]);
	}
	printf("  stages change at most %.1e\n", stages);
	assert_true(stages <= 1e-12);
	assert_true(d[1][ONE] <= 1.5 * dense[ONE] && dense[ONE] <= 1.5 * d[1][ONE]);
	assert_true(d[0][ONE] >= 3 * d[1][ONE] && d[0][ONE] <= 12 * d[1][ONE]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_layout_deviates_more_than_another),
	};
	return cmocka_run_group_tests_name("bf16 under layouts", tests, NULL, NULL);
}
