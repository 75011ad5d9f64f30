/* Tests sets of ranges: the text, joining, and counting past them. */
#include "base/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void texts_are_read_and_joined(void **state)
{
	static const struct {
		const char *text, *written;
	} good[] = {
		{ "", "" },
		{ " , ", "" },
		{ "7", "7" },
		{ "320-335", "320-335" },
		{ "640-655, 320-335", "320-335,640-655" },
		{ "1-3,4-6,8", "1-6,8" },
		{ "5,1-9,2-4", "1-9" },
		{ "0 2 4", "0,2,4" },
		{ "10-12,0-100", "0-100" },
		{ "9007199254740991", "9007199254740991" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct buf out = BUF_INIT;
		struct err e = ERR_INIT;
		struct ranges r;
		if (ranges_parse(good[i].text, &r, &e))
			fail_msg("%s: %s", good[i].text, e.text);
		ranges_write(&r, &out);
		assert_string_equal(buf_str(&out), good[i].written);
		buf_fini(&out);
	}
}

static void wrong_texts_are_refused_by_the_part(void **state)
{
	static const char *const bad[] = { "x",
					   "-3",
					   "3-",
					   "5-3",
					   "1--2",
					   "1-2-3",
					   "99999999999999999999",
					   "9007199254740992",
					   "4,7x" };
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		struct ranges r = { .n = -1 };
		assert_int_equal(ranges_parse(bad[i], &r, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_int_equal(r.n, -1);
	}
	struct err e = ERR_INIT;
	struct ranges r;
	assert_int_equal(ranges_parse("4,7x,9", &r, &e), -1);
	assert_string_equal(e.text, "\"7x\" is neither a number nor a range such as 320-335");
}

static void there_is_room_for_so_many(void **state)
{
	struct ranges r = { 0 };
	(void)state;
	for (int i = 0; i < RANGES_MAX; i++)
		assert_int_equal(ranges_add(&r, 10 * i, 5, NULL), 0);
	assert_int_equal(ranges_add(&r, 10 * RANGES_MAX, 5, NULL), -1);
	assert_int_equal(ranges_add(&r, 5, 5, NULL), 0); /* it joins two */
	assert_int_equal(r.n, RANGES_MAX - 1);
	assert_int_equal(ranges_add(&r, 0, 0, NULL), -1);
	assert_int_equal(ranges_add(&r, -1, 2, NULL), -1);
	assert_int_equal(ranges_add(&r, 1, RANGES_END, NULL), -1);
}

/* Against a set of single numbers. */
static void random_sets_count_as_single_numbers_do(void **state)
{
	enum { MOST = 200 };
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
	(void)state;
	print_message("SEED=%u\n", seed);
	srand(seed);
	for (int round = 0; round < 300; round++) {
		bool in[4 * MOST] = { false };
		struct ranges r = { 0 };
		for (int i = rand() % 12; i > 0; i--) {
			int first = rand() % MOST, count = 1 + rand() % 20;
			assert_int_equal(ranges_add(&r, first, count, NULL), 0);
			for (int k = first; k < first + count; k++)
				in[k] = true;
		}
		int from = rand() % MOST, left = 0;
		for (int at = from; at < 2 * MOST; at++) {
			assert_int_equal(ranges_count(&r, from, at), at - from - left);
			if (in[at])
				continue;
			assert_int_equal(ranges_skip(&r, from, left), at);
			assert_int_equal(ranges_back(&r, at, left), ranges_skip(&r, from, 0));
			left++;
			assert_int_equal(ranges_end(&r, from, left), at + 1);
		}
		assert_int_equal(ranges_end(&r, from, 0), from);
	}
	assert_int_equal(ranges_skip(NULL, 7, 5), 12);
	assert_int_equal(ranges_back(NULL, 7, 5), 2);
	assert_int_equal(ranges_back(NULL, 7, 9), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_read_and_joined),
		cmocka_unit_test(wrong_texts_are_refused_by_the_part),
		cmocka_unit_test(there_is_room_for_so_many),
		cmocka_unit_test(random_sets_count_as_single_numbers_do),
	};
	return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
