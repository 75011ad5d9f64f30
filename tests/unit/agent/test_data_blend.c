/* Tests how samples are assigned to sources: the words of data.path, the shares over every prefix,
 * and a walk that starts anywhere. */
#include "agent/engine/data/blend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct blend open_words(const char *words)
{
	struct err e = ERR_INIT;
	struct blend b;
	if (data_blend_open(words, &b, &e))
		fail_msg("%s: %s", words, e.text);
	return b;
}

static void words_are_a_path_or_weights_before_paths(void **state)
{
	static const struct {
		const char *words;
		int n;
		double weight[3];
		const char *path[3];
	} rows[] = {
		{ "A", 1, { 1 }, { "A" } },
		{ "my data/text", 1, { 1 }, { "my data/text" } },
		{ "0.7", 1, { 1 }, { "0.7" } },
		{ "./7 dwarfs", 1, { 1 }, { "./7 dwarfs" } },
		{ "7 dwarfs", 1, { 7 }, { "dwarfs" } },
		{ "0.7 A 0.3 B", 2, { 0.7, 0.3 }, { "A", "B" } },
		{ "  2   my data  1e0 B   .5 c:/3 ", 3, { 2, 1, 0.5 }, { "my data", "B", "c:/3" } },
		{ "1 0x10 1 1.5.2", 2, { 1, 1 }, { "0x10", "1.5.2" } },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct blend b = open_words(rows[i].words);
		double sum = 0, shares = 0;
		assert_int_equal(b.n, rows[i].n);
		for (int k = 0; k < b.n; k++)
			sum += rows[i].weight[k];
		for (int k = 0; k < b.n; k++) {
			assert_string_equal(b.sources[k].path, rows[i].path[k]);
			assert_true(b.sources[k].weight == rows[i].weight[k]);
			assert_true(fabs(b.sources[k].share - rows[i].weight[k] / sum) < 1e-15);
			shares += b.sources[k].share;
		}
		assert_true(fabs(shares - 1) < 1e-15);
		data_blend_fini(&b);
	}
}

