/* Tests that the output of a program reaches the log and the handler, that a flood does not, and that
 * neither closed nor inherited pipes hold up the end. The test writes into the pipes itself. */
#include "agent/task/output.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "launcher/rundir/logs.h"
#include "tests/unit/patience.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static char dir[64], log_path[128];
static int log_fd = -1;
static struct task_output *output;
static int ends[TASK_STREAMS];
static struct buf handled;
static int announce[2];       /* a byte for each line that was handled */
static _Atomic bool is_after; /* the line "after it" was handled */

static int open_log(void **state)
{
	(void)state;
	char logs[100];
	if (!tmpdir_make(dir, sizeof dir) || pipe2(announce, O_CLOEXEC | O_NONBLOCK))
		return -1;
	snprintf(logs, sizeof logs, "%s/logs", dir);
	if (mkdir(logs, 0700))
		return -1;
	snprintf(log_path, sizeof log_path, "%s/node-0.log", logs);
	log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	log_setup(log_fd, LOG_INFO, "node:0");
	return log_fd < 0 ? -1 : 0;
}

static int close_log(void **state)
{
	(void)state;
	log_setup(STDERR_FILENO, LOG_INFO, "test");
	close(log_fd);
	close(announce[0]);
	close(announce[1]);
	buf_fini(&handled);
	file_remove_tree(dir);
	return 0;
}

static void handle(void *arg, enum task_stream stream, const char *text, size_t len)
{
	(void)arg;
	assert_int_equal(strlen(text), len);
	if (handled.len < MIB)
		buf_printf(&handled, "%s: %s\n", stream == TASK_OUT ? "out" : "err", text);
	if (!strcmp(text, "after it"))
		is_after = true;
	if (write(announce[1], "", 1) < 0) /* full */
		return;
}

static void begin(double rate, double burst)
{
	const struct task_output_options o = { .line = handle, .rate = rate, .burst = burst };
	assert_int_equal(task_output_open(&o, &output, ends, NULL), 0);
}

static void write_text(enum task_stream stream, const char *text)
{
	assert_int_equal(file_write_full(ends[stream], text, strlen(text)), 0);
}

static void close_ends(void)
{
	close(ends[TASK_OUT]);
	close(ends[TASK_ERR]);
}

static void await_line(void)
{
	char c;
	struct pollfd fd = { .fd = announce[0], .events = POLLIN };
	assert_int_equal(poll(&fd, 1, PATIENCE_S * 1000), 1);
	assert_int_equal(read(announce[0], &c, 1), 1);
}

/* --- Lines --- */

struct texts {
	struct buf all;
	int n;
	double first;
};

static bool add_text(void *arg, const struct rundir_log_line *line)
{
	struct texts *t = arg;
	t->first = t->n++ ? t->first : line->time;
	buf_printf(&t->all, "%s\n", line->text + sizeof "YYYY-MM-DD HH:MM:SS.mmm" - 1);
	return true;
}

/* The lines of the log without their times, as `muster logs` reads them. */
static void read_log(struct texts *t)
{
	struct rundir_logs *l;
	struct err e = ERR_INIT;
	*t = (struct texts){ .all = BUF_INIT };
	const struct rundir_logs_options o = { .until = 1e12 };
	if (rundir_logs_open(dir, &o, &l, &e) || rundir_logs_read(l, true, add_text, t, &e))
		fail_msg("%s", e.text);
	rundir_logs_close(l);
}

static void lines_of_both_streams_are_in_the_log(void **state)
{
	(void)state;
	struct texts t;
	double before = clock_wall_s();
	begin(0, 0);
	write_text(TASK_OUT, "step 1\n");
	await_line();
	write_text(TASK_ERR, "a warning\n");
	await_line();
	write_text(TASK_OUT, "unfinished");
	close_ends();
	task_output_finish(output);
	read_log(&t);
	assert_string_equal(buf_str(&t.all), " out   node:0: step 1\n err   node:0: a warning\n"
					     " out   node:0: unfinished\n");
	assert_true(t.first > before - 0.002 && t.first < clock_wall_s() + 0.002);
	assert_string_equal(buf_str(&handled), "out: step 1\nerr: a warning\nout: unfinished\n");
	buf_fini(&t.all);
	task_output_close(output);
}

