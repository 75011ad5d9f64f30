/* Who is who, and how sizes are cut. */
#include "plan/layout.h"
#include "plan/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void tensor_parallel_varies_fastest_then_data_then_pipeline(void **state)
{
	struct layout l = { .tp = 2, .dp = 3, .pp = 4 };
	(void)state;
	assert_int_equal(layout_world(&l), 24);
	for (int r = 0; r < 24; r++) {
		struct coords c = layout_coords(&l, r);
		assert_int_equal(c.tp, r % 2);
		assert_int_equal(c.dp, r / 2 % 3);
		assert_int_equal(c.pp, r / 6);
		assert_int_equal(layout_rank(&l, c), r);
	}
}

static void pieces_cover_everything_once_and_are_balanced(void **state)
{
	static const int64_t sizes[] = { 1, 2, 7, 16, 63, 64, 65, 255, 256, 257, 1000, 50257 };
	static const int64_t grains[] = { 1, 16, 64 };
	(void)state;
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (size_t g = 0; g < 3; g++)
			for (int parts = 1; parts <= 16; parts++) {
				int64_t at = 0, least = INT64_MAX, most = 0, n = sizes[s];
				int64_t grain = partition_grain(n, parts, grains[g]);
				for (int i = 0; i < parts; i++) {
					int64_t lo, hi;
					partition(n, parts, i, grain, &lo, &hi);
					assert_int_equal(lo, at);
					assert_true(hi >= lo);
					assert_true(hi % grain == 0 || i == parts - 1);
					if (n >= parts)
						assert_true(hi > lo);
					int64_t whole = (hi - lo) / grain;
					least = whole < least ? whole : least;
					most = whole > most ? whole : most;
					at = hi;
				}
				assert_int_equal(at, n);
				assert_true(most - least <= 1);
			}
}

static void grains_shrink_only_when_they_must(void **state)
{
	(void)state;
	assert_int_equal(partition_grain(50257, 8, 64), 64);
	assert_int_equal(partition_grain(256, 4, 64), 64);
	assert_int_equal(partition_grain(256, 8, 64), 32);
	assert_int_equal(partition_grain(5, 4, 64), 1);
	int64_t lo, hi;
	partition(50257, 2, 1, 64, &lo, &hi);
	assert_int_equal(lo, 25152);
	assert_int_equal(hi, 50257);
}

static struct model_shape gpt2(int64_t layers, int64_t hidden, int64_t vocab)
{
	struct job job;
	struct model_shape m;
	assert_int_equal(job_load(NULL, NULL, 0, &job, NULL), 0);
	job.model.layers = layers;
	job.model.hidden = hidden;
	job.model.vocab = vocab;
	model_shape(&job, &m);
	return m;
}

static void stages_are_consecutive_and_whole(void **state)
{
	(void)state;
	for (int64_t layers = 1; layers <= 17; layers++)
		for (int pp = 1; pp <= layers; pp++) {
			struct model_shape m = gpt2(layers, 64, 5000);
			struct stage s[17];
			struct err e = ERR_INIT;
			int at = 0;
			assert_int_equal(layout_stages(&m, pp, s, &e), 0);
			for (int i = 0; i < pp; i++) {
				assert_int_equal(s[i].layer_lo, at);
				assert_true(s[i].layer_hi > at);
				assert_int_equal(s[i].first, i == 0);
				assert_int_equal(s[i].last, i == pp - 1);
				at = s[i].layer_hi;
			}
			assert_int_equal(at, layers);
		}
}

static double cost(const struct model_shape *m, const struct stage *s)
{
	return (s->layer_hi - s->layer_lo) * model_cost_layer(m) + (s->first ? model_cost_embed(m) : 0) +
	       (s->last ? model_cost_head(m) : 0);
}

/* Every way to share the layers out, for a few stages: none has a cheaper costliest stage. */
static double best_by_trying(const struct model_shape *m, int pp, int stage, int64_t left)
{
	double best = -1;
	if (stage == pp - 1) {
		struct stage s = { 0, (int)left, stage == 0, true };
		return cost(m, &s);
	}
	for (int n = 1; n <= left - (pp - stage - 1); n++) {
		struct stage s = { 0, n, stage == 0, false };
		double rest = best_by_trying(m, pp, stage + 1, left - n), mine = cost(m, &s);
		double worst = rest > mine ? rest : mine;
		if (best < 0 || worst < best)
			best = worst;
	}
	return best;
}

static void the_costliest_stage_is_as_cheap_as_can_be(void **state)
{
	static const int64_t vocabs[] = { 256, 3000, 20000, 50257 };
	(void)state;
	for (size_t v = 0; v < 4; v++)
		for (int64_t layers = 2; layers <= 12; layers++)
			for (int pp = 1; pp <= 4 && pp <= layers; pp++) {
				struct model_shape m = gpt2(layers, 256, vocabs[v]);
				struct stage s[4];
				double worst = 0;
				assert_int_equal(layout_stages(&m, pp, s, NULL), 0);
				for (int i = 0; i < pp; i++)
					worst = cost(&m, &s[i]) > worst ? cost(&m, &s[i]) : worst;
				double best = best_by_trying(&m, pp, 0, layers);
				assert_true(worst <= best * (1 + 1e-12));
			}
}

static void a_heavy_head_gets_fewer_layers(void **state)
{
	struct model_shape m = gpt2(12, 768, 50257); /* the head costs about five layers */
	struct stage s[4];
	(void)state;
	assert_int_equal(layout_stages(&m, 4, s, NULL), 0);
	assert_true(s[3].layer_hi - s[3].layer_lo == 1);
}

static void more_stages_than_layers_are_refused(void **state)
{
	struct model_shape m = gpt2(3, 64, 256);
	struct stage s[4];
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(layout_stages(&m, 4, s, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_parallel_varies_fastest_then_data_then_pipeline),
		cmocka_unit_test(pieces_cover_everything_once_and_are_balanced),
		cmocka_unit_test(grains_shrink_only_when_they_must),
		cmocka_unit_test(stages_are_consecutive_and_whole),
		cmocka_unit_test(the_costliest_stage_is_as_cheap_as_can_be),
		cmocka_unit_test(a_heavy_head_gets_fewer_layers),
		cmocka_unit_test(more_stages_than_layers_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
