/*
 * Training in device memory, which the emulator protects from the host. It must give the CPU's
 * losses in each strategy, also with several agents on one device, and the same bits in two runs,
 * after a stop, and with or without replayed passes. A step zeroes no gradients except tables'.
 *
 * There are few cells, since the emulator is slow. make check-gpu runs more of them on a GPU
 * (tests/gpu/train.c).
 */
#include "tests/gpu/cuda_course.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

enum { STEPS = COURSE_STEPS, FEW = 6 };

static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 2, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 2, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 2, 0.1 },
	qwen2 = { "qwen2", FAMILY_QWEN2, 2, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 2, 0.1 },
	wide = { "wide", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 20011, 8, TIE_YES, 1, 2, 0.1 },
	qwen3 = { "qwen3", FAMILY_QWEN3, 2, 16, 4, 2, 6, 20, 61, 8, TIE_NO, 1, 2, 0.1 },
	even = { "even", FAMILY_MIXTRAL, 2, 16, 2, 2, 8, 16, 61, 8, TIE_NO, 1, 2, 0.1 },
	mixtral = { "mixtral", FAMILY_MIXTRAL, 2, 16, 2, 2, 8, 12, 61, 8, TIE_NO, 1, 2, 0.1 };

#define BF16 "precision.dtype=bf16", "optimizer.lr=1e-3"
/* the scale doubles after each good step, until it is too large */
#define FP16_OVERFLOWS "precision.dtype=fp16", "precision.loss_scale_window=1"

/* clang-format off */
static const struct cell cells[] = {
	{ "gpt2", &gpt2, STEPS, 1e-4, { 0 }, { 0 } },
	{ "gpt2 of 20011 words, two chunks of logits", &wide, FEW, 1e-6, { 0 }, { "batch.logits=1" } },
	{ "llama", &llama, STEPS, 1e-4, { 0 }, { 0 } },
	{ "qwen2", &qwen2, STEPS, 1e-4, { 0 }, { 0 } },
	{ "qwen3", &qwen3, STEPS, 1e-4, { 0 }, { 0 } },
	{ "qwen3, bf16, tp 2, sp, full recomputation", &qwen3, FEW, 1e-2, { BF16 }, { "parallel.tp=2", "parallel.sp=yes", "recompute.mode=full" } },
	{ "mixtral", &mixtral, STEPS, 1e-4, { 0 }, { 0 } },
	{ "gpt2, bf16", &gpt2, STEPS, 1e-2, { BF16 }, { 0 } },
	{ "llama, fp16", &llama, FEW, 1e-2, { "precision.dtype=fp16", "precision.loss_scale=1024", "optimizer.lr=1e-3" }, { 0 } },
	{ "gpt2, fp8", &gpt2, FEW, 1e-2, { BF16, "precision.fp8=hybrid" }, { 0 } },
	{ "gpt2, fp8, delayed", &gpt2, FEW, 1e-2, { BF16, "precision.fp8=hybrid", "precision.fp8_scaling=delayed" }, { 0 } },
	{ "llama, fp8, delayed, tp 2", &llama, FEW, 1e-2, { BF16, "precision.fp8=e4m3", "precision.fp8_scaling=delayed" }, { "parallel.tp=2" } },
	{ "llama, fp8, tp 2, sp", &llama, FEW, 1e-2, { BF16, "precision.fp8=e4m3" }, { "parallel.tp=2", "parallel.sp=yes" } },
	{ "gpt2, dropout, full recomputation", &gpt2, FEW, 1e-4, { "model.dropout=0.2", "model.attn_dropout=0.1" }, { "recompute.mode=full" } },
	{ "llama, documents, both offloaded", &llama, FEW, 1e-4, { "data.documents=mask" },
	  { "offload.activations=yes", "offload.optimizer=yes" } },
	{ "gpt2, bf16, offloaded, selective recomputation", &gpt2, FEW, 1e-2, { BF16, "precision.stochastic_rounding=yes" },
	  { "offload.activations=yes", "offload.optimizer=yes", "recompute.mode=selective" } },
	{ "mixtral, capacity, z-loss", &mixtral, FEW, 1e-4, { "model.capacity=1.25", "model.z_loss=0.01" }, { 0 } },
	{ "even experts, bf16, counts on the device", &even, FEW, 1e-2, { BF16, "model.aux_loss=0.1" }, { 0 } },
	{ "even experts, bf16, counts on the device, capacity", &even, FEW, 1e-2, { BF16, "model.aux_loss=0", "model.capacity=1" }, { 0 } },
	{ "gpt2, tp 2, sp", &gpt2, FEW, 1e-4, { 0 }, { "parallel.tp=2", "parallel.sp=yes" } },
	{ "gpt2, pp 2", &gpt2, FEW, 1e-4, { 0 }, { "parallel.pp=2" } },
	{ "llama, dp 2, zero-1, bf16", &llama, FEW, 1e-2, { BF16 }, { "parallel.dp=2", "parallel.zero=1" } },
	{ "llama, dp 2, zero-1", &llama, FEW, 1e-4, { 0 }, { "parallel.dp=2", "parallel.zero=1" } },
	{ "gpt2, dp 2, zero-3", &gpt2, FEW, 1e-4, { 0 }, { "parallel.dp=2", "parallel.zero=3" } },
	{ "llama, cp 2", &llama, FEW, 1e-4, { 0 }, { "parallel.cp=2" } },
	{ "even experts, ep 2, bf16, capacity", &even, FEW, 1e-2, { BF16, "model.capacity=1" }, { "parallel.dp=2", "parallel.ep=2" } },
	{ "mixtral, ep 2", &mixtral, FEW, 1e-4, { 0 }, { "parallel.dp=2", "parallel.ep=2" } },
};
/* clang-format on */

