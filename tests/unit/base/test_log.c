/* Tests the lines of the log. */
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int ends[2];

static const char *written(void)
{
	static char text[8192];
	ssize_t n = read(ends[0], text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void a_line_has_time_level_source_and_text(void **state)
{
	(void)state;
	log_setup(ends[1], LOG_INFO, "node3:12");
	log_info("step %d", 4);
	const char *line = written();
	int y, mon, d, h, m, s, ms, at = 0;
	assert_int_equal(sscanf(line, "%4d-%2d-%2d %2d:%2d:%2d.%3d %n", &y, &mon, &d, &h, &m, &s,
				&ms, &at),
			 7);
	assert_string_equal(line + at, "info  node3:12: step 4\n");
}

static void lines_below_the_level_are_left_out(void **state)
{
	(void)state;
	log_setup(ends[1], LOG_WARN, "x");
	log_info("not this");
	log_error("but this");
	assert_null(strstr(written(), "not this"));
}

static void a_line_too_long_is_cut_and_ends_in_a_newline(void **state)
{
	(void)state;
	char text[5000];
	memset(text, 'y', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	log_setup(ends[1], LOG_INFO, "x");
	log_info("%s", text);
	const char *line = written();
	assert_true(strlen(line) <= 2048);
	assert_int_equal(line[strlen(line) - 1], '\n');
	assert_null(memchr(line, '\n', strlen(line) - 1));
}

static void a_block_of_lines_is_written_whole(void **state)
{
	(void)state;
	char block[3 * 2048], head[LOG_HEAD];
	log_setup(ends[1], LOG_INFO, "node3:12");
	size_t n = log_head("out", head);
	assert_int_equal(strlen(head), n);
	assert_string_equal(head + sizeof "YYYY-MM-DD HH:MM:SS.mmm" - 1, " out   node3:12: ");
	memset(block, 'y', sizeof block);
	memcpy(block, head, n);
	block[3000] = block[sizeof block - 1] = '\n';
	log_block(block, sizeof block);
	assert_memory_equal(written(), block, sizeof block);
}

struct heard {
	int lines;
	enum log_level level;
	char text[64];
};

static void listen(enum log_level level, const char *text, void *arg)
{
	struct heard *h = arg;
	h->lines++;
	h->level = level;
	snprintf(h->text, sizeof h->text, "%s", text);
}

static void a_hook_hears_its_levels_even_those_not_written(void **state)
{
	(void)state;
	struct heard h = { 0 };
	log_setup(ends[1], LOG_ERROR, "x");
	log_hook(LOG_WARN, listen, &h);
	log_info("no");
	log_warn("gap in %s", "loss");
	log_hook(LOG_ERROR, NULL, NULL);
	log_error("end");
	assert_int_equal(h.lines, 1);
	assert_int_equal(h.level, LOG_WARN);
	assert_string_equal(h.text, "gap in loss");
	assert_null(strstr(written(), "gap"));
}

static void words_and_levels_are_one_to_one(void **state)
{
	(void)state;
	for (int level = LOG_DEBUG; level <= LOG_ERROR; level++)
		assert_int_equal(log_level_parse(log_level_word((enum log_level)level)), level);
	assert_int_equal(log_level_parse("loud"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_has_time_level_source_and_text),
		cmocka_unit_test(lines_below_the_level_are_left_out),
		cmocka_unit_test(a_line_too_long_is_cut_and_ends_in_a_newline),
		cmocka_unit_test(a_block_of_lines_is_written_whole),
		cmocka_unit_test(a_hook_hears_its_levels_even_those_not_written),
		cmocka_unit_test(words_and_levels_are_one_to_one),
	};
	if (pipe(ends))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
