/* Tests arrays that grow. */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void elements_stay_and_the_room_doubles(void **state)
{
	int *list = NULL;
	int64_t room = 0;
	(void)state;
	for (int n = 0; n < 40; n++) {
		list = list_grow(list, n, &room, 10, sizeof *list);
		assert_non_null(list);
		list[n] = n;
		assert_int_equal(room, n < 10 ? 10 : n < 20 ? 20 : 40);
	}
	for (int n = 0; n < 40; n++)
		assert_int_equal(list[n], n);
	free(list);
}

/* volatile hides from the compiler that the list is too large and that it is used afterwards. */
static void without_memory_the_list_stays(void **state)
{
	volatile size_t too_large = SIZE_MAX / 4;
	int *volatile list = calloc(4, sizeof *list);
	int64_t room = 4;
	(void)state;
	assert_non_null(list);
	list[3] = 7;
	assert_null(list_grow(list, 4, &room, 4, too_large));
	assert_int_equal(room, 4);
	assert_int_equal(list[3], 7);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_stay_and_the_room_doubles),
		cmocka_unit_test(without_memory_the_list_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
