/* The coordinates of ranks, and how sizes are split. */
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void tensor_parallel_varies_fastest_then_context_then_data_then_pipeline(void **state)
{
	struct layout l = { .tp = 2, .cp = 5, .dp = 3, .pp = 4, .ep = 1, .chunks = 1 };
	(void)state;
	assert_int_equal(layout_world(&l), 120);
	for (int r = 0; r < 120; r++) {
		struct coords c = layout_coords(&l, r);
		assert_int_equal(c.tp, r % 2);
		assert_int_equal(c.cp, r / 2 % 5);
		assert_int_equal(c.dp, r / 10 % 3);
		assert_int_equal(c.pp, r / 30);
		assert_int_equal(layout_rank(&l, c), r);
	}
}

static struct layout layout_of_words(const char *a, const char *b, int dp)
{
	const char *const words[] = { a, b };
	struct job job;
	assert_int_equal(job_load(NULL, words, 2, &job, NULL), 0);
	return layout_of(&job, dp);
}

static void stages_go_round_the_ranks_or_there_and_back(void **state)
{
	static const int round[] = { 0, 1, 2, 0, 1, 2, 0, 1, 2 }, vee[] = { 0, 1, 2, 2, 1, 0 };
	struct layout l = { .tp = 1, .cp = 1, .dp = 1, .pp = 3, .ep = 1, .chunks = 3 };
	int pp, chunk;
	(void)state;
	assert_int_equal(layout_n_stages(&l), 9);
	for (int s = 0; s < 9; s++) {
		layout_holder(&l, s, &pp, &chunk);
		assert_int_equal(pp, round[s]);
		assert_int_equal(chunk, s / 3);
		assert_int_equal(layout_stage(&l, pp, chunk), s);
	}
	l.chunks = 2;
	l.vee = true;
	for (int s = 0; s < 6; s++) {
		layout_holder(&l, s, &pp, &chunk);
		assert_int_equal(pp, vee[s]);
		assert_int_equal(chunk, s / 3);
		assert_int_equal(layout_stage(&l, pp, chunk), s);
	}
}

static void the_schedule_says_how_many_chunks_there_are(void **state)
{
	(void)state;
	struct layout l = layout_of_words("parallel.pp=2", "parallel.schedule=1f1b", 7);
	assert_true(l.chunks == 1 && !l.vee && l.dp == 7 && l.pp == 2 && l.ep == 1 && l.cp == 1 &&
		    l.tp == 1);
	l = layout_of_words("parallel.pp=2", "parallel.schedule=interleaved", 1);
	assert_true(l.chunks == 2 && !l.vee);
	l = layout_of_words("parallel.pp=2", "parallel.schedule=zb-v", 1);
	assert_true(l.chunks == 2 && l.vee);
}

static void a_share_is_the_ranks_part_of_every_cut(void **state)
{
	struct layout l = { .tp = 2, .cp = 1, .dp = 4, .pp = 2, .ep = 2, .chunks = 2, .vee = true };
	struct stage stages[4], chunks[LAYOUT_CHUNKS_MAX];
	(void)state;
	for (int i = 0; i < 4; i++)
		stages[i] = (struct stage){ i, i + 1, i == 0, i == 3 };
	struct share s = layout_share(&l, (struct coords){ .tp = 1, .dp = 3, .pp = 1 }, true,
				      stages, chunks);
	assert_true(s.tp == 2 && s.tp_rank == 1 && s.ep == 2 && s.ep_rank == 1 && s.sp &&
		    s.n_chunks == 2);
	assert_int_equal(s.chunks[0].layer_lo, 1);
	assert_int_equal(s.chunks[1].layer_lo, 2);
	s = layout_share(&l, (struct coords){ .dp = 2 }, false, stages, chunks);
	assert_true(s.tp_rank == 0 && s.ep_rank == 0 && !s.sp && s.chunks[0].first &&
		    s.chunks[1].last);
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
				int64_t grain = layout_partition_grain(n, parts, grains[g]);
				for (int i = 0; i < parts; i++) {
					int64_t lo, hi;
					layout_partition(n, parts, i, grain, &lo, &hi);
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
	assert_int_equal(layout_partition_grain(50257, 8, 64), 64);
	assert_int_equal(layout_partition_grain(256, 4, 64), 64);
	assert_int_equal(layout_partition_grain(256, 8, 64), 32);
	assert_int_equal(layout_partition_grain(5, 4, 64), 1);
	int64_t lo, hi;
	layout_partition(50257, 2, 1, 64, &lo, &hi);
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
	shape_of_job(&job, &m);
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
			assert_int_equal(layout_stages(&m, pp, "", false, NULL, s, &e), 0);
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
	return (s->layer_hi - s->layer_lo) * shape_cost_layer(m) +
	       (s->first ? shape_cost_embed(m) : 0) + (s->last ? shape_cost_head(m) : 0);
}

/* The lowest cost of the costliest stage, over every way to share the layers, for a few stages. */
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
				assert_int_equal(layout_stages(&m, pp, "", false, NULL, s, NULL),
						 0);
				for (int i = 0; i < pp; i++)
					worst = cost(&m, &s[i]) > worst ? cost(&m, &s[i]) : worst;
				double best = best_by_trying(&m, pp, 0, layers);
				assert_true(worst <= best * (1 + 1e-12));
			}
}

