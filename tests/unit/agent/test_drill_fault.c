/* Which agent causes the fault of a drill, and when. */
#include "agent/drill.h"
#include "base/agent_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int open_with(struct agent_drill *d, const char *text, int rank, uint32_t generation)
{
	struct err e = ERR_INIT;
	setenv(AGENT_ENV_DRILL_MARK, "1-2-3", 1);
	if (text)
		setenv(AGENT_ENV_DRILL_FAULT, text, 1);
	else
		unsetenv(AGENT_ENV_DRILL_FAULT);
	int rc = agent_drill_open(d, rank, generation, &e);
	if (rc) {
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, "DRILL_FAULT"));
	}
	return rc;
}

static bool is_asked(const char *text, int rank, uint32_t generation)
{
	struct agent_drill d;
	assert_int_equal(open_with(&d, text, rank, generation), 0);
	return d.cause != NULL;
}

static void only_the_rank_of_the_first_generation_is_asked(void **state)
{
	(void)state;
	assert_false(is_asked(NULL, 3, 1));
	assert_false(is_asked("", 3, 1));
	assert_false(is_asked("nan 3 20 0", 2, 1));
	assert_false(is_asked("nan 3 20 0", 3, 2));
	assert_true(is_asked("nan 3 20 0", 3, 1));
}

static void without_a_drill_the_text_means_nothing(void **state)
{
	struct agent_drill d;
	struct err e = ERR_INIT;
	(void)state;
	setenv(AGENT_ENV_DRILL_FAULT, "melt", 1);
	unsetenv(AGENT_ENV_DRILL_MARK);
	assert_int_equal(agent_drill_open(&d, 0, 1, &e), 0);
	assert_null(d.cause);
}

static void the_fault_comes_once_at_its_step(void **state)
{
	struct agent_drill d;
	struct err e = ERR_INIT;
	bool poison = false;
	(void)state;
	assert_int_equal(open_with(&d, "nan 3 20 0", 3, 1), 0);
	assert_int_equal(agent_drill_step(&d, 19, &poison, &e), 0);
	assert_false(poison);
	assert_int_equal(agent_drill_step(&d, 20, &poison, &e), 0);
	assert_true(poison);
	poison = false;
	assert_int_equal(agent_drill_step(&d, 20, &poison, &e), 0);
	assert_false(poison);
	assert_int_equal(open_with(&d, "device 0 5 0", 0, 1), 0);
	assert_int_equal(agent_drill_step(&d, 5, &poison, &e), -1);
	assert_int_equal(e.code, ERR_DEVICE);
}

static void spoiled_numbers_come_at_their_step_of_the_first_generation(void **state)
{
	static const struct {
		const char *text;
		enum train_plant plant;
	} kinds[] = {
		{ "nan-input 3 20 0", TRAIN_PLANT_INPUT },
		{ "nan-once 3 20 0", TRAIN_PLANT_ONCE },
		{ "nan-weight 3 20 0", TRAIN_PLANT_WEIGHT },
		{ "flip 3 20 0", TRAIN_PLANT_FLIP },
		{ "nan-gradient 3 20 0", TRAIN_PLANT_GRADIENT },
		{ "nan 3 20 0", TRAIN_PLANT_NOTHING },
	};
	struct agent_drill d;
	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		assert_int_equal(open_with(&d, kinds[i].text, 3, 1), 0);
		assert_int_equal(agent_drill_plant(&d, 19), TRAIN_PLANT_NOTHING);
		assert_int_equal(agent_drill_plant(&d, 20), kinds[i].plant);
		assert_int_equal(agent_drill_plant(&d, 21), TRAIN_PLANT_NOTHING);
		assert_int_equal(open_with(&d, kinds[i].text, 3, 2), 0);
		assert_int_equal(agent_drill_plant(&d, 20), TRAIN_PLANT_NOTHING);
	}
}

static void memory_ends_at_its_limit(void **state)
{
	struct agent_drill d;
	struct err e = ERR_INIT;
	bool poison = false;
	(void)state;
	assert_int_equal(open_with(&d, "memory 0 5 1", 0, 1), 0);
	assert_int_equal(agent_drill_step(&d, 5, &poison, &e), -1);
	assert_int_equal(e.code, ERR_NOMEM);
}

static void wrong_texts_are_refused(void **state)
{
	static const char *const texts[] = { "nan",
					     "nan 3",
					     "nan 3 5",
					     "nan x 5 0",
					     "nan 3 x 0",
					     "nan 3 5 x",
					     "nan -1 5 0",
					     "nan 99999999999 5 0",
					     "nan 3 99999999999999999999 0",
					     "melt 3 20 0",
					     "nan 3 20 0 1",
					     "nan 3 20 0x" };
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct agent_drill d;
		assert_int_equal(open_with(&d, texts[i], 3, 1), -1);
		assert_null(d.cause);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_rank_of_the_first_generation_is_asked),
		cmocka_unit_test(without_a_drill_the_text_means_nothing),
		cmocka_unit_test(the_fault_comes_once_at_its_step),
		cmocka_unit_test(spoiled_numbers_come_at_their_step_of_the_first_generation),
		cmocka_unit_test(memory_ends_at_its_limit),
		cmocka_unit_test(wrong_texts_are_refused),
	};
	return cmocka_run_group_tests_name("the faults that an agent causes for a drill", tests,
					   NULL, NULL);
}
