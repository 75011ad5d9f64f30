/* Tests how the bytes of a program become lines of a log. Times are given, so no test waits. */
#include "agent/task/lines.h"
#include "base/buf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct buf got;
static struct task_lines *lines;

static void pass(void *arg, const char *text, size_t len)
{
	(void)arg;
	assert_int_equal(strlen(text), len);
	assert_true(len <= TASK_LINE_MARKED);
	buf_printf(&got, "[%s]", text);
}

static int open_lines(void **state)
{
	(void)state;
	lines = task_lines_open(pass, NULL);
	return lines ? 0 : -1;
}

static int close_lines(void **state)
{
	(void)state;
	task_lines_close(lines);
	buf_fini(&got);
	return 0;
}

static void feed(const char *text, double now)
{
	task_lines_feed(lines, text, strlen(text), now);
}

/* What was passed on since the last call. */
static void expect(const char *text)
{
	assert_string_equal(buf_str(&got), text);
	buf_clear(&got);
	buf_puts(&got, "");
}

static void lines_end_at_newlines(void **state)
{
	(void)state;
	feed("one\ntw", 0);
	expect("[one]");
	feed("o\n\nthree", 0);
	expect("[two][]");
	feed("\r\n", 0);
	expect("[three]");
	feed("four", 0);
	task_lines_end(lines);
	expect("[four]");
	task_lines_end(lines);
	expect("");
}

static void an_unfinished_line_is_passed_on_after_a_fifth_of_a_second(void **state)
{
	(void)state;
	assert_true(isinf(task_lines_due(lines)));
	feed("Loading ... ", 10);
	assert_float_equal(task_lines_due(lines), 10.2, 1e-9);
	task_lines_flush(lines, 10.1);
	expect("");
	task_lines_flush(lines, 10.21);
	expect("[Loading ... ]");
	assert_true(isinf(task_lines_due(lines)));
	feed("done\n", 12);
	expect("[done]");
	feed("Saving", 13);
	task_lines_flush(lines, 14);
	feed("\n", 15);
	expect("[Saving]"); /* and no empty line for the newline */
}

static void states_of_a_progress_bar_replace_each_other(void **state)
{
	(void)state;
	char text[32];
	for (int i = 0; i < 100; i++) { /* 10 per second */
		double now = 10 + i / 10.0;
		snprintf(text, sizeof text, "\r%d %%", i);
		feed(text, now);
		task_lines_flush(lines, now + 0.05);
	}
	int n = 0;
	for (const char *c = buf_str(&got); *c; c++)
		n += *c == '[';
	assert_in_range(n, 15, 21);
	buf_clear(&got);
	feed("\r100 %\n", 20);
	assert_non_null(strstr(buf_str(&got), "[100 %]"));
	assert_null(strstr(buf_str(&got), "[]"));
}

static void a_slow_bar_gives_two_states_per_second(void **state)
{
	(void)state;
	int n = 0;
	for (int i = 0; i < 30; i++) { /* 4 per second, each of which rests for longer than 0.2 s */
		feed("\rstate", 10 + i * 0.25);
		task_lines_flush(lines, 10.24 + i * 0.25);
	}
	for (const char *c = buf_str(&got); *c; c++)
		n += *c == '[';
	assert_in_range(n, 14, 16);
}

static void the_last_state_is_passed_on_when_a_bar_rests(void **state)
{
	(void)state;
	feed("a\r", 10);
	feed("b\r", 10.01);
	feed("c\r", 10.02);
	expect("[a]");
	assert_float_equal(task_lines_due(lines), 10.51, 1e-9); /* the first was shown at 10.01 */
	task_lines_flush(lines, 10.6);
	expect("[c]");
	feed("d\r\n", 10.61);
	expect("[d]");
}

static void a_long_line_is_cut(void **state)
{
	(void)state;
	char *text = malloc(3 << 20);
	memset(text, 'x', 3 << 20);
	task_lines_feed(lines, text, 1 << 20, 0);
	task_lines_feed(lines, text, (2 << 20) + TASK_LINE, 0);
	feed("\nshort\n", 0);
	free(text);
	const char *all = buf_str(&got);
	assert_int_equal(strspn(all + 1, "x"), TASK_LINE);
	assert_string_equal(all + 1 + TASK_LINE, " … (3.0 MiB more)][short]");
}

static void nothing_in_a_line_controls_a_terminal(void **state)
{
	(void)state;
	feed("\033[1;31mred\033[0m \033]0;title\a\033(Bplain\a\b\t\177.\n", 0);
	expect("[red plain  \t .]");
	feed("\033]8;;http://x\033\\link\033[\n\033\n\033]0;open\n", 0);
	expect("[link][][0;open]");
	task_lines_feed(lines, "a\0b\n", 4, 0);
	expect("[a b]");
	feed("größe \xff\xc3 \xc2\x9b 日本\n", 0);
	expect("[größe ??   日本]");
}

static void a_gap_skips_the_rest_of_its_line(void **state)
{
	(void)state;
	feed("begin", 0);
	task_lines_gap(lines);
	expect("[begin]");
	feed("middle of a line\nnext\n", 0);
	expect("[next]");
	task_lines_gap(lines);
	feed("x", 0);
	task_lines_gap(lines);
	feed("y\r99 %\n", 0);
	expect("[99 %]");
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_lines, close_lines)
	const struct CMUnitTest tests[] = {
		ROW(lines_end_at_newlines),
		ROW(an_unfinished_line_is_passed_on_after_a_fifth_of_a_second),
		ROW(states_of_a_progress_bar_replace_each_other),
		ROW(a_slow_bar_gives_two_states_per_second),
		ROW(the_last_state_is_passed_on_when_a_bar_rests),
		ROW(a_long_line_is_cut),
		ROW(nothing_in_a_line_controls_a_terminal),
		ROW(a_gap_skips_the_rest_of_its_line),
	};
	return cmocka_run_group_tests_name("task_lines", tests, NULL, NULL);
}
