/* A file that was split is read as if it were one, also while another process writes and splits
 * it. */
#include "base/file.h"
#include "base/segments.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256];

static int setup(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

/* number: 0 is the file that is written. */
static void append(uint32_t number, const char *text)
{
	char path[RUN_PATH];
	segments_path(path, dir, RUN_METRICS, number);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void split(uint32_t number)
{
	char path[RUN_PATH], segment[RUN_PATH];
	segments_path(path, dir, RUN_METRICS, 0);
	segments_path(segment, dir, RUN_METRICS, number);
	assert_int_equal(rename(path, segment), 0);
}

/* Reads all there is by now, in pieces of 3 bytes. */
static void reads(struct segments_reader *r, const char *expected)
{
	struct buf got = BUF_INIT;
	char data[3];
	ssize_t n;
	while ((n = segments_read(r, data, sizeof data, NULL)) > 0)
		buf_add(&got, data, (size_t)n);
	assert_int_equal(n, 0);
	assert_string_equal(buf_str(&got), expected);
	buf_fini(&got);
}

static void names_of_segments_have_a_number(void **state)
{
	(void)state;
	static const struct {
		const char *file;
		long number;
	} rows[] = { { "metrics.1.jsonl", 1 },   { "metrics.120.jsonl", 120 },
		     { "metrics.jsonl", -1 },    { "metrics.0.jsonl", -1 },
		     { "metrics.01.jsonl", -1 }, { "metrics.1.jsonl.new", -1 },
		     { "metrics.x.jsonl", -1 },  { "metrics..jsonl", -1 },
		     { "events.1.jsonl", -1 },   { "metrics.9999999999.jsonl", -1 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_int_equal(segments_number(rows[i].file, RUN_METRICS), rows[i].number);
}

static void segments_come_in_their_order_and_the_file_last(void **state)
{
	(void)state;
	struct segments_reader r;
	struct segments s;
	append(10, "b\n");
	append(9, "a\n");
	append(11, "c, and no newline");
	append(0, "d\n");
	assert_int_equal(segments_list(dir, RUN_METRICS, &s, NULL), 0);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.numbers[0], 9);
	assert_int_equal(s.numbers[2], 11);
	segments_free(&s);
	segments_reader_init(&r, dir, RUN_METRICS);
	reads(&r, "a\nb\nc, and no newline\nd\n");
	reads(&r, "");
	append(0, "e\n");
	reads(&r, "e\n");
	segments_reader_fini(&r);
}

static void a_reader_goes_on_over_splits(void **state)
{
	(void)state;
	struct segments_reader r;
	segments_reader_init(&r, dir, RUN_METRICS);
	reads(&r, "");
	append(0, "a\n");
	reads(&r, "a\n");
	append(0, "b\n");
	split(1);
	reads(&r, "b\n"); /* the new file does not exist yet */
	append(0, "c\n");
	split(2);
	append(0, "d\n");
	split(3);
	append(0, "e\n");
	reads(&r, "c\nd\ne\n");
	append(0, "f\n");
	reads(&r, "f\n");
	segments_reader_fini(&r);
}

/* Puts another file in the place of a segment, as thinning does. */
static void replace(uint32_t number, const char *text)
{
	char path[RUN_PATH], beside[RUN_PATH + 8];
	segments_path(path, dir, RUN_METRICS, number);
	append(999, text);
	segments_path(beside, dir, RUN_METRICS, 999);
	assert_int_equal(rename(beside, path), 0);
}

static void a_file_that_was_split_and_thinned_is_read_once(void **state)
{
	(void)state;
	struct segments_reader r;
	segments_reader_init(&r, dir, RUN_METRICS);
	append(0, "{\"time\":1}\na\nb\n");
	reads(&r, "{\"time\":1}\na\nb\n");
	split(1);
	replace(1, "{\"time\":1,\"thinned\":1}\nb\n");
	append(0, "{\"time\":2}\nc\n");
	split(2);
	replace(2, "{\"time\":2,\"thinned\":1}\nc\n");
	append(0, "{\"time\":3}\nd\n");
	reads(&r, "{\"time\":2,\"thinned\":1}\nc\n{\"time\":3}\nd\n");
	segments_reader_fini(&r);
}

enum { LINES = 2000, LINES_PER_SEGMENT = 4 };

/* In the child: writes numbered lines as fast as it can. */
static void write_and_split(void)
{
	char line[32];
	uint32_t segment = 1;
	for (int i = 1; i <= LINES; i++) {
		snprintf(line, sizeof line, "%d\n", i);
		append(0, line);
		if (i % LINES_PER_SEGMENT == 0 && i < LINES)
			split(segment++);
	}
}

static int check_order(const char *data, ssize_t n, int *number, int before)
{
	for (ssize_t i = 0; i < n; i++) {
		if (data[i] != '\n') {
			*number = *number * 10 + (data[i] - '0');
			continue;
		}
		assert_int_equal(*number, before + 1);
		before = *number;
		*number = 0;
	}
	return before;
}

static void a_reader_beside_a_writer_misses_no_line(void **state)
{
	(void)state;
	struct segments_reader r;
	char data[64];
	int before = 0, number = 0;
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		write_and_split();
		_exit(0);
	}
	segments_reader_init(&r, dir, RUN_METRICS);
	while (before < LINES) {
		ssize_t n = segments_read(&r, data, sizeof data, NULL);
		assert_true(n >= 0);
		before = check_order(data, n, &number, before);
	}
	segments_reader_fini(&r);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_deleted_file_begins_anew(void **state)
{
	(void)state;
	char path[RUN_PATH];
	struct segments_reader r;
	segments_path(path, dir, RUN_METRICS, 0);
	segments_reader_init(&r, dir, RUN_METRICS);
	append(0, "a\n");
	reads(&r, "a\n");
	assert_int_equal(unlink(path), 0);
	append(0, "b\n");
	split(1);
	append(0, "c\n");
	reads(&r, "b\nc\n");
	segments_reader_fini(&r);
}

static void the_end_is_read_over_segments(void **state)
{
	(void)state;
	static const struct {
		size_t most;
		const char *end;
	} rows[] = { { 1, "\n" },       { 2, "d\n" },          { 3, "\nd\n" },
		     { 5, "\nc\nd\n" }, { 8, "a\nb\nc\nd\n" }, { 100, "a\nb\nc\nd\n" },
		     { 0, "" } };
	append(1, "a\n");
	append(2, "b\nc\n");
	append(0, "d\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf end = BUF_INIT;
		assert_int_equal(segments_read_end(dir, RUN_METRICS, rows[i].most, &end, NULL), 0);
		assert_int_equal(end.len, strlen(rows[i].end));
		assert_memory_equal(end.len ? end.data : "", rows[i].end, end.len);
		buf_fini(&end);
	}
	struct buf none = BUF_INIT;
	assert_int_equal(segments_read_end("/nonexistent", RUN_METRICS, 10, &none, NULL), 0);
	assert_int_equal(none.len, 0);
}

static void what_is_no_file_is_refused(void **state)
{
	(void)state;
	char path[RUN_PATH], data[8];
	struct segments_reader r;
	struct err e = ERR_INIT;
	segments_path(path, dir, RUN_METRICS, 1);
	assert_int_equal(symlink("/dev/zero", path), 0);
	segments_reader_init(&r, dir, RUN_METRICS);
	assert_int_equal(segments_read(&r, data, sizeof data, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	segments_reader_fini(&r);
	struct buf end = BUF_INIT;
	assert_int_equal(segments_read_end(dir, RUN_METRICS, 10, &end, &e), -1);
	buf_fini(&end);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(names_of_segments_have_a_number),
		EACH(segments_come_in_their_order_and_the_file_last),
		EACH(a_reader_goes_on_over_splits),
		EACH(a_file_that_was_split_and_thinned_is_read_once),
		EACH(a_reader_beside_a_writer_misses_no_line),
		EACH(a_deleted_file_begins_anew),
		EACH(the_end_is_read_over_segments),
		EACH(what_is_no_file_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