static void words_that_are_no_blend_are_refused(void **state)
{
	static const struct {
		const char *words, *says;
	} rows[] = {
		{ "0 A 1 B", "the weight 0 of A is not above 0" },
		{ "1 A -2 B", "the weight -2 of B is not above 0" },
		{ "1e999 A", "the weight inf of A is not above 0" },
		{ "0.7 0.3 B", "the weight 0.7 is not followed by a path" },
		{ "0.7 A 0.3", "the weight 0.3 is not followed by a path" },
		{ "0.7 A 0.3 ", "the weight 0.3 is not followed by a path" },
		{ "1 A 2 B 3 A", "A occurs twice" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		struct blend b;
		if (!data_blend_open(rows[i].words, &b, &e))
			fail_msg("%s was not refused", rows[i].words);
		assert_int_equal(e.code, ERR_USAGE);
		if (!strstr(e.text, rows[i].says))
			fail_msg("%s: %s", rows[i].words, e.text);
	}
	assert_int_equal(data_blend_of(NULL, 0, &(struct blend){ 0 }, NULL), -1);
}

static void other_weights_are_another_order_and_other_paths_are_not(void **state)
{
	(void)state;
	assert_true(data_blend_alike("A", "my data"));
	assert_true(data_blend_alike("A", "3 A"));
	assert_true(data_blend_alike("0.7 A 0.3 B", "0.7 x/A 0.3 x/B"));
	assert_true(data_blend_alike("1 A 3 B", "2 A 6 B"));
	assert_false(data_blend_alike("0.7 A 0.3 B", "0.6 A 0.4 B"));
	assert_false(data_blend_alike("0.7 A 0.3 B", "0.3 A 0.7 B"));
	assert_false(data_blend_alike("0.7 A 0.3 B", "A"));
	assert_false(data_blend_alike("0.7 A 0 B", "0.7 A 0 B"));
}

/* Returns a blend of n sources named a0, a1, … */
static struct blend of_weights(const double *weights, int n)
{
	struct blend_source list[64];
	char names[64][16];
	struct blend b;
	for (int i = 0; i < n; i++) {
		snprintf(names[i], sizeof names[i], "a%d", i);
		list[i] = (struct blend_source){ .path = names[i], .weight = weights[i] };
	}
	assert_int_equal(data_blend_of(list, n, &b, NULL), 0);
	return b;
}

/* Walks n_samples from `first`. The counts must already be correct at `first`. Returns the largest
 * deviation from a share. */
static double largest_deviation(const struct blend *b, int64_t first, int64_t n_samples)
{
	int64_t count[64];
	double worst = 0;
	for (int s = 0; s < b->n; s++)
		count[s] = data_blend_count(b, first, s);
	for (int64_t k = first; k < first + n_samples; k++) {
		int source = -1;
		int64_t index = -1, sum = 0;
		data_blend_place(b, k, &source, &index);
		assert_in_range(source, 0, b->n - 1);
		/* The samples of each source come in order. None is repeated and none is left
		 * out. */
		assert_int_equal(index, count[source]);
		count[source]++;
		for (int s = 0; s < b->n; s++) {
			assert_int_equal(data_blend_count(b, k + 1, s), count[s]);
			worst = fmax(worst, fabs((double)count[s] -
						 b->sources[s].share * (double)(k + 1)));
			sum += count[s];
		}
		assert_int_equal(sum, k + 1);
	}
	return worst;
}

static void shares_hold_over_every_prefix(void **state)
{
	static const struct {
		int n;
		double weights[8], bound;
	} rows[] = {
		{ 1, { 3 }, 0 },
		{ 2, { 0.7, 0.3 }, 0.5 },
		{ 2, { 1, 1 }, 0.5 },
		{ 2, { 1e6, 1 }, 0.5 },
		{ 3, { 1, 1, 1 }, 1 },
		{ 5, { 16, 8, 4, 2, 1 }, 2 },
		{ 8, { 21, 13, 8, 5, 3, 2, 1, 1 }, 2 },
		{ 4, { 0.97, 0.01, 0.01, 0.01 }, 2 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct blend b = of_weights(rows[i].weights, rows[i].n);
		double worst = largest_deviation(&b, 0, 5000);
		if (worst > rows[i].bound + 1e-9)
			fail_msg("row %zu: a source is %g samples from its share", i, worst);
		data_blend_fini(&b);
	}
}

static void many_sources_stay_within_two_samples(void **state)
{
	double weights[64];
	uint32_t x = 1;
	(void)state;
	for (int round = 0; round < 20; round++) {
		int n = 3 + round * 3;
		for (int i = 0; i < n; i++) {
			x = x * 1664525 + 1013904223;
			weights[i] = exp((double)(x >> 8) / (1 << 24) * (round % 2 ? 8 : 1));
		}
		struct blend b = of_weights(weights, n);
		assert_true(largest_deviation(&b, 0, 1000) < 2);
		data_blend_fini(&b);
	}
}

static void far_places_are_computed_as_near_ones(void **state)
{
	static const double weights[] = { 5, 3, 1, 0.1 };
	(void)state;
	struct blend b = of_weights(weights, 4);
	for (int64_t first = 999; first < (1ll << 50); first = first * 37 + 5)
		assert_true(largest_deviation(&b, first, 50) <
			    2.5); /* 2, and the doubles' rounding error */
	data_blend_fini(&b);
}

static void the_assignment_never_changes(void **state)
{
	static const char want[] = "ABAABABAACAABABAABAA";
	char got[sizeof want] = "";
	(void)state;
	struct blend b = open_words("6 A 3 B 0.5 C");
	for (int k = 0; k < (int)sizeof want - 1; k++) {
		int source;
		int64_t index;
		data_blend_place(&b, k, &source, &index);
		got[k] = (char)('A' + source);
	}
	assert_string_equal(got, want);
	data_blend_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_a_path_or_weights_before_paths),
		cmocka_unit_test(words_that_are_no_blend_are_refused),
		cmocka_unit_test(other_weights_are_another_order_and_other_paths_are_not),
		cmocka_unit_test(shares_hold_over_every_prefix),
		cmocka_unit_test(many_sources_stay_within_two_samples),
		cmocka_unit_test(far_places_are_computed_as_near_ones),
		cmocka_unit_test(the_assignment_never_changes),
	};
	return cmocka_run_group_tests_name("blends", tests, NULL, NULL);
}
