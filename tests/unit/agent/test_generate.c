/* Compares the model for inference with the model that trains, and its results with and without
 * the cache. Tests sampling from the logits. */
#include "agent/engine/generate/lm.h"
#include "agent/engine/generate/sample.h"
#include "agent/engine/generate/text.h"
#include "agent/engine/train/state.h"
#include "base/philox.h"
#include "kernels/ops.h"
#include "plan/spec/layout.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The context is longer than the number of tokens that pass through the layers at once. */
enum { SEQ = 300 };

/* clang-format off */
static const struct kind {
	struct tiny model;
	const char *words[4];
} kinds[] = {
	{ { "gpt2", FAMILY_GPT2, 2, 16, 4, 4, 4, 40, 37, SEQ, TIE_AUTO, 1, 1, 0.2 }, { NULL } },
	{ { "llama", FAMILY_LLAMA, 2, 16, 4, 2, 6, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 }, { NULL } },
	{ { "llama, tied, one kv head, linear", FAMILY_LLAMA, 2, 16, 4, 1, 4, 24, 37, SEQ, TIE_YES, 1, 1, 0.2 },
	  { "model.rope_scaling=linear", "model.rope_factor=4", NULL } },
	{ { "llama, stretched as llama3", FAMILY_LLAMA, 2, 16, 2, 2, 8, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 },
	  { "model.rope_scaling=llama3", "model.rope_factor=8", "model.rope_original=64", NULL } },
	{ { "qwen2", FAMILY_QWEN2, 2, 16, 4, 2, 4, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 }, { NULL } },
	{ { "qwen3, heads wider than the model", FAMILY_QWEN3, 2, 16, 4, 2, 6, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 }, { NULL } },
	{ { "mixtral", FAMILY_MIXTRAL, 2, 16, 4, 2, 4, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 }, { "model.aux_loss=0", NULL } },
	{ { "mixtral, softmax before", FAMILY_MIXTRAL, 2, 16, 4, 2, 4, 24, 37, SEQ, TIE_AUTO, 1, 1, 0.2 },
	  { "model.router=before", "model.aux_loss=0", NULL } },
};
/* clang-format on */
enum { KINDS = sizeof kinds / sizeof *kinds };

struct pair {
	struct trainee trainee;
	struct lm *lm;
	struct model_shape shape;
	float *logits; /* [SEQ, vocab] */
};

static void must(int rc, const struct err *e)
{
	if (rc)
		fail_msg("%s", e->text);
}

/* Opens both models with the same weights. */
static void open_pair(const struct kind *k, const char *backend_name, struct pair *p)
{
	struct err e = ERR_INIT;
	struct job job;
	must(trainee_job(&k->model, k->words, &job, &e), &e);
	must(trainee_open(&k->model, &job, world_alone(), backend_name, 2, &p->trainee, &e), &e);
	p->shape = *pipeline_shape(p->trainee.engine);
	struct lm_options opt = { .shape = p->shape, .backend_name = backend_name, .threads = 2 };
	must(generate_lm_open(&opt, &p->lm, &e), &e);
	trainee_gather(&p->trainee, generate_lm_catalogue(p->lm), false, generate_lm_weights(p->lm),
		       NULL);
	p->logits = calloc((size_t)(SEQ * k->model.vocab), sizeof *p->logits);
	assert_non_null(p->logits);
}

static void close_pair(struct pair *p)
{
	struct comm *world = p->trainee.world;
	free(p->logits);
	generate_lm_close(p->lm);
	trainee_close(&p->trainee);
	comm_close(world);
}

/* Returns the mean loss of the targets under the logits. */
static double loss_of(const float *logits, const int32_t *targets, int64_t n, int64_t vocab)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++) {
		const float *row = logits + i * vocab;
		double total = 0;
		for (int64_t j = 0; j < vocab; j++)
			total += exp((double)row[j]);
		sum += log(total) - (double)row[targets[i]];
	}
	return sum / (double)n;
}

