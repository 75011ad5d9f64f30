/* `muster bench comm` compares results with expected values. One wrong bit anywhere gives one
 * wrong element. */
#include "agent/tools/bench_comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 3 * BENCH_PERIOD + 5, RANKS = 5 };

static void one_bit_is_one_wrong_element(void **state)
{
	(void)state;
	static const size_t places[] = {
		0, 1, BENCH_PERIOD - 1, BENCH_PERIOD, 2 * BENCH_PERIOD + 7, COUNT - 1
	};
	char *data = malloc(COUNT * 8);
	for (int type = COMM_F32; type <= COMM_U8; type++) {
		struct bench_values v = { .type = (enum comm_type)type,
					  .redop = COMM_SUM,
					  .ranks = RANKS };
		size_t size = comm_type_size(v.type);
		bench_fill(&v, RANK_ALL, 11, data, COUNT);
		assert_int_equal(bench_wrong(&v, RANK_ALL, 11, data, COUNT), 0);
		for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
			data[places[i] * size] ^= 1;
			assert_int_equal(bench_wrong(&v, RANK_ALL, 11, data, COUNT), i + 1);
		}
	}
	free(data);
}

static void other_ranks_and_other_places_have_other_numbers(void **state)
{
	(void)state;
	struct bench_values v = { .type = COMM_I32, .redop = COMM_SUM, .ranks = RANKS };
	static int32_t data[COUNT];
	bench_fill(&v, 2, 0, data, COUNT);
	assert_int_equal(bench_wrong(&v, 2, 0, data, COUNT), 0);
	assert_true(bench_wrong(&v, 3, 0, data, COUNT) > COUNT / 2);
	assert_true(bench_wrong(&v, 2, 1, data, COUNT) > COUNT / 2);
	assert_true(bench_wrong(&v, RANK_ALL, 0, data, COUNT) > COUNT / 2);
	assert_int_equal(bench_wrong(&v, 2, BENCH_PERIOD, data, COUNT), 0);
}

/* If a sum lost or doubled one rank, most elements would show it, whichever reduction could hide
 * it. */
static void a_reduction_is_that_of_the_streams(void **state)
{
	(void)state;
	static int64_t sum[COUNT], product[COUNT], one[COUNT];
	struct bench_values v = { .type = COMM_I64, .redop = COMM_SUM, .ranks = RANKS };
	for (int r = 0; r < RANKS; r++) {
		bench_fill(&v, r, 0, one, COUNT);
		for (int i = 0; i < COUNT; i++)
			sum[i] += one[i];
	}
	assert_int_equal(bench_wrong(&v, RANK_ALL, 0, sum, COUNT), 0);
	v.redop = COMM_PROD;
	for (int r = 0; r < RANKS; r++) {
		bench_fill(&v, r, 0, one, COUNT);
		for (int i = 0; i < COUNT; i++)
			product[i] = r ? product[i] * one[i] : one[i];
	}
	assert_int_equal(bench_wrong(&v, RANK_ALL, 0, product, COUNT), 0);
}

/* 5.5 is 0x40b0 in bf16 and 0x4580 in f16. None of this depends on the library under test. */
static void halves_are_rounded_to_nearest_even(void **state)
{
	(void)state;
	uint16_t got[BENCH_PERIOD];
	int32_t sums[BENCH_PERIOD];
	struct bench_values v = { .type = COMM_I32, .redop = COMM_SUM, .ranks = 2 };
	bench_fill(&v, RANK_ALL, 0, sums, BENCH_PERIOD);
	v.redop = COMM_AVG;
	int seen = 0;
	for (int half = 0; half < 2; half++) {
		v.type = half ? COMM_F16 : COMM_BF16;
		bench_fill(&v, RANK_ALL, 0, got, BENCH_PERIOD);
		for (int i = 0; i < BENCH_PERIOD; i++) {
			if (sums[i] == 11)
				assert_int_equal(got[i], half ? 0x4580 : 0x40b0);
			seen += sums[i] == 11;
		}
	}
	assert_true(seen > 0);
}

static void the_bus_factors_are_those_of_nccl_tests(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		double at4;
	} want[] = {
		{ "all_reduce", 1.5 },      { "reduce", 1 },
		{ "broadcast", 1 },         { "all_gather", 0.75 },
		{ "reduce_scatter", 0.75 }, { "all_to_all", 0.75 },
		{ "gather", 0.75 },         { "scatter", 0.75 },
		{ "send_recv", 1 },         { "ping_pong", 1 },
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		assert_string_equal(bench_ops[i].name, want[i].name);
		assert_float_equal(bench_bus_factor(&bench_ops[i], 4), want[i].at4, 1e-12);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_bit_is_one_wrong_element),
		cmocka_unit_test(other_ranks_and_other_places_have_other_numbers),
		cmocka_unit_test(a_reduction_is_that_of_the_streams),
		cmocka_unit_test(halves_are_rounded_to_nearest_even),
		cmocka_unit_test(the_bus_factors_are_those_of_nccl_tests),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
