/* Which agent causes the fault of a drill, and when. */
#include "agent/drill.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void only_the_rank_of_the_first_generation_is_asked(void **state)
{
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(agent_drill_open(NULL, 3, 1, &e), 0);
	assert_int_equal(agent_drill_open("nan 3 20", 2, 1, &e), 0);
	assert_int_equal(agent_drill_open("nan 3 20", 3, 2, &e), 0);
	assert_int_equal(agent_drill_open("nan 3 20", 3, 1, &e), 1);
}

static void the_fault_comes_once_at_its_step(void **state)
{
	struct err e = ERR_INIT;
	bool poison = false;
	(void)state;
	assert_int_equal(agent_drill_open("nan 3 20", 3, 1, &e), 1);
	assert_int_equal(agent_drill_step(NULL, 19, &poison, &e), 0);
	assert_false(poison);
	assert_int_equal(agent_drill_step(NULL, 20, &poison, &e), 0);
	assert_true(poison);
	poison = false;
	assert_int_equal(agent_drill_step(NULL, 21, &poison, &e), 0);
	assert_false(poison);
	assert_int_equal(agent_drill_open("device 0 5", 0, 1, &e), 1);
	assert_int_equal(agent_drill_step(NULL, 5, &poison, &e), -1);
	assert_int_equal(e.code, ERR_DEVICE);
}

static void wrong_texts_are_refused(void **state)
{
	static const char *const texts[] = {
		"",           "nan",       "nan 3",
		"nan x 5",    "nan 3 x",   "melt 3 20",
		"nan 3 20 1", "nan 3 20x", "averyverylongkindofname 1 2"
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(agent_drill_open(texts[i], 3, 1, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, "DRILL_FAULT"));
	}
	/* Nothing is left of an earlier text. */
	struct err e = ERR_INIT;
	bool poison = false;
	assert_int_equal(agent_drill_step(NULL, 5, &poison, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_rank_of_the_first_generation_is_asked),
		cmocka_unit_test(the_fault_comes_once_at_its_step),
		cmocka_unit_test(wrong_texts_are_refused),
	};
	return cmocka_run_group_tests_name("the faults that an agent causes for a drill", tests,
					   NULL, NULL);
}
