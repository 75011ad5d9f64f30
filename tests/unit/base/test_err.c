/* Tests how functions fail. */
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void set_keeps_code_and_text_and_returns_minus_one(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	assert_int_equal(err_set(&e, ERR_IO, "%s: %d bytes", "a.bin", 7), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_string_equal(e.text, "a.bin: 7 bytes");
}

static void errno_is_appended_as_it_was_on_entry(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	errno = ENOSPC;
	assert_int_equal(err_errno(&e, ERR_IO, "shard 3"), -1);
	assert_string_equal(e.text, "shard 3: No space left on device");
}

static void prefix_puts_context_in_front_and_keeps_the_code(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	err_set(&e, ERR_CORRUPT, "cut");
	assert_int_equal(err_prefix(&e, "step %d", 4), -1);
	assert_string_equal(e.text, "step 4: cut");
	assert_int_equal(e.code, ERR_CORRUPT);
}

static void no_err_loses_the_text_only(void **state)
{
	(void)state;
	assert_int_equal(err_set(NULL, ERR_IO, "x"), -1);
	assert_int_equal(err_errno(NULL, ERR_IO, "x"), -1);
	assert_int_equal(err_prefix(NULL, "x"), -1);
}

static void control_characters_become_spaces(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	err_set(&e, ERR_USAGE, "%s",
		"a\033[2J\xc2\x9b"
		"2Jb\x7f\r\n\tüß");
	assert_string_equal(e.text, "a [2J  2Jb    üß");
	err_prefix(&e, "%s", "\033c");
	assert_string_equal(e.text, " c: a [2J  2Jb    üß");
	errno = EIO;
	err_errno(&e, ERR_IO, "%s", "\a.json");
	assert_string_equal(e.text, " .json: Input/output error");
}

static void long_texts_are_cut_not_overrun(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	char text[3000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	err_set(&e, ERR_IO, "%s", text);
	assert_int_equal(strlen(e.text), sizeof e.text - 1);
	errno = EIO;
	err_errno(&e, ERR_IO, "%s", text);
	assert_int_equal(strlen(e.text), sizeof e.text - 1);
	err_prefix(&e, "%s", text);
	assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

static void every_code_has_a_word_of_its_own(void **state)
{
	(void)state;
	for (int a = ERR_NONE; a <= ERR_INTERNAL; a++) {
		assert_string_not_equal(err_word((enum err_code)a), "unknown");
		for (int b = ERR_NONE; b < a; b++)
			assert_string_not_equal(err_word((enum err_code)a),
						err_word((enum err_code)b));
	}
	assert_string_equal(err_word((enum err_code)9999), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_keeps_code_and_text_and_returns_minus_one),
		cmocka_unit_test(errno_is_appended_as_it_was_on_entry),
		cmocka_unit_test(prefix_puts_context_in_front_and_keeps_the_code),
		cmocka_unit_test(no_err_loses_the_text_only),
		cmocka_unit_test(control_characters_become_spaces),
		cmocka_unit_test(long_texts_are_cut_not_overrun),
		cmocka_unit_test(every_code_has_a_word_of_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
