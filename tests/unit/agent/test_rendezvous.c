/* Which rank an agent is, from the list that its launch gives to all of its processes. */
#include "agent/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect(const char *list, int64_t number, int rank, int size)
{
	struct err e = ERR_INIT;
	int r = -1, s = -1;
	assert_int_equal(agent_rendezvous_parse(list, number, &r, &s, &e), 0);
	assert_int_equal(r, rank);
	assert_int_equal(s, size);
}

static void refuse(const char *list, int64_t number)
{
	struct err e = ERR_INIT;
	int r, s;
	assert_int_equal(agent_rendezvous_parse(list, number, &r, &s, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "has no rank for process"));
}

static void the_process_is_the_rank_of_its_number(void **state)
{
	(void)state;
	expect("3,5-7/16", 0, 3, 16);
	expect("3,5-7/16", 1, 5, 16);
	expect("3,5-7/16", 3, 7, 16);
	expect("0-15/16", 15, 15, 16);
}

/* A backend that starts one process at a time does not number them. */
static void a_list_of_one_rank_needs_no_number(void **state)
{
	(void)state;
	expect("7/16", 0, 7, 16);
	expect("7/16", 12, 7, 16);
	expect("0/1", -1, 0, 1);
}

static void other_texts_are_refused(void **state)
{
	static const char *const texts[] = {
		"",     "/",     "/4",    "3",     "3/",     "3/0",
		"4/4",  "-1/4",  "2-1/4", "1-4/4", "1,/4",   ",1/4",
		"1/4x", "1 /4",  "a/4",   "1//4",  "1/4/4",  "1/99999999999999999999",
		"1-/4", "0x1/4", "1/-4",  "+1/4",  "1,2-/4", "99999999999999999999/4",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		refuse(texts[i], 0);
	refuse("3,5-7/16", 4);
	refuse("3,5-7/16", -1);
	refuse("3,5-7/16", INT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_process_is_the_rank_of_its_number),
		cmocka_unit_test(a_list_of_one_rank_needs_no_number),
		cmocka_unit_test(other_texts_are_refused),
	};
	return cmocka_run_group_tests_name("agent/rendezvous", tests, NULL, NULL);
}