#define FIXED    (double)((64 + 32) << 20)
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static double off(double got, double want)
{
	return fabs(got - want) / fabs(want);
}

/* NaN counts as the largest. */
static double furthest(const struct course *a, const struct course *b)
{
	double most = off(a->eval, b->eval);
	for (int i = 0; i < a->to; i++) {
		double d = off(a->loss[i], b->loss[i]);
		if (d > most || isnan(d))
			most = d;
	}
	return most;
}

static void every_strategy_gives_the_losses_of_the_cpu(void **state)
{
	const char *only = *state;
	int wrong = 0, ran = 0;
	for (int i = 0; i < COUNT(cells); i++) {
		if (!strstr(cells[i].name, only))
			continue;
		ran++;
		struct course *cpu = course_of(&cells[i], "cpu", NULL),
			      *cuda = course_of(&cells[i], "cuda", NULL);
		course_go(cpu);
		course_go(cuda);
		double most = furthest(cuda, cpu);
		/* The backend's fixed memory would hide the differences of such small
		 * models. */
		double rest = off(cuda->predicted - FIXED, cuda->taken - FIXED);
		printf("    %-50s %8.1e  memory %9.0f predicted, %9.0f taken\n", cells[i].name,
		       most, cuda->predicted - FIXED, cuda->taken - FIXED);
		fflush(stdout);
		wrong += !(most <= cells[i].tolerance) ||
			 !(rest <= (cells[i].model->family == FAMILY_MIXTRAL ? 0.25 : 0.05));
		course_drop(cpu);
		course_drop(cuda);
	}
	assert_int_equal(wrong, 0);
	assert_true(ran > 0);
}

static const struct cell plain = { "plain", &gpt2, FEW, 0, { BF16, "model.dropout=0.1" }, { 0 } };

static void two_runs_give_the_same_bits(void **state)
{
	(void)state;
	struct course *once = course_of(&plain, "cuda", NULL),
		      *again = course_of(&plain, "cuda", NULL);
	course_go(once);
	course_go(again);
	assert_true(course_same_bits(once, again, 0));
	course_drop(once);
	course_drop(again);
}

static void replayed_passes_give_the_same_bits(void **state)
{
	(void)state;
	struct course *replayed = course_of(&plain, "cuda", NULL),
		      *carried_out = course_of(&plain, "cuda", "job.graphs=no");
	course_go(replayed);
	course_go(carried_out);
	assert_true(course_same_bits(replayed, carried_out, 0));
	course_drop(replayed);
	course_drop(carried_out);
}

static void stop_changes_no_bits(const struct cell *cell, const char *offload)
{
	char dir[] = "/tmp/muster-cuda-train-XXXXXX", clean[64];
	struct course *whole = course_of(cell, "cuda", NULL),
		      *first = course_of(cell, "cuda", offload);
	struct course *rest = course_of(cell, "cuda", NULL);
	assert_non_null(mkdtemp(dir));
	first->dir = rest->dir = dir;
	first->to = rest->from = FEW / 2;
	course_go(whole);
	course_go(first);
	course_go(rest);
	assert_true(course_same_bits(whole, rest, FEW / 2));
	snprintf(clean, sizeof clean, "rm -rf %s", dir);
	assert_int_equal(system(clean), 0);
	course_drop(whole);
	course_drop(first);
	course_drop(rest);
}

static void a_stop_changes_no_bits(void **state)
{
	(void)state;
	stop_changes_no_bits(&plain, "offload.optimizer=yes");
}

/* The scales are read from the device's memory, and written to it. */
static void a_stop_with_delayed_scaling_changes_no_bits(void **state)
{
	static const struct cell delayed = {
		"delayed",
		&gpt2,
		FEW,
		0,
		{ BF16, "precision.fp8=hybrid", "precision.fp8_scaling=delayed" },
		{ 0 }
	};
	(void)state;
	stop_changes_no_bits(&delayed, NULL);
}