static void a_heavy_head_gets_fewer_layers(void **state)
{
	struct model_shape m = gpt2(12, 768, 50257); /* the head costs about 5 layers */
	struct stage s[4];
	(void)state;
	assert_int_equal(layout_stages(&m, 4, "", false, NULL, s, NULL), 0);
	assert_true(s[3].layer_hi - s[3].layer_lo == 1);
}

static void a_slow_holder_gets_fewer_layers(void **state)
{
	static const double speed[] = { 3, 1, 2 };
	struct model_shape m = gpt2(12, 256, 64);
	struct stage s[3];
	(void)state;
	assert_int_equal(layout_stages(&m, 3, "", false, speed, s, NULL), 0);
	assert_int_equal(s[0].layer_hi - s[0].layer_lo, 6);
	assert_int_equal(s[1].layer_hi - s[1].layer_lo, 2);
	assert_int_equal(s[2].layer_hi - s[2].layer_lo, 4);
}

static void stages_by_hand_must_be_as_many_and_sum_up(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "5,7", "2 stages with 12 layers, and there are 3" },
		{ "5,5,1", "3 stages with 11 layers" },
		{ "5,0,7", "\"0,7\" is not a list" },
		{ "5,,7", "\",7\" is not a list" },
		{ "5,x", "\"x\" is not a list" },
		{ "5,7,", "\"\" is not a list" },
		{ "0,6,6", "\"0,6,6\" is not a list" },
		{ "6,6,0", "\"0\" is not a list" },
	};
	struct model_shape m = gpt2(12, 256, 64);
	struct stage s[3];
	(void)state;
	assert_int_equal(layout_stages(&m, 3, "5,1,6", false, NULL, s, NULL), 0);
	assert_int_equal(s[0].layer_hi, 5);
	assert_int_equal(s[1].layer_hi, 6);
	assert_int_equal(s[2].layer_hi, 12);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(layout_stages(&m, 3, bad[i].text, false, NULL, s, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		if (!strstr(e.text, bad[i].says))
			fail_msg("%s", e.text);
	}
}

