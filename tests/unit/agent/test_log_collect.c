/* Tests that a log moves from the folder of its node to the run folder without losing a line. */
#include "agent/log_parts.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/segments.h"
#include "tests/unit/tmpdir.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEEP = 40000, ALL = 1 << 30, LINES = 3000, THREADS = 4 };

static char dir[64], logs[80], local[80];
static atomic_bool stop;

static int make_dir(void **state)
{
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(logs, sizeof logs, "%s/" RUN_LOGS, dir);
	snprintf(local, sizeof local, "%s/local", dir);
	return mkdir(logs, 0700) || mkdir(local, 0700);
}

static int remove_dir(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

static struct agent_log_place place(void)
{
	return (struct agent_log_place){ .run = dir, .local = local, .node = "n", .rank = 3 };
}

static void full(void *arg)
{
	agent_log_split(arg);
}

static void open_log(struct agent_log *l, int64_t keep, int64_t most)
{
	const struct agent_log_place at = place();
	assert_int_equal(agent_log_open(l, &at, keep, NULL), 0);
	log_setup(l->fd, LOG_INFO, "n:3");
	log_limit(agent_log_size(l), most, full, l);
}

static void close_log(struct agent_log *l)
{
	log_limit(0, 0, NULL, NULL);
	log_setup(STDERR_FILENO, LOG_INFO, "test");
	agent_log_close(l);
}

static int count_names(const char *folder)
{
	int n = 0;
	struct dirent *at;
	DIR *d = file_list_open(folder);
	assert_non_null(d);
	while (file_list_next(d, &at) > 0)
		n++;
	closedir(d);
	return n;
}

static void read_all(const char *folder, struct buf *out)
{
	buf_clear(out);
	assert_int_equal(segments_read_end(folder, "n-3.log", 1 << 30, out, NULL), 0);
}

/* Whether the text has the lines from `first` to before `end`, in their order and once. */
static void assert_lines(const char *text, int first, int end)
{
	for (const char *at = text; (at = strstr(at, "line ")); at++)
		assert_int_equal(atoi(at + 5), first++);
	assert_int_equal(first, end);
}

static void write_lines(int first, int end)
{
	for (int i = first; i < end; i++)
		log_info("line %d", i);
}

static void all_files_move_and_the_log_goes_on_in_the_run_folder(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	(void)state;
	open_log(&l, ALL, KEEP);
	int fd = l.fd;
	write_lines(0, LINES);
	assert_true(count_names(local) > 2);
	assert_int_equal(count_names(logs), 0);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	assert_int_equal(count_names(local), 0);
	write_lines(LINES, 2 * LINES);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0); /* it is there */
	assert_int_equal(l.fd, fd);
	close_log(&l);
	/* The next generation goes on there, too. */
	open_log(&l, ALL, KEEP);
	write_lines(2 * LINES, 2 * LINES + 1);
	close_log(&l);
	assert_int_equal(count_names(local), 0);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 0, 2 * LINES + 1);
	buf_fini(&text);
}

static void the_bound_holds_after_the_move(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	(void)state;
	open_log(&l, KEEP, KEEP / 4);
	write_lines(0, LINES);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	read_all(logs, &text);
	assert_true(text.len > KEEP / 2 && text.len <= KEEP);
	write_lines(LINES, 2 * LINES);
	close_log(&l);
	read_all(logs, &text);
	assert_true(text.len > KEEP / 2 && text.len <= KEEP);
	const char *first = strstr(buf_str(&text), "line ");
	assert_non_null(first);
	assert_lines(buf_str(&text), atoi(first + 5), 2 * LINES);
	buf_fini(&text);
}

struct writer {
	int number;
	atomic_int *written;
};

static void *run_writer(void *arg)
{
	struct writer *w = arg;
	for (int i = 0; i < LINES; i++) {
		log_info("thread %d line %d.", w->number, i);
		atomic_fetch_add(w->written, 1);
	}
	return NULL;
}

static void threads_lose_no_line_while_the_log_moves(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	pthread_t threads[THREADS];
	struct writer writers[THREADS];
	atomic_int written = 0;
	int next[THREADS] = { 0 };
	(void)state;
	open_log(&l, ALL, KEEP);
	for (int i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){ i, &written };
		assert_int_equal(pthread_create(&threads[i], NULL, run_writer, &writers[i]), 0);
	}
	while (atomic_load(&written) < LINES) /* the move begins while all write */
		usleep(100);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_log(&l);
	assert_int_equal(count_names(local), 0);
	read_all(logs, &text);
	for (const char *at = buf_str(&text); (at = strstr(at, "thread ")); at++) {
		int thread = atoi(at + 7);
		assert_int_equal(atoi(strstr(at, "line ") + 5), next[thread]++);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(next[i], LINES);
	buf_fini(&text);
}

static void the_log_of_a_dead_rank_moves_too(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	const struct agent_log_place at = place();
	(void)state;
	assert_int_equal(agent_log_collect_of(&at, &stop, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(count_names(logs), 0);
	open_log(&l, ALL, KEEP);
	write_lines(0, LINES);
	close_log(&l);
	assert_int_equal(agent_log_collect_of(&at, &stop, NULL), 0);
	assert_int_equal(count_names(local), 0);
	open_log(&l, ALL, KEEP);
	write_lines(LINES, LINES + 1);
	close_log(&l);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 0, LINES + 1);
	buf_fini(&text);
}

/* A log that the run folder has from earlier comes before what moves there. */
static void what_is_in_the_run_folder_stays(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	const struct agent_log_place at = place(), shared = { .run = dir, .node = "n", .rank = 3 };
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(1, 2);
	close_log(&l);
	assert_int_equal(agent_log_open(&l, &shared, 0, NULL), 0);
	log_setup(l.fd, LOG_INFO, "n:3");
	write_lines(0, 1);
	close_log(&l);
	assert_int_equal(agent_log_collect_of(&at, &stop, NULL), 0);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 0, 2);
	buf_fini(&text);
}

