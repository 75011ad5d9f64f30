/* What each schedule promises: its order, the bubble of its paper, the activations that it keeps. */
#include "tests/unit/plan/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void every_row_is_complete(void **state)
{
	(void)state;
	for (int kind = 0; kind < SCHEDULES; kind++) {
		const struct schedule_kind *k = schedule_kinds[kind];
		assert_true(k->list_passes && k->seconds && *schedule_words[kind]);
		assert_true(k->chunks_least >= 1 && k->chunks_most >= k->chunks_least &&
			    k->chunks_most <= LAYOUT_CHUNKS_MOST);
		assert_true(!k->vee || (k->chunks_least == 2 && k->chunks_most == 2));
		assert_in_range(k->complexity, 0, 3);
		for (int other = 0; other < kind; other++)
			assert_string_not_equal(schedule_words[kind], schedule_words[other]);
	}
	assert_null(schedule_words[SCHEDULES]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_complete),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