static void an_unfinished_line_comes_while_the_program_goes_on(void **state)
{
	(void)state;
	begin(0, 0);
	write_text(TASK_OUT, "Loading ... ");
	await_line();
	task_output_close(output);
	close_ends();
	assert_string_equal(buf_str(&handled), "out: Loading ... \n");
}

static void the_tail_is_that_of_standard_error(void **state)
{
	(void)state;
	struct buf want = BUF_INIT, text = BUF_INIT;
	begin(0, 0);
	write_text(TASK_OUT, "nothing\n");
	for (int i = 0; i < 100; i++) {
		buf_printf(&text, "line %d\n", i);
		if (i >= 60)
			buf_printf(&want, "line %d\n", i);
	}
	write_text(TASK_ERR, buf_str(&text));
	close_ends();
	task_output_finish(output);
	assert_string_equal(task_output_tail(output), buf_str(&want));
	buf_fini(&want);
	buf_fini(&text);
	task_output_close(output);
}

static void the_tail_holds_few_bytes_of_long_lines(void **state)
{
	(void)state;
	static char text[5001];
	begin(0, 0);
	for (int i = 0; i < 5; i++) {
		memset(text, 'a' + i, 5000);
		write_text(TASK_OUT, text);
		write_text(TASK_OUT, "\n");
	}
	close_ends();
	task_output_finish(output);
	assert_int_equal(strlen(task_output_tail(output)), 4 * 2048); /* of standard output */
	assert_int_equal(task_output_tail(output)[0], 'b');
	task_output_close(output);
}

static void a_long_line_leaves_the_traceback_before_it(void **state)
{
	(void)state;
	struct buf text = BUF_INIT, want = BUF_INIT;
	buf_puts(&text, "Traceback\n");
	buf_puts(&want, "Traceback\n");
	for (int i = 0; i < 5000; i++) {
		buf_puts(&text, "é");
		if (i < 1023) /* the next one is not whole within 2047 bytes */
			buf_puts(&want, "é");
	}
	buf_puts(&text, "\nValueError\n");
	buf_puts(&want, "\nValueError\n");
	begin(0, 0);
	write_text(TASK_ERR, buf_str(&text));
	close_ends();
	task_output_finish(output);
	assert_string_equal(task_output_tail(output), buf_str(&want));
	task_output_close(output);
	buf_fini(&want);
	buf_fini(&text);
}

/* --- Ends --- */

static void closed_streams_do_not_matter(void **state)
{
	(void)state;
	begin(0, 0);
	close(ends[TASK_OUT]);
	write_text(TASK_ERR, "still here\n");
	await_line();
	close(ends[TASK_ERR]);
	task_output_close(output);
	assert_string_equal(buf_str(&handled), "err: still here\n");
}

static void a_process_that_keeps_the_pipes_does_not_delay_the_end(void **state)
{
	(void)state;
	begin(0, 0);
	write_text(TASK_OUT, "last words\n");
	task_output_finish(output);
	assert_string_equal(buf_str(&handled), "out: last words\n");
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(write(ends[TASK_OUT], "x", 1), -1);
	signal(SIGPIPE, SIG_DFL);
	close_ends();
	task_output_close(output);
}

/* --- Floods --- */

static const char flood_line[] = "seventeen letters\n"; /* no divisor of a page */

static void write_flood(int mib)
{
	static char block[MIB];
	size_t at = 0, len = sizeof flood_line - 1;
	for (int i = 0; i < mib; i++) {
		for (size_t k = 0; k < MIB; k++)
			block[k] = flood_line[at++ % len];
		assert_int_equal(file_write_full(ends[TASK_OUT], block, MIB), 0);
	}
	if (at % len)
		write_text(TASK_OUT, flood_line + at % len);
}