/* Each rank's part of the loss counts once, whatever the layout. */
static void numbers_that_are_read_later_have_the_same_bits(void **state)
{
	/* clang-format off */
	static const struct cell layouts[] = {
		{ "dp 2", &gpt2, FEW, 0, { 0 }, { "parallel.dp=2" } },
		{ "tp 2", &gpt2, FEW, 0, { BF16 }, { "parallel.tp=2", "parallel.sp=yes" } },
		{ "pp 2", &gpt2, FEW, 0, { 0 }, { "parallel.pp=2" } },
		{ "experts", &even, FEW, 0, { BF16 }, { 0 } },
		{ "dp 2, limits", &gpt2, FEW, 0, { 0 }, { "parallel.dp=2", "health.bad_numbers=stop" } },
		{ "tp 2, rounded at random", &gpt2, FEW, 0, { BF16, "precision.stochastic_rounding=yes" }, { "parallel.tp=2" } },
		{ "tp 2, rounded at random, overflows", &gpt2, FEW, 0, { FP16_OVERFLOWS, "precision.stochastic_rounding=yes" }, { "parallel.tp=2" } },
		{ "tp 2, delayed scaling", &gpt2, FEW, 0, { BF16, "precision.fp8=hybrid", "precision.fp8_scaling=delayed" }, { "parallel.tp=2" } },
	};
	/* clang-format on */
	(void)state;
	for (int i = 0; i < COUNT(layouts); i++) {
		struct course *once = course_of(&layouts[i], "cuda", NULL),
			      *late = course_of(&layouts[i], "cuda", NULL);
		late->late = true;
		course_go(once);
		course_go(late);
		if (!course_same_bits(once, late, 0))
			fail_msg("%s: loss %.17g after %.17g at once", layouts[i].name,
				 late->loss[FEW - 1], once->loss[FEW - 1]);
		course_drop(once);
		course_drop(late);
	}
}

/* Bytes of losses, norms and flags. */
enum { SMALL = 1024 };

/* Tokens and positions are added to one by one, so their tables begin at zero, unless the head's
 * product has set the table. The products set all others. */
static void check_zeroed(const struct cell *cell, int64_t tables)
{
	struct course *c = course_of(cell, "cuda", NULL);
	course_go(c);
	printf("    %s: a step zeroes %lld bytes, and has %lld bytes of gradients\n", cell->name,
	       (long long)c->zeroed, (long long)c->gradients);
	assert_true(c->zeroed >= tables * (int64_t)sizeof(float));
	assert_true(c->zeroed < tables * (int64_t)sizeof(float) + SMALL);
	assert_true(c->zeroed < c->gradients / 2);
	course_drop(c);
}

static void a_step_zeroes_only_tables(void **state)
{
	static const struct cell tied = { "gpt2, tied", &gpt2, FEW, 0, { 0 }, { 0 } },
				 apart = { "llama, not tied", &llama, FEW, 0, { 0 }, { 0 } },
				 sharded = { "gpt2, dp 2, zero-2",
					     &gpt2,
					     3,
					     0,
					     { 0 },
					     { "parallel.dp=2", "parallel.zero=2" } };
	(void)state;
	check_zeroed(&tied, gpt2.seq * gpt2.hidden);
	check_zeroed(&apart, llama.vocab * llama.hidden);
	/* the head's gradient of a micro-batch has left when the embedding's begins */
	check_zeroed(&sharded, (gpt2.seq + gpt2.vocab) * gpt2.hidden);
}

/* A layer of experts waits for its counts in the forward pass of each micro-batch, unless they
 * stay on the device. */
static void counts_that_stay_wait_for_nothing(void **state)
{
	static const struct cell
		stay = { "stay", &even, FEW, 0, { BF16 }, { 0 } },
		fixed = { "stay, capacity", &even, FEW, 0, { BF16, "model.capacity=1" }, { 0 } },
		/* rows of 12 elements do not fit the kernel that reads the counts */
		leave = { "leave", &mixtral, FEW, 0, { BF16 }, { 0 } };
	(void)state;
	struct course *a = course_of(&stay, "cuda", NULL), *b = course_of(&fixed, "cuda", NULL),
		      *c = course_of(&leave, "cuda", NULL);
	course_go(a);
	course_go(b);
	course_go(c);
	printf("    waits in a step: %lld, with a capacity %lld, with the counts on the host "
	       "%lld\n",
	       (long long)a->waits, (long long)b->waits, (long long)c->waits);
	assert_int_equal(a->waits, b->waits);
	assert_int_equal(c->waits, a->waits + mixtral.layers * mixtral.global);
	course_drop(a);
	course_drop(b);
	course_drop(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(every_strategy_gives_the_losses_of_the_cpu,
					  argc > 1 ? argv[1] : ""),
		cmocka_unit_test(two_runs_give_the_same_bits),
		cmocka_unit_test(replayed_passes_give_the_same_bits),
		cmocka_unit_test(a_stop_changes_no_bits),
		cmocka_unit_test(a_stop_with_delayed_scaling_changes_no_bits),
		cmocka_unit_test(numbers_that_are_read_later_have_the_same_bits),
		cmocka_unit_test(a_step_zeroes_only_tables),
		cmocka_unit_test(counts_that_stay_wait_for_nothing),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("training on an emulated device", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("training on an emulated device")

#endif
