/* Tests that each rank's view of the plan agrees with the functions that compute its parts for the
 * whole job, and with one layout that was computed by hand. */
#include "plan/spec/rank_view.h"
#include "plan/spec/speeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64, WORDS_MAX = 16 };

static struct job job_of(const char *words)
{
	const char *list[WORDS_MAX];
	char copy[512];
	struct job job;
	struct err e = ERR_INIT;
	int n = 0;
	assert_true(snprintf(copy, sizeof copy, "%s", words) < (int)sizeof copy);
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) {
		assert_true(n < WORDS_MAX);
		list[n++] = w;
	}
	if (job_load(NULL, list, n, &job, &e))
		fail_msg("%s: %s", words, e.text);
	return job;
}

#define GPT2    "model.layers=8 "
#define LLAMA   "model.family=llama model.layers=8 model.heads=8 model.kv_heads=2 model.hidden=64 "
#define MIXTRAL "model.family=mixtral model.layers=4 model.experts=4 model.heads=4 model.hidden=32 "

/* The jobs whose views are compared, and their numbers of replicas. */
static const struct {
	const char *words;
	int dp;
} jobs[] = {
	{ GPT2 "batch.micro=2 batch.global=8", 1 },
	{ GPT2 "batch.micro=2 batch.global=24 parallel.tp=2 parallel.sp=yes parallel.pp=2", 3 },
	{ GPT2 "parallel.pp=3 batch.micro=1 batch.global=8", 2 },
	{ GPT2 "parallel.stages=1,2,3,2 parallel.pp=4 batch.micro=1 batch.global=4", 2 },
	{ GPT2 "parallel.schedule=interleaved parallel.chunks=2 parallel.pp=2 batch.micro=1 "
	       "batch.global=8",
	  2 },
	{ GPT2 "parallel.schedule=zb-v parallel.pp=2 batch.micro=1 batch.global=8", 2 },
	{ LLAMA "parallel.tp=4 parallel.cp=2 batch.micro=1 batch.global=4", 2 },
	{ MIXTRAL "parallel.ep=2 parallel.tp=2 batch.micro=1 batch.global=8", 4 },
	{ GPT2 "batch.micro=1 batch.global=30 launch.speeds=2,1", 2 },
	{ GPT2 "batch.micro=1 batch.global=30 launch.speeds=1,3,1,1 parallel.pp=2", 2 },
};

static void same_share(const struct share *a, const struct share *b)
{
	assert_int_equal(a->tp, b->tp);
	assert_int_equal(a->tp_rank, b->tp_rank);
	assert_int_equal(a->ep, b->ep);
	assert_int_equal(a->ep_rank, b->ep_rank);
	assert_int_equal(a->sp, b->sp);
	assert_int_equal(a->n_chunks, b->n_chunks);
	assert_memory_equal(a->chunks, b->chunks, (size_t)a->n_chunks * sizeof *a->chunks);
}

static void compare_rank(const struct job *job, const struct layout *l, int rank)
{
	struct rank_view v;
	struct err e = ERR_INIT;
	struct model_shape shape = { 0 };
	struct stage stages[MOST], chunks[LAYOUT_CHUNKS_MAX];
	struct batch_share shares[MOST];
	struct coords at = layout_coords(l, rank);
	shape_of_job(job, &shape);
	if (rank_view_init(job, l, rank, &v, &e) || speeds_stages(job, &shape, l, stages, &e) ||
	    batch_split(job, &shape, l, stages, shares, &e))
		fail_msg("rank %d: %s", rank, e.text);
	struct share share = layout_share(l, at, job->parallel.sp && l->tp > 1, stages, chunks);

	assert_ptr_equal(v.job, job);
	assert_int_equal(v.shape.layers, shape.layers);
	assert_int_equal(v.shape.kv_heads, shape.kv_heads);
	assert_int_equal(v.shape.experts, shape.experts);
	assert_memory_equal(&v.layout, l, sizeof *l);
	assert_memory_equal(&v.at, &at, sizeof at);
	assert_memory_equal(v.stages, stages, (size_t)layout_n_stages(l) * sizeof *stages);
	same_share(&v.share, &share);
	assert_int_equal(v.batch.micros, shares[at.dp].micros);
	assert_int_equal(v.batch.first, shares[at.dp].first);
	assert_int_equal(v.sequences, shares[at.dp].micros * job->batch.micro);
	assert_true(v.fraction == (double)v.sequences / (double)job->batch.global);
	assert_int_equal(v.micro_tokens, job->batch.micro * shape.seq);
	assert_int_equal(v.global_tokens, job->batch.global * shape.seq);
	rank_view_fini(&v);
	assert_null(v.stages);
}

static void each_rank_has_its_part_of_the_plan(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
		struct job job = job_of(jobs[i].words);
		struct layout l = layout_of(&job, jobs[i].dp);
		for (int rank = 0; rank < layout_world(&l); rank++)
			compare_rank(&job, &l, rank);
	}
}

/* Rank 7 of tp 2, dp 2, pp 2 is the last of each. A replica has 3 of 6 micro-batches of 2
 * sequences of 10 tokens. */
static void the_view_of_a_rank_computed_by_hand(void **state)
{
	(void)state;
	struct job job = job_of(GPT2 "parallel.tp=2 parallel.sp=yes parallel.pp=2 batch.micro=2 "
				     "parallel.stages=3,5 batch.global=12 model.seq=10");
	struct layout l = layout_of(&job, 2);
	struct rank_view v;
	struct err e = ERR_INIT;
	if (rank_view_init(&job, &l, 7, &v, &e))
		fail_msg("%s", e.text);
	assert_int_equal(v.at.tp, 1);
	assert_int_equal(v.at.cp, 0);
	assert_int_equal(v.at.dp, 1);
	assert_int_equal(v.at.pp, 1);
	assert_int_equal(v.share.n_chunks, 1);
	assert_int_equal(v.share.chunks[0].layer_lo, 3);
	assert_int_equal(v.share.chunks[0].layer_hi, 8);
	assert_false(v.share.chunks[0].first);
	assert_true(v.share.chunks[0].last);
	assert_int_equal(v.share.tp_rank, 1);
	assert_true(v.share.sp);
	assert_int_equal(v.batch.micros, 3);
	assert_int_equal(v.batch.first, 6);
	assert_int_equal(v.sequences, 6);
	assert_true(v.fraction == 0.5);
	assert_int_equal(v.micro_tokens, 20);
	assert_int_equal(v.global_tokens, 120);
	rank_view_fini(&v);
}

/* A failure leaves the output alone and names the cause. */
static void a_split_that_is_impossible_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *words;
		struct layout layout;
		const char *cause;
	} rows[] = {
		{ "batch.micro=1 batch.global=4",
		  { .tp = 1, .cp = 1, .dp = 3, .pp = 1, .ep = 1, .chunks = 1 },
		  "global = 4" },
		{ "model.layers=2 batch.global=4",
		  { .tp = 1, .cp = 1, .dp = 1, .pp = 3, .ep = 1, .chunks = 1 },
		  "3 stages" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job = job_of(rows[i].words);
		struct rank_view v = { 0 };
		struct err e = ERR_INIT;
		assert_int_equal(rank_view_init(&job, &rows[i].layout, 0, &v, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, rows[i].cause));
		assert_null(v.job);
		rank_view_fini(&v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_rank_has_its_part_of_the_plan),
		cmocka_unit_test(the_view_of_a_rank_computed_by_hand),
		cmocka_unit_test(a_split_that_is_impossible_is_refused),
	};
	return cmocka_run_group_tests_name("rank_view", tests, NULL, NULL);
}