/* How often the line is in the text; the text loses it. */
static int take_lines(struct buf *text, const char *line)
{
	struct buf rest = BUF_INIT;
	int n = 0;
	for (const char *at = buf_str(text), *end; *at; at = end) {
		end = strchr(at, '\n') + 1;
		if ((size_t)(end - at) == strlen(line) && !strncmp(at, line, strlen(line)))
			n++;
		else
			buf_add(&rest, at, (size_t)(end - at));
	}
	buf_fini(text);
	*text = rest;
	return n;
}

/* At one byte per second none of it is taken after the burst, however slow this machine is. */
static void a_flood_is_dropped_and_its_end_is_kept(void **state)
{
	(void)state;
	struct texts t;
	struct stat st;
	begin(1, 100000);
	write_text(TASK_OUT, "begin\n");
	await_line();
	write_flood(64);
	write_text(TASK_ERR, "Traceback\n"); /* has a budget of its own */
	write_text(TASK_OUT, "the last line\n");
	close_ends();
	task_output_finish(output);
	assert_int_equal(stat(log_path, &st), 0);
	assert_true(st.st_size < 4 * MIB);
	read_log(&t);
	assert_true(take_lines(&t.all, " out   node:0: seventeen letters\n") > 0);
	assert_int_equal(take_lines(&t.all, " out   node:0: begin\n"), 1);
	assert_int_equal(take_lines(&t.all, " err   node:0: Traceback\n"), 1);
	assert_int_equal(take_lines(&t.all, " out   node:0: the last line\n"), 1);
	/* The rest: at most one line that the gap has cut, and one that says what is missing. */
	char *note = strstr(buf_str(&t.all), " out   node:0: ... ");
	assert_non_null(note);
	assert_non_null(strstr(note, " MB of output were dropped: more than 1 B/s\n"));
	assert_true(t.all.len - strlen(note) < sizeof " out   node:0: seventeen letters\n");
	assert_null(strchr(strchr(note, '\n') + 1, '\n'));
	buf_fini(&t.all);
	task_output_close(output);
}

/* Lines come again when the flood is over and the budget has grown. */
static void after_a_flood_lines_are_taken_again(void **state)
{
	(void)state;
	struct texts t;
	begin(1e6, 1e5);
	write_flood(8);
	is_after = false;
	write_text(TASK_OUT, "after it\n");
	for (double until = clock_s() + PATIENCE_S; !is_after; await_line())
		assert_true(clock_s() < until);
	close_ends();
	task_output_close(output);
	read_log(&t);
	assert_non_null(strstr(buf_str(&t.all), " of output were dropped: "));
	buf_fini(&t.all);
}

static void what_the_budget_allows_is_complete(void **state)
{
	(void)state;
	struct texts t;
	begin(1, 1e9);
	write_flood(4);
	close_ends();
	task_output_finish(output);
	read_log(&t);
	assert_int_equal(t.n, 4 * MIB / (int)(sizeof flood_line - 1) + 1);
	buf_fini(&t.all);
	task_output_close(output);
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_log, close_log)
	const struct CMUnitTest tests[] = {
		ROW(lines_of_both_streams_are_in_the_log),
		ROW(an_unfinished_line_comes_while_the_program_goes_on),
		ROW(the_tail_is_that_of_standard_error),
		ROW(the_tail_holds_few_bytes_of_long_lines),
		ROW(a_long_line_leaves_the_traceback_before_it),
		ROW(closed_streams_do_not_matter),
		ROW(a_process_that_keeps_the_pipes_does_not_delay_the_end),
		ROW(a_flood_is_dropped_and_its_end_is_kept),
		ROW(after_a_flood_lines_are_taken_again),
		ROW(what_the_budget_allows_is_complete),
	};
	return cmocka_run_group_tests_name("task_output", tests, NULL, NULL);
}
