/* Tests command lines as a line of text: what each text means, what is refused, and that written words
 * come back. */
#include "base/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 6 };

static void assert_words(const char *text, const char *const *want)
{
	char **got;
	struct err e = ERR_INIT;
	size_t i;
	if (words_parse(text, &got, &e))
		fail_msg("%s: %s", text, e.text);
	for (i = 0; got[i] && want[i]; i++)
		assert_string_equal(got[i], want[i]);
	if (got[i] || want[i])
		fail_msg("%s: word %zu is %s, not %s", text, i, got[i] ? got[i] : "missing",
			 want[i] ? want[i] : "missing");
	free(got);
}

static void texts_are_split_into_words(void **state)
{
	static const struct {
		const char *text, *words[MOST];
	} cases[] = {
		{ "", { NULL } },
		{ " \t ", { NULL } },
		{ "python", { "python" } },
		{ "  python   -u\ttrain.py\n", { "python", "-u", "train.py" } },
		{ "a 'b c' d", { "a", "b c", "d" } },
		{ "a'b c'd", { "ab cd" } },
		{ "'' \"\" x''", { "", "", "x" } },
		{ "'a\\n\"b'", { "a\\n\"b" } },
		{ "\"a\\nb\\tc\\x1B\\xff\"", { "a\nb\tc\x1b\xff" } },
		{ "\"\\\"\\\\\\'\\$\\ \\#\"", { "\"\\'$ #" } },
		{ "a\\ b\\'c\\\\", { "a b'c\\" } },
		{ "$HOME `ls` *.py a|b >f", { "$HOME", "`ls`", "*.py", "a|b", ">f" } },
		{ "a&&b ;c #d k=v ~", { "a&&b", ";c", "#d", "k=v", "~" } },
		{ "\xc3\xa9 \"\xe4\xb8\xad \xff\"", { "\xc3\xa9", "\xe4\xb8\xad \xff" } },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_words(cases[i].text, cases[i].words);
}

static void wrong_texts_are_refused_by_column(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{ "a 'b c", "column 3: the quote ' is not closed; add a '" },
		{ "a b\"", "column 4: the quote \" is not closed; add a \"" },
		{ "\"a\\\"", "column 1: the quote \" is not closed" },
		/* a column counts characters, not bytes */
		{ "\xc3\xa9\xe4\xb8\xad 'x", "column 4: the quote '" },
		{ "a \\", "column 3: a backslash ends the text; write \\\\" },
		{ "\"a\\", "column 3: a backslash ends the text" },
		{ "\\d+", "column 1: \\d is no escape outside quotes; write \\\\d" },
		{ "a\\n", "column 2: \\n is no escape outside quotes; write \\\\n for a backslash, "
			  "or put the word in '...', or in \"...\" for the escape" },
		{ "\"\\d\"", "column 2: \\d is no escape in \"...\"; write \\\\d" },
		{ "\"\\x\"", "column 2: \\x needs two hexadecimal digits" },
		{ "\"\\x1\"", "column 2: \\x needs two" },
		{ "\"\\x1", "column 2: \\x needs two" },
		{ "\"\\x00\"", "column 2: \\x needs two hexadecimal digits that are not 00" },
		{ "\"\\xg0\"", "column 2: \\x needs two" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		char *untouched = NULL, **words = &untouched;
		assert_int_equal(words_parse(cases[i].text, &words, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_ptr_equal(words, &untouched);
		if (strncmp(e.text, cases[i].said, strlen(cases[i].said)))
			fail_msg("%s: %s", cases[i].text, e.text);
	}
}

static void words_are_written_as_plainly_as_they_can_be(void **state)
{
	static const struct {
		const char *words[MOST], *text;
	} cases[] = {
		{ { NULL }, "" },
		{ { "python", "-u", "train.py", "--lr", "1e-4" }, "python -u train.py --lr 1e-4" },
		{ { "p", "$HOME", "*", "a;b", "c#" }, "p $HOME * a;b c#" },
		{ { "p", "a b", "" }, "p 'a b' ''" },
		{ { "p", "it's", "a\"b", "c\\d" }, "p \"it's\" 'a\"b' 'c\\d'" },
		{ { "p", "a\nb\tc", "\x1b[m" }, "p \"a\\nb\\tc\" \"\\x1b[m\"" },
		/* comments of a job file */
		{ { "p", "#1", ";x", "a #b ;c" }, "p '#1' ';x' \"a \\#b \\;c\"" },
		/* UTF-8, a control character in UTF-8, a byte that is part of no character */
		{ { "p", "\xc3\xa9", "\xc2\x85",
		    "\xff"
		    "f" },
		  "p \xc3\xa9 \"\\xc2\\x85\" \"\\xfff\"" },
		/* no value between two equal quotes */
		{ { "a b" }, "'a b'\"\"" },
		{ { "a b", "c" }, "'a b' c" },
		{ { "a b", "it's" }, "'a b' \"it's\"" },
		{ { "\n" }, "\"\\n\"''" },
		{ { "" }, "''\"\"" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf out = BUF_INIT;
		assert_int_equal(words_write((char *const *)(uintptr_t)cases[i].words, &out), 0);
		assert_string_equal(buf_str(&out), cases[i].text);
		assert_words(buf_str(&out), cases[i].words);
		buf_fini(&out);
	}
}

/* The rule of the quotes is about the text of the words, not about what was in the buffer. */
static void words_are_appended(void **state)
{
	char word[] = "a b", *words[] = { word, NULL };
	struct buf out = BUF_INIT;
	(void)state;
	buf_puts(&out, "program = ");
	assert_int_equal(words_write(words, &out), 0);
	assert_string_equal(buf_str(&out), "program = 'a b'\"\"");
	buf_fini(&out);
}

/* All words of up to 3 bytes out of those that have a meaning, in pairs. */
static void every_short_word_comes_back(void **state)
{
	static const char bytes[] = " #;'\"\\nx0a\n\t\x01\xc3\xa9\xff";
	enum {
		BYTES = sizeof bytes - 1,
		WORDS = 1 + BYTES + BYTES * BYTES + BYTES * BYTES * BYTES
	};
	(void)state;
	for (int w = 0; w < WORDS; w++) {
		char word[4] = "", other[] = "' #", *argv[] = { word, other, word, NULL };
		int length = w < 1 ? 0 : w < 1 + BYTES ? 1 : w < 1 + BYTES + BYTES * BYTES ? 2 : 3;
		for (int i = 0, n = w; i < length; i++, n /= BYTES)
			word[i] = bytes[n % BYTES];
		for (int from = 0; from < 3; from++) {
			struct buf out = BUF_INIT;
			assert_int_equal(words_write(argv + from, &out), 0);
			assert_words(buf_str(&out), (const char *const *)(argv + from));
			buf_fini(&out);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_split_into_words),
		cmocka_unit_test(wrong_texts_are_refused_by_column),
		cmocka_unit_test(words_are_written_as_plainly_as_they_can_be),
		cmocka_unit_test(words_are_appended),
		cmocka_unit_test(every_short_word_comes_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