static void its_loss_is_that_of_the_model_that_trains(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * KINDS; i++) {
		struct err e = ERR_INIT;
		struct pair p;
		double want;
		open_pair(&kinds[i / 2], i % 2 ? "reference" : "cpu", &p);
		for (int step = 0; step < 2; step++) {
			must(trainee_eval(&p.trainee, step, &want, &e), &e);
			generate_lm_reset(p.lm);
			must(generate_lm_append_all(p.lm, p.trainee.inputs, SEQ, p.logits, &e), &e);
			double got = loss_of(p.logits, p.trainee.targets, SEQ, p.shape.vocab);
			if (!(fabs(got - want) <= 1e-6 * want))
				fail_msg("%s: a loss of %.9g, the model that trains has %.9g",
					 kinds[i / 2].model.name, got, want);
		}
		close_pair(&p);
	}
}

static double distance(const float *a, const float *b, int64_t n)
{
	double off = 0, size = 0;
	for (int64_t i = 0; i < n; i++) {
		off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)a[i] * (double)a[i];
	}
	return sqrt(off / size);
}

/* The tokens are fed in various pieces: 1 token at a time, and uneven runs. */
static void the_cache_changes_nothing(void **state)
{
	static const int64_t pieces[][3] = { { 1, 1, 1 }, { 7, 1, 30 }, { 270, 1, 1 } };
	(void)state;
	for (int i = 0; i < KINDS; i++) {
		struct err e = ERR_INIT;
		struct pair p;
		open_pair(&kinds[i], "cpu", &p);
		int64_t vocab = p.shape.vocab;
		float *logits = calloc((size_t)vocab, sizeof *logits);
		trainee_read(&p.trainee, 0);
		must(generate_lm_append_all(p.lm, p.trainee.inputs, SEQ, p.logits, &e), &e);
		for (size_t way = 0; way < sizeof pieces / sizeof *pieces; way++) {
			generate_lm_reset(p.lm);
			for (int64_t at = 0, n = 0, turn = 0; at < SEQ; at += n, turn++) {
				n = pieces[way][turn % 3] < SEQ - at ? pieces[way][turn % 3]
								     : SEQ - at;
				must(generate_lm_append(p.lm, p.trainee.inputs + at, n, logits, &e),
				     &e);
				double off = distance(p.logits + (at + n - 1) * vocab, logits,
						      vocab);
				if (!(off <= 1e-5))
					fail_msg("%s: logits behind token %d are off by %.1e",
						 kinds[i].model.name, (int)(at + n - 1), off);
			}
			assert_int_equal(generate_lm_length(p.lm), SEQ);
		}
		free(logits);
		close_pair(&p);
	}
}

static void tokens_that_do_not_fit_are_refused(void **state)
{
	struct err e = ERR_INIT;
	struct pair p;
	int32_t many[SEQ + 1] = { 0 }, far = 37, below = -1;
	(void)state;
	open_pair(&kinds[0], "cpu", &p);
	assert_int_equal(generate_lm_append(p.lm, many, SEQ + 1, p.logits, &e), -1);
	assert_non_null(strstr(e.text, "301 tokens after 0: the model sees 1 to 300"));
	assert_int_equal(generate_lm_append(p.lm, many, 0, p.logits, &e), -1);
	assert_int_equal(generate_lm_append(p.lm, &far, 1, p.logits, &e), -1);
	assert_non_null(strstr(e.text, "token 37 is outside of the model's vocabulary of 37"));
	assert_int_equal(generate_lm_append(p.lm, &below, 1, p.logits, &e), -1);
	must(generate_lm_append(p.lm, many, SEQ, p.logits, &e), &e);
	assert_int_equal(generate_lm_append(p.lm, many, 1, p.logits, &e), -1);
	close_pair(&p);
}

/* --- sampling --- */

enum { VOCAB = 6, DRAWS = 20000 };

