/* Sums: the documented tree, half precision, and the two ways to compute the same bits. */
#include "libcomm/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static float tree_of(const float *v, int n)
{
	int p = 1;
	if (n == 1)
		return v[0];
	while (2 * p < n)
		p *= 2;
	return tree_of(v, p) + tree_of(v + p, n - p);
}

static void the_order_is_the_documented_tree(void **state)
{
	(void)state;
	enum { COUNT = 2500 };
	static float data[20][COUNT];
	float out[COUNT];
	const void *src[20];
	srandom(7);
	for (int r = 0; r < 20; r++) {
		src[r] = data[r];
		for (int i = 0; i < COUNT; i++)
			data[r][i] = ldexpf((float)(random() % 2001 - 1000),
					    (int)(random() % 40) - 20);
	}
	for (int n = 1; n <= 20; n++) {
		comm_reduce_tree(COMM_F32, COMM_SUM, src, n, out, COUNT);
		for (int i = 0; i < COUNT; i++) {
			float v[20];
			for (int r = 0; r < n; r++)
				v[r] = data[r][i];
			assert_true(out[i] == tree_of(v, n));
		}
	}
}

/* This follows the algorithm that passes partial sums up the tree. */
static void partial_sums_give_the_same_bits(void **state)
{
	(void)state;
	enum { COUNT = 1500, RANKS = 7 };
	static uint16_t data[RANKS][COUNT], direct[COUNT], passed[COUNT];
	static float acc[RANKS][COUNT];
	const void *src[RANKS];
	for (int type = COMM_BF16; type <= COMM_F16; type++) {
		for (int r = 0; r < RANKS; r++) {
			src[r] = data[r];
			for (int i = 0; i < COUNT; i++)
				data[r][i] = (uint16_t)(0x3000 + random() % 0x0fff);
			comm_reduce_load((enum comm_type)type, acc[r], data[r], COUNT);
		}
		comm_reduce_tree((enum comm_type)type, COMM_AVG, src, RANKS, direct, COUNT);
		for (int d = 1; d < RANKS; d *= 2)
			for (int r = 0; r + d < RANKS; r += 2 * d)
				comm_reduce_fold((enum comm_type)type, COMM_AVG, acc[r], acc[r + d],
						 COUNT);
		comm_reduce_store((enum comm_type)type, COMM_AVG, passed, acc[0], COUNT, RANKS);
		assert_memory_equal(direct, passed, sizeof direct);
	}
}

static double f16_value(uint16_t h)
{
	int exponent = h >> 10 & 31, mantissa = h & 1023;
	double m = exponent == 31 ? (mantissa ? NAN : INFINITY)
		   : exponent     ? ldexp(1024 + mantissa, exponent - 25)
				  : ldexp(mantissa, -24);
	return h & 0x8000 ? -m : m;
}

static void every_f16_value_converts_exactly_both_ways(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t in = (uint16_t)h, back;
		float f;
		comm_reduce_load(COMM_F16, &f, &in, 1);
		comm_reduce_store(COMM_F16, COMM_SUM, &back, &f, 1, 1);
		if (isnan(f16_value(in))) {
			assert_true(isnan(f));
			assert_true(isnan(f16_value(back)));
		} else {
			assert_true((double)f == f16_value(in));
			assert_int_equal(back, in);
		}
	}
}

/* A number between two neighbours rounds to the nearer one; a number in the middle rounds to the
 * even one. */
static void f16_values_are_rounded_to_nearest_even(void **state)
{
	(void)state;
	for (uint16_t h = 0; h < 0x7c00; h++) {
		double low = f16_value(h),
		       high = h == 0x7bff ? 65536 : f16_value((uint16_t)(h + 1));
		float middle = (float)((low + high) / 2);
		float v[3] = { nextafterf(middle, 0), middle, nextafterf(middle, INFINITY) };
		uint16_t want[3] = { h, (uint16_t)(h + (h & 1)), (uint16_t)(h + 1) }, got[3];
		comm_reduce_store(COMM_F16, COMM_SUM, got, v, 3, 1);
		assert_memory_equal(got, want, sizeof got);
	}
}

static void bf16_is_rounded_to_nearest_even(void **state)
{
	(void)state;
	static const struct {
		uint32_t in;
		uint16_t out;
	} rows[] = { { 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 }, { 0x3f818000, 0x3f82 },
		     { 0x3f808001, 0x3f81 }, { 0x7f7fffff, 0x7f80 }, { 0xff800000, 0xff80 },
		     { 0x7f800001, 0x7fc0 }, { 0x80000001, 0x8000 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		float f;
		uint16_t got;
		memcpy(&f, &rows[i].in, sizeof f);
		comm_reduce_store(COMM_BF16, COMM_SUM, &got, &f, 1, 1);
		assert_int_equal(got, rows[i].out);
	}
}

static void out_may_be_any_of_the_sources(void **state)
{
	(void)state;
	enum { COUNT = 3000 };
	static int32_t a[3][COUNT];
	const void *src[] = { a[0], a[1], a[2] };
	for (int place = 0; place < 3; place++) {
		for (int i = 0; i < COUNT; i++) {
			a[0][i] = i;
			a[1][i] = -3 * i;
			a[2][i] = 7;
		}
		comm_reduce_tree(COMM_I32, COMM_SUM, src, 3, a[place], COUNT);
		for (int i = 0; i < COUNT; i++)
			assert_int_equal(a[place][i], 7 - 2 * i);
	}
}

static void integers_wrap_and_integer_averages_are_truncated_towards_zero(void **state)
{
	(void)state;
	int64_t a = INT64_MAX, b = 3, out;
	const void *src[] = { &a, &b };
	comm_reduce_tree(COMM_I64, COMM_SUM, src, 2, &out, 1);
	assert_true(out == INT64_MIN + 2);
	a = -4;
	b = -3;
	comm_reduce_tree(COMM_I64, COMM_AVG, src, 2, &out, 1);
	assert_true(out == -3);
	comm_reduce_tree(COMM_I64, COMM_MAX, src, 2, &out, 1);
	assert_true(out == -3);
	comm_reduce_tree(COMM_I64, COMM_MIN, src, 2, &out, 1);
	assert_true(out == -4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_order_is_the_documented_tree),
		cmocka_unit_test(partial_sums_give_the_same_bits),
		cmocka_unit_test(every_f16_value_converts_exactly_both_ways),
		cmocka_unit_test(f16_values_are_rounded_to_nearest_even),
		cmocka_unit_test(bf16_is_rounded_to_nearest_even),
		cmocka_unit_test(out_may_be_any_of_the_sources),
		cmocka_unit_test(integers_wrap_and_integer_averages_are_truncated_towards_zero),
	};
	return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