/* blocker: a folder where the collector makes a file. */
static void check_failure(const char *blocker)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	char path[160];
	snprintf(path, sizeof path, "%s/%s", logs, blocker);
	assert_int_equal(mkdir(path, 0700), 0);
	open_log(&l, ALL, ALL);
	write_lines(0, 10);
	assert_int_equal(agent_log_collect(&l, &stop, &e), -1);
	assert_true(strstr(e.text, blocker) != NULL);
	write_lines(10, 20);
	assert_int_equal(count_names(logs), 1);
	read_all(local, &text);
	assert_lines(buf_str(&text), 0, 20);
	/* Later it works. */
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	write_lines(20, 30);
	close_log(&l);
	assert_int_equal(count_names(local), 0);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 0, 30);
	buf_fini(&text);
}

static void a_move_that_fails_loses_no_line(void **state)
{
	(void)state;
	check_failure("n-3.log.part");
	remove_dir(NULL);
	make_dir(NULL);
	check_failure("n-3.log.next");
}

/* As it is left by an agent that died between two steps of a move: it had begun the new file. */
static void what_a_dead_agent_has_written_elsewhere_comes_back(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	char from[160], to[160];
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(10, 20);
	close_log(&l);
	snprintf(from, sizeof from, "%s/n-3.log", local);
	snprintf(to, sizeof to, "%s/n-3.log.next", logs);
	assert_int_equal(rename(from, to), 0);
	open_log(&l, ALL, ALL); /* finds no line of its own */
	close_log(&l);
	assert_int_equal(count_names(logs), 0);
	open_log(&l, ALL, ALL);
	write_lines(20, 30);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	close_log(&l);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 10, 30);
	buf_fini(&text);
}

static void a_move_that_is_stopped_leaves_the_log_on_the_node(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(0, 10);
	atomic_store(&stop, true);
	assert_int_equal(agent_log_collect(&l, &stop, &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
	atomic_store(&stop, false);
	write_lines(10, 20);
	close_log(&l);
	assert_int_equal(count_names(logs), 0);
	read_all(local, &text);
	assert_lines(buf_str(&text), 0, 20);
	buf_fini(&text);
}

/* A number names one text, also after a move that ended in the middle. */
static void parts_are_numbered_after_those_that_have_moved(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	char path[160];
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(0, 10);
	agent_log_split(&l);
	write_lines(10, 20);
	snprintf(path, sizeof path, "%s/n-3.log.next", logs); /* where the switch fails */
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), -1);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(agent_log_last_part(logs, "n-3.log"), 1);
	agent_log_split(&l);
	assert_int_equal(agent_log_last_part(local, "n-3.log"), 2);
	write_lines(20, 30);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	close_log(&l);
	assert_int_equal(agent_log_last_part(logs, "n-3.log"), 3);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 0, 30);
	buf_fini(&text);
}

static void the_log_of_an_agent_that_writes_is_left_to_it(void **state)
{
	struct agent_log l;
	struct err e = ERR_INIT;
	const struct agent_log_place at = place();
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(0, 10);
	assert_int_equal(agent_log_collect_of(&at, &stop, &e), -1);
	assert_int_equal(e.code, ERR_PEER);
	agent_log_split(&l); /* the next file is locked, too */
	assert_int_equal(agent_log_collect_of(&at, &stop, &e), -1);
	close_log(&l);
	assert_int_equal(agent_log_collect_of(&at, &stop, NULL), 0);
	assert_int_equal(agent_log_collect_of(&at, &stop, NULL), 0); /* it is there */
}

static void a_log_that_was_removed_goes_on_in_the_run_folder(void **state)
{
	struct agent_log l;
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	(void)state;
	open_log(&l, ALL, ALL);
	write_lines(0, 10);
	file_remove_tree(local);
	assert_int_equal(agent_log_collect(&l, &stop, &e), -1);
	assert_non_null(strstr(e.text, "was removed"));
	write_lines(10, 20);
	assert_int_equal(agent_log_collect(&l, &stop, NULL), 0);
	close_log(&l);
	read_all(logs, &text);
	assert_lines(buf_str(&text), 10, 20);
	buf_fini(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(all_files_move_and_the_log_goes_on_in_the_run_folder),
		TEST(the_bound_holds_after_the_move),
		TEST(threads_lose_no_line_while_the_log_moves),
		TEST(the_log_of_a_dead_rank_moves_too),
		TEST(what_is_in_the_run_folder_stays),
		TEST(a_move_that_fails_loses_no_line),
		TEST(what_a_dead_agent_has_written_elsewhere_comes_back),
		TEST(a_move_that_is_stopped_leaves_the_log_on_the_node),
		TEST(parts_are_numbered_after_those_that_have_moved),
		TEST(the_log_of_an_agent_that_writes_is_left_to_it),
		TEST(a_log_that_was_removed_goes_on_in_the_run_folder),
	};
	return cmocka_run_group_tests_name("log collect", tests, NULL, NULL);
}