/* Counts how often each token occurs in DRAWS places. */
static void count_draws(const struct sample_options *opt, const float *logits, int *counts)
{
	struct err e = ERR_INIT;
	struct sampler *s;
	must(generate_sampler_open(opt, VOCAB, &s, &e), &e);
	memset(counts, 0, VOCAB * sizeof *counts);
	for (uint64_t place = 0; place < DRAWS; place++) {
		int32_t token;
		must(generate_sampler_draw(s, logits, place, &token, &e), &e);
		assert_in_range(token, 0, VOCAB - 1);
		counts[token]++;
	}
	generate_sampler_close(s);
}

/* The probabilities .4 .25 .15 .1 .06 .04 belong to the ids 3 0 5 1 4 2, in this order. */
static const int order[VOCAB] = { 3, 0, 5, 1, 4, 2 };
static const double likely[VOCAB] = { 0.4, 0.25, 0.15, 0.1, 0.06, 0.04 };

static void tokens_come_as_often_as_they_are_likely(void **state)
{
	/* clang-format off */
	static const struct {
		struct sample_options opt;
		int kept;
	} rows[] = {
		{ { 1, 0, 1, 1 }, 6 },   { { 1, 3, 1, 2 }, 3 },     { { 1, 0, 0.7, 3 }, 3 }, { { 1, 0, 0.64, 4 }, 2 },
		{ { 1, 0, 0.01, 5 }, 1 }, { { 1, 99, 1, 6 }, 6 },    { { 1, 4, 0.85, 7 }, 3 }, { { 1, 1, 1, 8 }, 1 },
		{ { 2, 0, 1, 9 }, 6 },   { { 0.5, 5, 0.98, 10 }, 4 },
	};
	/* clang-format on */
	float logits[VOCAB];
	(void)state;
	for (int i = 0; i < VOCAB; i++)
		logits[order[i]] = (float)log(likely[i]) + 3;
	for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
		int counts[VOCAB];
		double total = 0;
		count_draws(&rows[r].opt, logits, counts);
		for (int i = 0; i < rows[r].kept; i++)
			total += pow(likely[i], 1 / rows[r].opt.temperature);
		for (int i = 0; i < VOCAB; i++) {
			double p = i < rows[r].kept
					   ? pow(likely[i], 1 / rows[r].opt.temperature) / total
					   : 0;
			double off = fabs(counts[order[i]] - p * DRAWS),
			       most = 5 * sqrt(DRAWS * p * (1 - p)) + 1e-9;
			if (off > most)
				fail_msg("row %zu: token %d came %d times of %d, wanted %.0f", r,
					 order[i], counts[order[i]], DRAWS, p * DRAWS);
		}
	}
}

static void of_equal_logits_the_lower_id_comes_first(void **state)
{
	const float logits[VOCAB] = { 0, 1, 1, 1, 1, 0 };
	const struct sample_options greedy = { .temperature = 0, .top_p = 1 },
				    two = { .temperature = 1, .top_k = 2, .top_p = 1 };
	int counts[VOCAB];
	(void)state;
	count_draws(&greedy, logits, counts);
	assert_int_equal(counts[1], DRAWS);
	count_draws(&two, logits, counts);
	assert_int_equal(counts[1] + counts[2], DRAWS);
	assert_true(counts[1] > 0 && counts[2] > 0);
}

static void logits_that_are_no_numbers_are_refused(void **state)
{
	const float bad[2][VOCAB] = { { 0, 1, NAN, 1 }, { 0, INFINITY } },
		    masked[VOCAB] = { -INFINITY, -INFINITY, 2, -INFINITY, -INFINITY, -INFINITY };
	const struct sample_options opt = { .temperature = 1, .top_p = 1 };
	struct err e = ERR_INIT;
	struct sampler *s;
	int32_t token;
	(void)state;
	must(generate_sampler_open(&opt, VOCAB, &s, &e), &e);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(generate_sampler_draw(s, bad[i], 0, &token, &e), -1);
		assert_int_equal(e.code, ERR_NUMERIC);
	}
	for (uint64_t place = 0; place < 50; place++) {
		must(generate_sampler_draw(s, masked, place, &token, &e), &e);
		assert_int_equal(token, 2);
	}
	generate_sampler_close(s);
}

