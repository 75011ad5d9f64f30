/* Tests a growing byte string. */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void texts_and_bytes_are_appended(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	assert_string_equal(buf_str(&b), "");
	buf_puts(&b, "rank ");
	buf_printf(&b, "%d of %s", 3, "8");
	buf_add(&b, "\0x", 2);
	assert_int_equal(b.len, 13);
	assert_memory_equal(b.data, "rank 3 of 8\0x", 14);
	buf_fini(&b);
}

/* The sizes are around every power of 2, where the memory grows. */
static void it_grows_by_any_amount(void **state)
{
	(void)state;
	for (size_t n = 0; n < 2100; n++) {
		struct buf b = BUF_INIT;
		char *text = malloc(n + 1);
		memset(text, 'a', n);
		text[n] = '\0';
		buf_printf(&b, "%s", text);
		buf_puts(&b, text);
		buf_add(&b, text, n);
		assert_int_equal(b.len, 3 * n);
		assert_int_equal(strlen(buf_str(&b)), 3 * n);
		buf_fini(&b);
		free(text);
	}
}

static void drop_takes_from_the_front(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	buf_drop(&b, 3);
	buf_puts(&b, "abcdef");
	buf_drop(&b, 2);
	assert_string_equal(buf_str(&b), "cdef");
	buf_drop(&b, 100);
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(b.len, 0);
	buf_fini(&b);
}

static void room_is_written_by_the_caller(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	buf_puts(&b, "x");
	char *to = buf_room(&b, 1000);
	assert_non_null(to);
	memset(to, 'y', 1000);
	b.len += 1000;
	assert_int_equal(strlen(buf_str(&b)), 1001);
	buf_puts(&b, "z");
	assert_int_equal(b.len, 1002);
	assert_int_equal(b.data[1001], 'z');
	buf_fini(&b);
}

static void too_much_makes_it_failed_until_cleared(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	buf_puts(&b, "x");
	assert_null(buf_room(&b, SIZE_MAX / 2));
	assert_true(buf_failed(&b));
	buf_puts(&b, "y");
	assert_int_equal(b.len, 1);
	assert_string_equal(buf_str(&b), "");
	assert_null(buf_take(&b));
	buf_clear(&b);
	buf_puts(&b, "again");
	assert_string_equal(buf_str(&b), "again");
	buf_fini(&b);
}

static void take_hands_the_memory_over(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	char *empty = buf_take(&b);
	assert_string_equal(empty, "");
	free(empty);
	buf_puts(&b, "mine");
	char *text = buf_take(&b);
	assert_string_equal(text, "mine");
	assert_int_equal(b.len, 0);
	free(text);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_and_bytes_are_appended),
		cmocka_unit_test(it_grows_by_any_amount),
		cmocka_unit_test(drop_takes_from_the_front),
		cmocka_unit_test(room_is_written_by_the_caller),
		cmocka_unit_test(too_much_makes_it_failed_until_cleared),
		cmocka_unit_test(take_hands_the_memory_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