static void more_stages_than_layers_are_refused(void **state)
{
	struct model_shape m = gpt2(3, 64, 256);
	struct stage s[4];
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(layout_stages(&m, 4, "", false, NULL, s, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
}

/* --- Bare ends --- */

static int layers_of(const struct stage *s)
{
	return s->layer_hi - s->layer_lo;
}

/* The lowest cost of the costliest stage if one layer is left over: it goes to an end, or to a
 * stage between them. */
static double best_of_one_more(const struct model_shape *m, int n)
{
	double layer = shape_cost_layer(m), first = shape_cost_embed(m), last = shape_cost_head(m);
	double inner = n > 2 ? layer : 0, most = fmax(fmax(first, last), inner);
	double ends = fmin(fmax(most, first + layer), fmax(most, last + layer));
	return n > 2 ? fmin(ends, fmax(most, 2 * layer)) : ends;
}

static void other_programs_leave_an_end_bare_if_layers_lack(void **state)
{
	static const int64_t vocabs[] = { 64,
					  50257 }; /* a head lighter, and heavier than a layer */
	(void)state;
	for (int v = 0; v < 2; v++)
		for (int layers = 1; layers <= 17; layers++) {
			struct model_shape m = gpt2(layers, 256, vocabs[v]);
			struct stage s[19];
			double worst = 0;
			int n = layers + 2;
			assert_int_equal(layout_stages(&m, n, "", true, NULL, s, NULL), 0);
			for (int i = 0; i < n; i++) {
				assert_int_equal(layers_of(&s[i]), i > 0 && i < n - 1);
				assert_int_equal(s[i].layer_lo, i > 0 ? i - 1 : 0);
				assert_true(s[i].first == (i == 0) && s[i].last == (i == n - 1));
			}
			assert_int_equal(layout_stages(&m, --n, "", true, NULL, s, NULL), 0);
			assert_int_equal(s[n - 1].layer_hi, layers);
			for (int i = 0; i < n; i++) {
				assert_true(layers_of(&s[i]) > 0 || i == 0 || i == n - 1);
				assert_int_equal(s[i].layer_lo, i ? s[i - 1].layer_hi : 0);
				worst = fmax(worst, cost(&m, &s[i]));
			}
			assert_true(worst <= best_of_one_more(&m, n) * (1 + 1e-12));
		}
}

static void enough_layers_leave_no_end_bare(void **state)
{
	struct model_shape m = gpt2(12, 768, 50257); /* the head costs about 5 layers */
	struct stage s[12], other[12];
	(void)state;
	for (int n = 1; n <= 12; n++) {
		assert_int_equal(layout_stages(&m, n, "", false, NULL, s, NULL), 0);
		assert_int_equal(layout_stages(&m, n, "", true, NULL, other, NULL), 0);
		for (int i = 0; i < n; i++)
			assert_true(s[i].layer_lo == other[i].layer_lo &&
				    s[i].layer_hi == other[i].layer_hi);
	}
}

static void bare_ends_by_hand_are_ends(void **state)
{
	static const char *const bad[] = { "6,0,6", "0,0,12", "12,0,0", "0,13,-1" };
	struct model_shape m = gpt2(12, 256, 64);
	struct stage s[3];
	(void)state;
	assert_int_equal(layout_stages(&m, 3, "0,12,0", true, NULL, s, NULL), 0);
	assert_true(!layers_of(&s[0]) && layers_of(&s[1]) == 12 && !layers_of(&s[2]));
	assert_int_equal(layout_stages(&m, 3, "0,5,7", true, NULL, s, NULL), 0);
	assert_true(!layers_of(&s[0]) && layers_of(&s[2]) == 7);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(layout_stages(&m, 3, bad[i], true, NULL, s, &e), -1);
		if (!strstr(e.text, "from 1 on, or 0 at an end,"))
			fail_msg("%s", e.text);
	}
}

static void bare_ends_are_at_most_two(void **state)
{
	struct model_shape m = gpt2(3, 64, 256);
	struct stage s[6];
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(layout_stages(&m, 6, "", true, NULL, s, &e), -1);
	assert_non_null(strstr(e.text, "but the first and the last needs a layer"));
	assert_non_null(strstr(e.text, "use at most 5"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			tensor_parallel_varies_fastest_then_context_then_data_then_pipeline),
		cmocka_unit_test(stages_go_round_the_ranks_or_there_and_back),
		cmocka_unit_test(the_schedule_says_how_many_chunks_there_are),
		cmocka_unit_test(a_share_is_the_ranks_part_of_every_cut),
		cmocka_unit_test(pieces_cover_everything_once_and_are_balanced),
		cmocka_unit_test(grains_shrink_only_when_they_must),
		cmocka_unit_test(stages_are_consecutive_and_whole),
		cmocka_unit_test(the_costliest_stage_is_as_cheap_as_can_be),
		cmocka_unit_test(a_heavy_head_gets_fewer_layers),
		cmocka_unit_test(a_slow_holder_gets_fewer_layers),
		cmocka_unit_test(stages_by_hand_must_be_as_many_and_sum_up),
		cmocka_unit_test(more_stages_than_layers_are_refused),
		cmocka_unit_test(other_programs_leave_an_end_bare_if_layers_lack),
		cmocka_unit_test(enough_layers_leave_no_end_bare),
		cmocka_unit_test(bare_ends_by_hand_are_ends),
		cmocka_unit_test(bare_ends_are_at_most_two),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