/* --- texts --- */

enum { TEXT = 800 };

static void write_text(struct pair *p, const struct sample_options *sample, int64_t context,
		       const int32_t *prompt, int64_t n, int32_t *out)
{
	struct err e = ERR_INIT;
	struct generated_text *t;
	struct generated_text_options opt = { .lm = p->lm,
					      .context = context,
					      .vocab = p->shape.vocab,
					      .usable = p->shape.vocab,
					      .sample = *sample };
	must(generate_text_open(&opt, &t, &e), &e);
	must(generate_text_prompt(t, prompt, n, &e), &e);
	for (int i = 0; i < TEXT; i++)
		must(generate_text_next(t, &out[i], &e), &e);
	generate_text_close(t);
}

static void a_text_is_a_function_of_the_seed(void **state)
{
	const int32_t prompt[3] = { 1, 2, 3 };
	struct sample_options sample = { .temperature = 1, .top_p = 0.95, .seed = 5 };
	int32_t a[TEXT], b[TEXT];
	struct pair p;
	(void)state;
	open_pair(&kinds[1], "cpu", &p);
	write_text(&p, &sample, SEQ, prompt, 3, a);
	write_text(&p, &sample, SEQ, prompt, 3, b);
	assert_memory_equal(a, b, sizeof a);
	sample.seed = 6;
	write_text(&p, &sample, SEQ, prompt, 3, b);
	assert_memory_not_equal(a, b, sizeof a);
	sample.temperature = 0;
	write_text(&p, &sample, SEQ, prompt, 3, a);
	sample.seed = 7;
	write_text(&p, &sample, SEQ, prompt, 3, b);
	assert_memory_equal(a, b, sizeof a);
	close_pair(&p);
}

/* The test applies the rule of text.h without a cache: for each token, it computes the model's
 * whole input again. */
static void a_full_context_goes_on_from_its_last_half(void **state)
{
	enum { CONTEXT = 24 };
	const struct sample_options greedy = { .temperature = 0, .top_p = 1 };
	struct err e = ERR_INIT;
	struct pair p;
	(void)state;
	for (int64_t n = 1; n <= 40; n += 13) { /* prompts shorter and longer than the context */
		int32_t all[40 + TEXT], got[TEXT];
		open_pair(&kinds[0], "cpu", &p);
		for (int i = 0; i < 40; i++)
			all[i] = (i * 7 + 3) % 37;
		write_text(&p, &greedy, CONTEXT, all, n, got);
		/* the first token that the model sees */
		int64_t first = n > CONTEXT ? n - CONTEXT / 2 : 0;
		for (int64_t i = n; i < n + 100; i++) {
			generate_lm_reset(p.lm);
			must(generate_lm_append(p.lm, all + first, i - first, p.logits, &e), &e);
			int best = 0;
			for (int j = 1; j < 37; j++)
				best = p.logits[j] > p.logits[best] ? j : best;
			assert_int_equal(got[i - n], best);
			all[i] = best;
			if (i + 1 - first > CONTEXT)
				first = i + 1 - CONTEXT / 2;
		}
		close_pair(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_loss_is_that_of_the_model_that_trains),
		cmocka_unit_test(the_cache_changes_nothing),
		cmocka_unit_test(tokens_that_do_not_fit_are_refused),
		cmocka_unit_test(tokens_come_as_often_as_they_are_likely),
		cmocka_unit_test(of_equal_logits_the_lower_id_comes_first),
		cmocka_unit_test(logits_that_are_no_numbers_are_refused),
		cmocka_unit_test(a_text_is_a_function_of_the_seed),
		cmocka_unit_test(a_full_context_goes_on_from_its_last_half),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
