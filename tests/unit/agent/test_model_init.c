/* The initial model is the same to the bit in every layout. */
#include "agent/engine/model/model.h"
#include "tests/unit/agent/tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny models[] = {
	{ "gpt2", FAMILY_GPT2, 3, 20, 5, 5, 4, 51, 101, 9, TIE_YES, 1, 1, 0.02 },
	{ "llama", FAMILY_LLAMA, 3, 20, 6, 3, 6, 37, 67, 7, TIE_NO, 1, 1, 0.02 },
};

/* One shard of one stage, after initialization. */
struct shard {
	struct catalogue c;
	float *params;
};

/* Initializes the parameter in 2 pieces. If it has rows, the boundary is in the middle of one. */
static void init_param(const struct model_shape *m, const struct param *p, float *out)
{
	int64_t cut = p->count / 3;
	model_init(p, m, 7, 0, cut, 1, out);
	model_init(p, m, 7, cut, p->count - cut, 3, out + cut);
}

static void shard_open(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage,
		       struct shard *s)
{
	const struct share share = {
		.tp = tp, .tp_rank = tp_rank, .ep = 1, .chunks = stage, .n_chunks = 1
	};
	struct err e = ERR_INIT;
	assert_int_equal(catalogue_build(m, &share, &s->c, &e), 0);
	s->params = calloc((size_t)s->c.elements, sizeof *s->params);
	assert_non_null(s->params);
	for (int i = 0; i < s->c.n; i++)
		init_param(m, &s->c.params[i], s->params + s->c.params[i].offset);
}

static void shard_close(struct shard *s)
{
	free(s->params);
	catalogue_free(&s->c);
}

static const struct param *named(const struct catalogue *c, const char *name)
{
	for (int i = 0; i < c->n; i++)
		if (!strcmp(c->params[i].name, name))
			return &c->params[i];
	return NULL;
}

static void check_box(const struct shard *whole, const struct shard *part, const struct param *p)
{
	const struct param *full = named(&whole->c, p->name);
	int64_t width = p->hi[1] - p->lo[1];
	assert_non_null(full);
	for (int64_t row = p->lo[0]; row < p->hi[0]; row++)
		assert_memory_equal(part->params + p->offset + (row - p->lo[0]) * width,
				    whole->params + full->offset + row * full->shape[1] + p->lo[1],
				    (size_t)width * sizeof(float));
}

static void check_shards(const struct model_shape *m, const struct shard *whole, int tp, int pp)
{
	struct stage stages[8];
	struct err e = ERR_INIT;
	assert_int_equal(layout_stages(m, pp, "", false, NULL, stages, &e), 0);
	for (int s = 0; s < pp; s++)
		for (int r = 0; r < tp; r++) {
			struct shard part;
			shard_open(m, tp, r, &stages[s], &part);
			for (int i = 0; i < part.c.n; i++)
				check_box(whole, &part, &part.c.params[i]);
			shard_close(&part);
		}
}

static void every_shard_is_a_piece_of_the_same_model(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct job job;
		struct model_shape m;
		struct shard whole;
		tiny_job(&models[i], &job);
		shape_of_job(&job, &m);
		shard_open(&m, 1, 0, &(struct stage){ 0, (int)m.layers, true, true }, &whole);
		for (int tp = 1; tp <= 3; tp++)
			for (int pp = 1; pp <= 3; pp++)
				check_shards(&m, &whole, tp, pp);
		shard_close(&whole);
	}
}

static double spread(const struct shard *s, const char *name)
{
	const struct param *p = named(&s->c, name);
	double sum = 0;
	for (int64_t i = 0; i < p->count; i++)
		sum += (double)s->params[p->offset + i] * (double)s->params[p->offset + i];
	return sqrt(sum / (double)p->count);
}

static void matrices_are_normal_and_residual_ones_narrower(void **state)
{
	(void)state;
	struct job job;
	struct model_shape m;
	struct shard s;
	tiny_job(&models[0], &job);
	shape_of_job(&job, &m);
	shard_open(&m, 1, 0, &(struct stage){ 0, (int)m.layers, true, true }, &s);
	assert_true(fabs(spread(&s, "layers.0.mlp.up.weight") / 0.02 - 1) < 0.1);
	assert_true(fabs(spread(&s, "layers.0.mlp.down.weight") * sqrt(6) / 0.02 - 1) < 0.1);
	assert_true(spread(&s, "layers.1.norm1.weight") == 1);
	assert_true(spread(&s, "layers.1.mlp.up.bias") == 0);
	shard_close(&s);
}

/* The matrices of this model are large enough for teams of threads. No number of threads divides
 * its sizes. */
static const struct tiny wide = { "wide", FAMILY_LLAMA, 1, 276,    6, 3, 46,
				  1001,   1009,         7, TIE_NO, 1, 1, 0.02 };

/* Lets a number of threads initialize elements [first, first + count) of the parameter's box.
 * Compares them with the whole parameter that one thread has initialized. */
static void check_team(const struct model_shape *m, const struct param *p, const float *whole,
		       int64_t first, int64_t count, int threads)
{
	size_t bytes = (size_t)count * sizeof(float);
	float *part = malloc(bytes + sizeof(float));
	assert_non_null(part);
	memset(part, 0xff, bytes + sizeof(float));
	float after = part[count];
	model_init(p, m, 7, first, count, threads, part);
	assert_memory_equal(part, whole + first, bytes);
	assert_memory_equal(&part[count], &after, sizeof after);
	free(part);
}

static void threads_change_no_bit(void **state)
{
	static const int threads[] = { 2, 3, 7, 64, 4096 };
	(void)state;
	struct job job;
	struct model_shape m;
	struct catalogue c;
	struct err e = ERR_INIT;
	tiny_job(&wide, &job);
	shape_of_job(&job, &m);
	/* The boxes of the second of 2 shards begin in the middle of rows. */
	const struct stage stage = { 0, (int)m.layers, true, true };
	const struct share share = {
		.tp = 2, .tp_rank = 1, .ep = 1, .chunks = &stage, .n_chunks = 1
	};
	assert_int_equal(catalogue_build(&m, &share, &c, &e), 0);
	int large = 0;
	for (int i = 0; i < c.n; i++) {
		const struct param *p = &c.params[i];
		float *whole = malloc((size_t)p->count * sizeof *whole);
		assert_non_null(whole);
		model_init(p, &m, 7, 0, p->count, 1, whole);
		for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
			check_team(&m, p, whole, 0, p->count, threads[t]);
			check_team(&m, p, whole, p->count / 7 + 1,
				   p->count - p->count / 7 - 3 > 0 ? p->count - p->count / 7 - 3
								   : 0,
				   threads[t]);
		}
		large += p->count > 1 << 17;
		free(whole);
	}
	assert_true(large > 2);
	catalogue_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shard_is_a_piece_of_the_same_model),
		cmocka_unit_test(threads_change_no_bit),
		cmocka_unit_test(matrices_are_normal_and_residual_ones_narrower),
	};
	return cmocka_run_group_tests_name("initial parameters", tests, NULL, NULL);
}
