/* Compares the memory computed in two steps (plan/memory.h) with the tables by which the engine
 * divides its memory. */
#include "plan/memory.h"
#include "plan/place/traffic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct job job_of(const char *const *words, int n)
{
	struct job job;
	struct err e = ERR_INIT;
	if (job_load(NULL, words, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

/* Compares every run of layers of this model, on the first and the last tp rank. */
static void compare(const struct job *job, bool split, int *cases)
{
	struct model_shape m;
	struct layout l = layout_of(job, 1);
	shape_of_job(job, &m);
	for (int end = 0; end < 2; end++) {
		struct act_dims d;
		struct memory_sizes s;
		int tp_rank = end ? l.tp - 1 : 0;
		activations_dims_of(job, &m, &l, tp_rank, split, &d);
		plan_memory_sizes_of(job, &m, &l, tp_rank, split, &s);
		for (int lo = 0; lo < m.layers; lo++)
			for (int hi = lo + 1; hi <= m.layers; hi++, ++*cases) {
				struct stage stage = { lo, hi, lo == 0, hi == m.layers };
				int again = 0;
				for (int k = lo; k < hi; k++)
					again += activations_experts_recompute(&d, k);
				double experts = d.moe ? (double)activations_experts_kept(&d) *
								 (hi - lo - again)
						       : 0;
				double scratch =
					d.moe ? (double)activations_experts_scratch(&d) +
							(again ? (double)activations_experts_kept(
									 &d)
							       : 0)
					      : 0;
				assert_true(plan_memory_slot(&s, &stage) ==
					    (double)activations_slot_total(&d, &stage) + experts);
				assert_true(plan_memory_offloaded(&s, &stage) ==
					    (double)activations_offloaded(&d, &stage));
				struct stage two[] = { stage, { 0, hi - lo, true, false } };
				for (int k = 0; d.moe && k < hi - lo && !again; k++)
					again += activations_experts_recompute(&d, k);
				double both =
					d.moe ? (double)activations_experts_scratch(&d) +
							(again ? (double)activations_experts_kept(
									 &d)
							       : 0)
					      : 0;
				assert_true(
					plan_memory_shared(&s, &stage, 1) ==
					(double)activations_shared_total(&d, &stage, 1, m.rope) +
						scratch);
				assert_true(plan_memory_shared(&s, two, 2) ==
					    (double)activations_shared_total(&d, two, 2, m.rope) +
						    both);
			}
	}
}

static void memory_sums_equal_the_engines(void **state)
{
	static const char *const families[] = { "model.family=gpt2", "model.family=llama",
						"model.family=mixtral",
						"model.family=qwen3 model.head_dim=40" };
	static const char *const modes[] = { "recompute.mode=none", "recompute.mode=selective",
					     "recompute.mode=full" };
	static const char *const types[] = { "precision.dtype=fp32", "precision.dtype=bf16" };
	static const char *const homes[] = { "offload.activations=no", "offload.activations=yes" };
	int cases = 0;
	(void)state;
	for (int form = 0; form < 3 * 3 * 2 * 2 * 3 * 2; form++) {
		int tp = form / 36 % 3 + 1, mode = form / 3 % 3;
		char degree[32], every[32];
		const char *words[] = { families[form % 3],
					modes[mode],
					types[form / 9 % 2],
					homes[form / 18 % 2],
					"model.layers=7",
					"model.vocab=1000",
					"model.heads=6",
					"model.hidden=192",
					degree,
					tp > 1 ? "parallel.sp=yes" : "parallel.sp=no",
					"batch.micro=3",
					"batch.global=30",
					every,
					form / 108 ? "model.dropout=0.1" : "model.dropout=0",
					"model.seq=96" };
		snprintf(degree, sizeof degree, "parallel.tp=%d", tp);
		for (int n = 1; n <= (mode ? 8 : 1); n++) {
			snprintf(every, sizeof every, "recompute.every=%d", n < 8 ? n : 1);
			struct job job = job_of(words, (int)(sizeof words / sizeof *words));
			compare(&job, n % 2, &cases);
		}
	}
	print_message("%d runs of layers\n", cases);
	assert_true(cases > 50000);
}

/* Korthikanti et al., arXiv 2205.05198, table 2, and Qi et al., arXiv 2401.10241, table 1. */
static void megatrons_layers_are_the_papers(void **state)
{
	static const char *const words[] = { "plan.engine=megatron-2022",
					     "model.family=gpt2",
					     "model.layers=4",
					     "model.heads=8",
					     "model.hidden=256",
					     "model.seq=128",
					     "precision.dtype=fp16",
					     "parallel.pp=2",
					     "parallel.schedule=zb-h1",
					     "batch.micro=3",
					     "batch.global=12" };
	struct job job = job_of(words, (int)(sizeof words / sizeof *words));
	struct layout l = layout_of(&job, 1);
	struct stage stage = { 0, 2, true, false };
	struct model_shape m;
	struct memory_sizes s;
	double rows = 3 * 128, layer = 34 * rows * 256 + 5.0 * 8 * 128 * rows;
	(void)state;
	shape_of_job(&job, &m);
	plan_memory_sizes_of(&job, &m, &l, 0, true, &s);
	assert_true(plan_memory_slots(&s, &stage, 1, 1, 1) == 2 * layer);
	assert_true(plan_memory_slots(&s, &stage, 3, 2, 1) == 4 * layer + 2 * 32 * rows * 256);
	job.recompute.mode = RECOMPUTE_SELECTIVE;
	plan_memory_sizes_of(&job, &m, &l, 0, true, &s);
	assert_true(plan_memory_slots(&s, &stage, 1, 1, 1) == 2 * 34 * rows * 256);
	job.recompute.mode = RECOMPUTE_FULL;
	plan_memory_sizes_of(&job, &m, &l, 0, true, &s);
	assert_true(plan_memory_slots(&s, &stage, 1, 1, 1) == 2 * 2 * rows * 256);
}

/* FSDP: fp32 shards of parameters, gradients and two moments. */
static void fsdp_keeps_16_bytes_per_owned_parameter(void **state)
{
	static const char *const words[] = { "plan.engine=fsdp-eager", "model.family=llama",
					     "model.layers=4",         "model.heads=8",
					     "model.hidden=256",       "model.vocab=1024",
					     "precision.dtype=bf16",   "parallel.dp=8",
					     "parallel.zero=3",        "batch.micro=1",
					     "batch.global=8" };
	struct job job = job_of(words, (int)(sizeof words / sizeof *words));
	struct layout l = layout_of(&job, 8);
	struct stage stage = { 0, 4, true, true };
	struct model_shape m;
	struct plan_rank r = { .threads = 1, .node_replicas = 8 };
	(void)state;
	shape_of_job(&job, &m);
	plan_memory_rank(&job, &m, &l, 1, &stage, false, &r);
	double owned = (r.params + r.grads + r.optimizer) / (double)shape_params(&m) * 8;
	assert_true(owned >= 16 && owned < 16.1); /* pieces are rounded up */
	job.parallel.zero = 2;                    /* whole 2-byte copies besides */
	plan_memory_rank(&job, &m, &l, 1, &stage, false, &r);
	double copies = r.params / (double)shape_params(&m);
	assert_true(copies >= 2 && copies < 2.01);
}

/* GPT-2 124M, 32 sequences of 1024: its backward pass of attention needs 12 · 32 gradients of 1024²
 * scores in 2 bytes, and a sum for each query. Divided over tp; none where own kernels serve. */
static void attention_on_a_gpu_has_a_workspace(void **state)
{
	(void)state;
	static const struct {
		const char *word;
		int64_t pairs; /* 0: no workspace */
	} rows[] = {
		{ "batch.micro=32", 384 },
		{ "parallel.tp=2", 192 },
		{ "model.attn_dropout=0.1", 0 },
		{ "precision.dtype=fp32", 0 },
		{ "job.device=cpu", 0 },
		{ "model.seq=1000", 384 },
		{ "job.deterministic=yes", 0 },
		{ "data.documents=mask", 384 },
		{ "job.deterministic=any-order", 384 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const char *words[] = { "model.family=gpt2", "model.layers=2",
					"model.hidden=768",  "model.heads=12",
					"model.seq=1024",    "precision.dtype=bf16",
					"job.device=cuda",   "batch.micro=32",
					"batch.global=64",   rows[i].word };
		struct job job = job_of(words, sizeof words / sizeof words[0]);
		struct layout l = layout_of(&job, 1);
		struct model_shape m;
		struct memory_sizes with, without;
		shape_of_job(&job, &m);
		plan_memory_sizes_of(&job, &m, &l, 0, false, &with);
		job.model.attn_dropout = 0.5;
		plan_memory_sizes_of(&job, &m, &l, 0, false, &without);
		double expected =
			rows[i].pairs
				? (double)(rows[i].pairs * (2 * 1024 * 1024 + 4 * m.seq)) + 512
				: 0;
		assert_true(with.scratch - without.scratch == expected);
	}
}

/* With short sequences, dq in fp32 is larger than the gradients of the scores. */
static void attention_with_sums_in_any_order_has_the_larger_workspace(void **state)
{
	(void)state;
	static const char *const words[] = { "job.deterministic=no",
					     "job.deterministic=any-order" };
	double scratch[2];
	for (int i = 0; i < 2; i++) {
		const char *all[] = { "model.family=gpt2", "model.layers=2",
				      "model.hidden=768",  "model.heads=12",
				      "model.seq=64",      "precision.dtype=bf16",
				      "job.device=cuda",   "batch.micro=32",
				      "batch.global=64",   words[i] };
		struct job job = job_of(all, sizeof all / sizeof all[0]);
		struct layout l = layout_of(&job, 1);
		struct model_shape m;
		struct memory_sizes sizes;
		shape_of_job(&job, &m);
		plan_memory_sizes_of(&job, &m, &l, 0, false, &sizes);
		scratch[i] = sizes.scratch;
	}
	assert_true(scratch[1] - scratch[0] == 384 * (8 * 64 * 64 - 2 * 64 * 128));
}

/* 4 sequences of 128 tokens with 2 of 6 experts each, on 2 ranks: an even load is 1024 rows. */
struct routes {
	const char *word;
	int64_t block, sent, received;
};

/* Other bytes than without a capacity: of y, of x, gu and act, of the rows' tokens, and of the
 * places of received rows. */
static double more_kept(const struct act_expert_rows *r)
{
	int64_t sent = r->sent - 1024, received = r->received - 1024;
	return (double)(sent * (2 * 64 + 8) + received * 2 * (64 + 3 * 96) + r->received * 16 + 64);
}

static void check_routes(const struct routes *want)
{
	const char *words[] = {
		"model.family=mixtral", "model.layers=2",   "model.hidden=64", "model.heads=4",
		"model.ffn=96",         "model.experts=6",  "model.seq=128",   "job.device=cuda",
		"batch.micro=4",        "batch.global=96",  "parallel.dp=4",   "parallel.ep=2",
		"precision.dtype=bf16", "model.capacity=1", want->word,
	};
	struct job job = job_of(words, 14 + !!want->word);
	struct layout l = layout_of(&job, (int)job.parallel.dp);
	struct model_shape m;
	struct memory_sizes with, without;
	shape_of_job(&job, &m);
	struct act_expert_rows r = activations_expert_rows(&job, &m, &l);
	assert_int_equal(r.block, want->block);
	assert_int_equal(r.sent, want->sent);
	assert_int_equal(r.received, want->received);
	assert_true(place_traffic_sizes_of(&job, &m, &l).rows ==
		    (double)(r.sent * 64 * (job.precision.dtype == DTYPE_FP32 ? 4 : 2)));
	plan_memory_sizes_of(&job, &m, &l, 0, false, &with);
	job.model.capacity = 0;
	plan_memory_sizes_of(&job, &m, &l, 0, false, &without);
	assert_true(with.kept - without.kept == (r.block ? more_kept(&r) : 0));
}

/* Blocks have at most twice the rows of an even load, and no expert's group is large. */
static void a_capacity_fixes_the_rows_of_experts_on_a_gpu(void **state)
{
	static const struct routes rows[] = {
		{ NULL, 4 * 43, 6 * 172, 6 * 172 },
		{ "model.capacity=1.5", 4 * 64, 6 * 256, 6 * 256 },
		{ "parallel.ep=4", 4 * 43, 6 * 172, 8 * 172 },
		{ "model.capacity=3", 0, 1024, 1024 },
		{ "model.capacity=0", 0, 1024, 1024 },
		{ "job.device=cpu", 0, 1024, 1024 },
		{ "precision.dtype=fp32", 0, 1024, 1024 },
		{ "parallel.ep=1", 0, 1024, 1024 },
		{ "parallel.cp=2", 0, 512, 512 },
		{ "batch.micro=24", 0, 6144, 6144 },
		{ "plan.engine=megatron-core", 0, 1024, 1024 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		check_routes(&rows[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_sums_equal_the_engines),
		cmocka_unit_test(megatrons_layers_are_the_papers),
		cmocka_unit_test(fsdp_keeps_16_bytes_per_owned_parameter),
		cmocka_unit_test(a_capacity_fixes_the_rows_of_experts_on_a_gpu),
		cmocka_unit_test(attention_on_a_gpu_has_a_workspace),
		cmocka_unit_test(attention_with_sums_in_any_order_has_the_larger_workspace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
