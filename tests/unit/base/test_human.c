/* Tests numbers in the form in which people read them. */
#include "base/human.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void bytes_are_in_powers_of_1024(void **state)
{
	(void)state;
	static const struct {
		double n;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1, "1 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 425984, "416 KiB" },
		{ 1024.0 * 1024 - 1, "1.0 MiB" },
		{ 9.96 * 1024, "10 KiB" },
		{ 80 * 1073741824.0, "80 GiB" },
		{ 1e300, NULL },
	};
	char out[HUMAN];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		human_bytes(cases[i].n, out);
		assert_true(strlen(out) < HUMAN);
		if (cases[i].text)
			assert_string_equal(out, cases[i].text);
	}
}

static void counts_are_in_powers_of_1000(void **state)
{
	(void)state;
	char out[HUMAN];
	assert_string_equal(human_count(0, "", out), "0");
	assert_string_equal(human_count(999, "", out), "999");
	assert_string_equal(human_count(999.7, "", out), "1.0 k");
	assert_string_equal(human_count(12345, "", out), "12.3 k");
	assert_string_equal(human_count(4.56e8, "", out), "456 M");
	assert_string_equal(human_count(12, "B/s", out), "12 B/s");
	assert_string_equal(human_count(5e9, "B/s", out), "5.0 GB/s");
	assert_string_equal(human_count(-12345, "", out), "-12.3 k");
	assert_string_equal(human_count(NAN, "", out), "nan");
}

static void seconds_are_in_powers_of_1000(void **state)
{
	static const struct {
		double s;
		const char *text;
	} cases[] = {
		{ 0, "0 s" },
		{ 1.5e-7, "150 ns" },
		{ 1e-12, "0.00 ns" },
		{ 1.234e-5, "12.3 µs" },
		{ 0.0009996, "1.00 ms" },
		{ 0.0352, "35.2 ms" },
		{ 0.9996, "1.00 s" },
		{ 9.996, "10.0 s" },
		{ 3600, "3600 s" },
		{ -0.5, "-500 ms" },
	};
	char out[HUMAN];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_string_equal(human_seconds(cases[i].s, out), cases[i].text);
}

static void one_has_no_plural(void **state)
{
	(void)state;
	assert_string_equal(human_s(1), "");
	assert_string_equal(human_s(0), "s");
	assert_string_equal(human_s(2), "s");
}

static void a_plain_text_steers_no_terminal(void **state)
{
	char text[] = "a\033[2Jb\n\xc2\x9b"
		      "c\x7f \xc3\xa9\xc2";
	(void)state;
	human_plain(text);
	assert_string_equal(text, "a [2Jb   c  \xc3\xa9\xc2");
	/* Single bytes, after an overlong lead and after one whose character is cut; and inside the
	 * characters U+00DB, U+201B and U+1F61B, where they are no controls. */
	char bytes[] = "\x9b"
		       "2J\xc0\x9b\xe2\x9b"
		       "x\xc3\x9b\xe2\x80\x9b\xf0\x9f\x98\x9b";
	human_plain(bytes);
	assert_string_equal(bytes, " 2J\xc0 \xe2 x\xc3\x9b\xe2\x80\x9b\xf0\x9f\x98\x9b");
}

static void the_length_of_a_character_is_that_of_utf8(void **state)
{
	(void)state;
	assert_int_equal(human_character("a\xc3\xa9"), 1);
	assert_int_equal(human_character("\xc3\xa9"), 2);
	assert_int_equal(human_character("\xf0\x9f\x98\x9b"), 4);
	assert_int_equal(human_character("\xf0\x9f\x98"), 0); /* cut */
	assert_int_equal(human_character("\xc0\x80"), 0);     /* overlong */
	assert_int_equal(human_character(""), 0);
}

static void a_width_is_in_columns(void **state)
{
	static const struct {
		const char *text;
		int wide;
	} cases[] = {
		{ "", 0 },
		{ "run-1", 5 },
		{ "\xc3\xa9t\xc3\xa9", 3 },        /* été */
		{ "e\xcc\x81t", 2 },               /* a combining accent */
		{ "\xe6\xa8\xa1\xe5\x9e\x8b", 4 }, /* two Chinese characters */
		{ "\xf0\x9f\x9a\x80", 2 },         /* a rocket */
		{ "a\xff\xe6\xa8z", 5 },           /* three bytes that are no characters */
	};
	char line[64];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *text = cases[i].text;
		assert_int_equal(human_width(text), cases[i].wide);
		snprintf(line, sizeof line, "%-*s|", human_padded(text, 8), text);
		assert_int_equal(human_width(line), 9);
	}
}

static void a_word_for_a_shell_is_quoted_if_it_must_be(void **state)
{
	static const struct {
		const char *word, *text;
	} cases[] = {
		{ "/runs/demo-1_a.b/job.ini", "/runs/demo-1_a.b/job.ini" },
		{ "", "''" },
		{ "my runs", "'my runs'" },
		{ "~/$HOME;`x`", "'~/$HOME;`x`'" },
		{ "it's", "'it'\\''s'" },
		{ "a\n\xc2\x9b"
		  "b\x9b",
		  "'a'$'\\012'''$'\\302\\233''b'$'\\233'''" },
		{ "\xc3\xa9", "'\xc3\xa9'" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf out = BUF_INIT;
		human_shell_word(cases[i].word, &out);
		assert_string_equal(buf_str(&out), cases[i].text);
		buf_fini(&out);
	}
}

static void printable_characters_have_their_length(void **state)
{
	static const struct {
		const char *text;
		size_t length;
	} cases[] = {
		{ "a", 1 },
		{ " ", 1 },
		{ "\xc3\xa9x", 2 },
		{ "\xe4\xb8\xad", 3 },
		{ "\xf0\x9f\x98\x80", 4 },
		{ "", 0 },
		{ "\t", 0 },
		{ "\x7f", 0 },
		/* a control character, a cut one, an overlong one, a surrogate */
		{ "\xc2\x85", 0 },
		{ "\xe4\xb8", 0 },
		{ "\xc0\xaf", 0 },
		{ "\xed\xa0\x80", 0 },
		{ "\xff", 0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (human_printable(cases[i].text) != cases[i].length)
			fail_msg("case %zu: %zu", i, human_printable(cases[i].text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_in_powers_of_1024),
		cmocka_unit_test(counts_are_in_powers_of_1000),
		cmocka_unit_test(seconds_are_in_powers_of_1000),
		cmocka_unit_test(one_has_no_plural),
		cmocka_unit_test(a_plain_text_steers_no_terminal),
		cmocka_unit_test(the_length_of_a_character_is_that_of_utf8),
		cmocka_unit_test(a_width_is_in_columns),
		cmocka_unit_test(a_word_for_a_shell_is_quoted_if_it_must_be),
		cmocka_unit_test(printable_characters_have_their_length),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
