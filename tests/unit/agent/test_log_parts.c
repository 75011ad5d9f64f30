/* Tests that the log of an agent stays below its bound, and keeps its newest lines in their order. */
#include "agent/log_parts.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/segments.h"
#include "tests/unit/tmpdir.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEEP = 40000, LINES = 5000, THREADS = 4 };

static char dir[64];

static int make_dir(void **state)
{
	char logs[80];
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(logs, sizeof logs, "%s/" RUN_LOGS, dir);
	return mkdir(logs, 0700);
}

static int remove_dir(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

static void full(void *arg)
{
	agent_log_split(arg);
}

static void open_log(struct agent_log *l, int64_t keep)
{
	const struct agent_log_place at = { .run = dir, .node = "n", .rank = 3 };
	assert_int_equal(agent_log_open(l, &at, keep, NULL), 0);
	log_setup(l->fd, LOG_INFO, "n:3");
	log_limit(agent_log_size(l), agent_log_most(l), keep ? full : NULL, l);
}

static void close_log(struct agent_log *l)
{
	log_limit(0, 0, NULL, NULL);
	log_setup(STDERR_FILENO, LOG_INFO, "test");
	agent_log_close(l);
}

/* Returns the number of parts with the file. */
static int slurp(struct buf *out)
{
	struct segments s;
	struct err e = ERR_INIT;
	char folder[80];
	snprintf(folder, sizeof folder, "%s/" RUN_LOGS, dir);
	assert_int_equal(segments_list(folder, "n-3.log", &s, &e), 0);
	int n = s.n;
	segments_free(&s);
	buf_clear(out);
	assert_int_equal(segments_read_end(folder, "n-3.log", 1 << 30, out, &e), 0);
	return n + 1;
}

static void the_newest_lines_stay_in_their_order(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	(void)state;
	open_log(&l, KEEP);
	int fd = l.fd;
	for (int i = 0; i < LINES; i++) {
		if (i == LINES / 2) { /* as after a restart */
			close_log(&l);
			open_log(&l, KEEP);
		}
		log_info("line %d", i);
	}
	assert_int_equal(l.fd, fd);
	close_log(&l);
	assert_int_equal(slurp(&text), 4);
	assert_true(text.len <= KEEP);
	assert_true(text.len > KEEP / 2);
	int next = -1;
	for (const char *at = buf_str(&text); (at = strstr(at, "line ")); at++) {
		assert_true(next < 0 || atoi(at + 5) == next);
		next = atoi(at + 5) + 1;
	}
	assert_int_equal(next, LINES);
	buf_fini(&text);
}

static void *write_lines(void *arg)
{
	for (int i = 0; i < LINES; i++)
		log_info("thread %d line %d.", *(int *)arg, i);
	return NULL;
}

static void threads_lose_no_line_at_a_split(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	pthread_t threads[THREADS];
	int numbers[THREADS], seen[THREADS] = { 0 };
	(void)state;
	open_log(&l, 4 << 20);
	log_limit(agent_log_size(&l), KEEP, full, &l); /* splits often, and removes nothing */
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_log(&l);
	assert_true(slurp(&text) > 1); /* how many depends on who writes during a split */
	for (const char *at = buf_str(&text); (at = strstr(at, "thread ")); at++)
		seen[atoi(at + 7)]++;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(seen[i], LINES);
	buf_fini(&text);
}

static void without_a_bound_there_is_one_file(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	(void)state;
	open_log(&l, 0);
	for (int i = 0; i < LINES; i++)
		log_info("line %d", i);
	close_log(&l);
	assert_int_equal(slurp(&text), 1);
	assert_non_null(strstr(buf_str(&text), "line 0\n"));
	buf_fini(&text);
}

static void a_log_that_an_older_agent_split_is_opened_anew(void **state)
{
	struct agent_log older, newer;
	struct buf text = BUF_INIT;
	(void)state;
	open_log(&older, KEEP);
	log_info("first");
	open_log(&newer, KEEP);
	log_info("second");
	agent_log_split(&newer);
	log_info("third");
	agent_log_split(&older);
	log_setup(older.fd, LOG_INFO, "n:3");
	log_info("fourth");
	assert_int_equal(slurp(&text), 2);
	const char *at = buf_str(&text);
	static const char *const words[] = { "first", "second", "third", "fourth" };
	for (int i = 0; i < 4; i++)
		assert_non_null(at = strstr(at, words[i]));
	agent_log_close(&older);
	close_log(&newer);
	buf_fini(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(the_newest_lines_stay_in_their_order),
		TEST(threads_lose_no_line_at_a_split),
		TEST(without_a_bound_there_is_one_file),
		TEST(a_log_that_an_older_agent_split_is_opened_anew),
	};
	return cmocka_run_group_tests_name("log parts", tests, NULL, NULL);
}
