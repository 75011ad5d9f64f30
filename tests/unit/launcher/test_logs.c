/* The logs of all ranks are read as one, in the order of their times, with few descriptors and
 * little memory, while they grow. */
#include "base/file.h"
#include "launcher/rundir/log_file.h"
#include "launcher/rundir/logs.h"
#include "launcher/rundir/windows.h"
#include "plan/spec/job/node_path.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256];
static struct buf seen;

static int setup(void **state)
{
	(void)state;
	char logs[300];
	setenv("TZ", "UTC", 1);
	tzset();
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(logs, sizeof logs, "%s/" RUN_LOGS, dir);
	return mkdir(logs, 0700);
}

static int teardown(void **state)
{
	(void)state;
	file_remove_tree(dir);
	buf_fini(&seen);
	return 0;
}

static void append(const char *name, const char *text)
{
	char path[400];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static bool see(void *arg, const struct rundir_log_line *l)
{
	(void)arg;
	buf_printf(&seen, "%s|%s\n", l->file, l->text);
	return true;
}

static struct rundir_logs *open_logs(const struct rundir_logs_options *o)
{
	const struct rundir_logs_options all = { .from = -INFINITY, .until = INFINITY };
	struct rundir_logs *l = NULL;
	assert_int_equal(rundir_logs_open(dir, o ? o : &all, &l, NULL), 0);
	return l;
}

static void reads(struct rundir_logs *l, bool parts, const char *expected)
{
	buf_clear(&seen);
	assert_int_equal(rundir_logs_read(l, parts, see, NULL, NULL), 0);
	assert_string_equal(buf_str(&seen), expected);
}

#define AT(clock, text) "2026-01-01 " clock " info  n:0: " text "\n"

static void lines_without_a_time_follow_those_before_them(void **state)
{
	(void)state;
	append("events.jsonl",
	       "{\"event\":\"generation-start\",\"time\":1767225602.5,\"generation\":1}\n");
	append("logs/n-0.log",
	       AT("00:00:01.000", "a") "  more of a\n"
				       "2026-13-99 99:99:99.999 no time\n" AT("00:00:04.000", "d"));
	append("logs/n-1.log", AT("00:00:02.000", "b") AT("00:00:01.500", "late"));
	append("logs/launch-1.log", "srun says\n");
	append("logs/launch-x.log", "no log\n");
	append("logs/n-1.log.old", AT("00:00:02.000", "no log"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, true,
	      "n-0|2026-01-01 00:00:01.000 info  n:0: a\n"
	      "n-0|  more of a\n"
	      "n-0|2026-13-99 99:99:99.999 no time\n"
	      "n-1|2026-01-01 00:00:02.000 info  n:0: b\n"
	      "n-1|2026-01-01 00:00:01.500 info  n:0: late\n"
	      "launch-1|srun says\n"
	      "n-0|2026-01-01 00:00:04.000 info  n:0: d\n");
	rundir_logs_close(l);
}

static void a_growing_log_gives_each_line_once(void **state)
{
	(void)state;
	append("logs/n-0.log", AT("00:00:01.000", "a") "2026-01-01 00:0");
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-0|2026-01-01 00:00:01.000 info  n:0: a\n");
	reads(l, false, "");
	append("logs/n-0.log", "0:02.000 info  n:0: b\n");
	append("logs/m-7.log", AT("00:00:01.100", "c"));
	reads(l, false,
	      "m-7|2026-01-01 00:00:01.100 info  n:0: c\n"
	      "n-0|2026-01-01 00:00:02.000 info  n:0: b\n");
	append("logs/n-0.log", "end");
	reads(l, true, "n-0|end\n");
	rundir_logs_close(l);
}

static void a_line_too_long_comes_in_pieces_and_keeps_its_time(void **state)
{
	(void)state;
	char *text = malloc(200001);
	memset(text, 'x', 200000);
	text[200000] = '\0';
	append("logs/n-0.log", "2026-01-01 00:00:01.000 ");
	append("logs/n-0.log", text);
	append("logs/n-0.log", "\n" AT("00:00:03.000", "b"));
	append("logs/n-1.log", AT("00:00:02.000", "c"));
	struct rundir_logs *l = open_logs(NULL);
	buf_clear(&seen);
	assert_int_equal(rundir_logs_read(l, true, see, NULL, NULL), 0);
	const char *c = strstr(buf_str(&seen), "n:0: c"), *b = strstr(buf_str(&seen), "n:0: b");
	assert_true(c && b && c < b);
	assert_true(c - buf_str(&seen) > 200000);
	rundir_logs_close(l);
	free(text);
}

/* Of a log without dates, the file's own date counts, and the day before for what is later. */
static void logs_without_dates_are_dated_by_their_file(void **state)
{
	(void)state;
	char path[400];
	const struct timespec times[2] = { { .tv_sec = 1767225600 + 3600 },
					   { .tv_sec = 1767225600 + 3600 } };
	append("logs/n-0.log", "23:59:00.000 info  n:0: old\n00:30:00.000 info  n:0: new\n");
	snprintf(path, sizeof path, "%s/logs/n-0.log", dir);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	append("logs/n-1.log", "2026-01-01 00:00:00.000 info  n:1: midnight\n");
	struct rundir_logs *l = open_logs(NULL);
	reads(l, true,
	      "n-0|23:59:00.000 info  n:0: old\n"
	      "n-1|2026-01-01 00:00:00.000 info  n:1: midnight\n"
	      "n-0|00:30:00.000 info  n:0: new\n");
	rundir_logs_close(l);
}

static void ranks_nodes_and_times_choose_lines(void **state)
{
	(void)state;
	struct ranges ranks = { .n = 1, .list = { { 1, 3 } } };
	const struct rundir_logs_options
		of_ranks = { .ranks = &ranks, .from = -INFINITY, .until = INFINITY },
		of_node = { .node = "m", .from = 1767225602, .until = 1767225604 },
		of_none = { .node = "x", .from = -INFINITY, .until = INFINITY };
	append("logs/n-0.log", AT("00:00:01.000", "a"));
	append("logs/m-1.log",
	       AT("00:00:01.999", "b") AT("00:00:02.000", "c") AT("00:00:04.000", "d"));
	append("logs/launch-1.log", "srun\n");
	struct rundir_logs *l = open_logs(&of_ranks);
	reads(l, true,
	      "m-1|2026-01-01 00:00:01.999 info  n:0: b\n"
	      "m-1|2026-01-01 00:00:02.000 info  n:0: c\n"
	      "m-1|2026-01-01 00:00:04.000 info  n:0: d\n");
	rundir_logs_close(l);
	l = open_logs(&of_node);
	reads(l, true, "m-1|2026-01-01 00:00:02.000 info  n:0: c\n");
	rundir_logs_close(l);
	struct err e = ERR_INIT;
	l = open_logs(&of_none);
	assert_int_equal(rundir_logs_read(l, true, see, NULL, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, "logs of ranks 0 to 1"));
	rundir_logs_close(l);
}

static void a_log_that_was_replaced_is_read_from_its_begin(void **state)
{
	(void)state;
	char path[400];
	append("logs/n-0.log", AT("00:00:01.000", "a long first line"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-0|2026-01-01 00:00:01.000 info  n:0: a long first line\n");
	snprintf(path, sizeof path, "%s/logs/n-0.log", dir);
	assert_int_equal(unlink(path), 0);
	reads(l, false, "");
	append("logs/n-0.log", AT("00:00:02.000", "b"));
	reads(l, false, "n-0|2026-01-01 00:00:02.000 info  n:0: b\n");
	rundir_logs_close(l);
}

static void generations_have_their_first_start(void **state)
{
	(void)state;
	struct rundir_windows w;
	assert_int_equal(rundir_windows_read(dir, &w, NULL), 0);
	assert_int_equal(w.n, 0);
	append("events.1.jsonl", "{\"event\":\"generation-start\",\"time\":10,\"generation\":1}\n"
				 "{\"event\":\"generation-start\",\"time\":12,\"generation\":1}\n");
	append("events.jsonl", "{\"event\":\"generation-start\",\"time\":\"x\",\"generation\":2}\n"
			       "{\"event\":\"generation-start\",\"time\":20,\"generation\":3}\n");
	assert_int_equal(rundir_windows_read(dir, &w, NULL), 0);
	assert_int_equal(w.n, 2);
	assert_true(rundir_windows_find(&w, 1)->from == 10);
	assert_true(rundir_windows_find(&w, 1)->until == 20);
	assert_true(isinf(rundir_windows_find(&w, 3)->until));
	assert_null(rundir_windows_find(&w, 2));
	rundir_windows_free(&w);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static void move(const char *from, const char *to)
{
	char a[400], b[400];
	snprintf(a, sizeof a, "%s/%s", dir, from);
	snprintf(b, sizeof b, "%s/%s", dir, to);
	assert_int_equal(rename(a, b), 0);
}

static void the_parts_of_a_log_are_read_in_their_order(void **state)
{
	(void)state;
	append("logs/n-0.log", AT("10:00:00.000", "one"));
	move("logs/n-0.log", "logs/n-0.9.log");
	append("logs/n-0.log", AT("10:00:01.000", "two"));
	move("logs/n-0.log", "logs/n-0.10.log");
	append("logs/n-0.log", AT("10:00:02.000", "three"));
	append("logs/n-1.log", AT("10:00:01.500", "other"));
	append("logs/n-0.x.log", AT("10:00:01.500", "no part"));
	append("logs/n-0.0.log", AT("10:00:01.500", "no part"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false,
	      "n-0|" AT("10:00:00.000", "one") "n-0|" AT("10:00:01.000", "two") "n-1|" AT(
		      "10:00:01.500", "other") "n-0|" AT("10:00:02.000", "three"));
	rundir_logs_close(l);
}

static void a_reader_that_follows_loses_no_line_at_a_split(void **state)
{
	(void)state;
	append("logs/n-0.log", AT("10:00:00.000", "one"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-0|" AT("10:00:00.000", "one"));
	/* More lines before the split, two splits at once, and the begin of a line in the file. */
	append("logs/n-0.log", AT("10:00:01.000", "two"));
	move("logs/n-0.log", "logs/n-0.1.log");
	append("logs/n-0.log", AT("10:00:02.000", "three"));
	move("logs/n-0.log", "logs/n-0.2.log");
	append("logs/n-0.log", AT("10:00:03.000", "four") "2026-01-01 10:0");
	reads(l, false,
	      "n-0|" AT("10:00:01.000", "two") "n-0|" AT("10:00:02.000", "three") "n-0|" AT(
		      "10:00:03.000", "four"));
	reads(l, false, "");
	append("logs/n-0.log", "0:04.000 info  n:0: five\n");
	reads(l, false, "n-0|" AT("10:00:04.000", "five"));
	/* The new file is not there yet. */
	append("logs/n-0.log", AT("10:00:05.000", "six"));
	move("logs/n-0.log", "logs/n-0.3.log");
	reads(l, false, "n-0|" AT("10:00:05.000", "six"));
	reads(l, false, "");
	append("logs/n-0.log", AT("10:00:06.000", "seven"));
	reads(l, false, "n-0|" AT("10:00:06.000", "seven"));
	/* What was read is removed, as the oldest parts are. */
	move("logs/n-0.log", "logs/n-0.4.log");
	append("logs/n-0.log", AT("10:00:07.000", "eight"));
	char path[400];
	snprintf(path, sizeof path, "%s/logs/n-0.4.log", dir);
	assert_int_equal(unlink(path), 0);
	reads(l, false, "n-0|" AT("10:00:07.000", "eight"));
	rundir_logs_close(l);
}

static void append_to(const char *folder, const char *name, const char *text)
{
	char path[RUN_PATH];
	snprintf(path, sizeof path, "%s/%s", folder + strlen(dir) + 1, name);
	append(path, text);
}

/* A job whose logs stay in dir/nodes of this host. */
static void keep_logs_local(char local[RUN_PATH])
{
	char text[400], run[PATH_MAX];
	static struct job job; /* too large for a small stack */
	snprintf(text, sizeof text, "[job]\nprogram = true\n[log]\nlocal = %s/nodes\n", dir);
	append("job.ini", text);
	assert_int_equal(job_parse(text, "test", &job, NULL), 0);
	assert_non_null(realpath(dir, run));
	append(RUN_LOGS_ID, "0123456789abcdef\n");
	assert_int_equal(job_logs_folder(&job, run, "n", NULL, local, NULL), 0);
	assert_int_equal(file_make_dirs(local, NULL), 0);
}

/* What others can write there is not this run's. */
static void logs_in_a_folder_that_is_not_private_are_not_read(void **state)
{
	char local[RUN_PATH];
	(void)state;
	keep_logs_local(local);
	append("logs/n-0.log", AT("10:00:00.000", "one"));
	append_to(local, "n-1.log", AT("10:00:01.000", "two"));
	assert_int_equal(chmod(local, 0722), 0);
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-0|" AT("10:00:00.000", "one"));
	assert_int_equal(chmod(local, 0700), 0);
	reads(l, false, "n-1|" AT("10:00:01.000", "two"));
	rundir_logs_close(l);
	/* A run without an id has no logs on nodes, whatever is there. */
	char id[300];
	snprintf(id, sizeof id, "%s/" RUN_LOGS_ID, dir);
	assert_int_equal(unlink(id), 0);
	l = open_logs(NULL);
	reads(l, false, "n-0|" AT("10:00:00.000", "one"));
	rundir_logs_close(l);
}

static void logs_that_stay_on_this_node_are_read_there(void **state)
{
	char local[RUN_PATH];
	(void)state;
	keep_logs_local(local);
	append("logs/n-0.log", AT("10:00:00.000", "one"));
	append_to(local, "n-1.log", AT("10:00:01.000", "two"));
	append_to(local, "n-2.1.log", AT("10:00:02.000", "three"));
	append_to(local, "n-2.log", AT("10:00:03.000", "four"));
	/* What remains of a log that is in the run folder does not count. */
	append_to(local, "n-0.log", AT("10:00:00.500", "none"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false,
	      "n-0|" AT("10:00:00.000", "one") "n-1|" AT("10:00:01.000", "two") "n-2|" AT(
		      "10:00:02.000", "three") "n-2|" AT("10:00:03.000", "four"));
	rundir_logs_close(l);
}

/* As agent/log_collect.c moves it: each file becomes a part, and a new file begins. */
static void move_local(const char *local, const char *from, const char *to)
{
	char a[RUN_PATH + 20], b[RUN_PATH + 20];
	snprintf(a, sizeof a, "%s/%s", local, from);
	snprintf(b, sizeof b, "%s/logs/%s", dir, to);
	assert_int_equal(rename(a, b), 0);
}

static void a_reader_that_follows_loses_no_line_when_a_log_is_collected(void **state)
{
	char local[RUN_PATH];
	(void)state;
	keep_logs_local(local);
	append_to(local, "n-1.4.log", AT("10:00:00.000", "one"));
	append_to(local, "n-1.log", AT("10:00:01.000", "two"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-1|" AT("10:00:00.000", "one") "n-1|" AT("10:00:01.000", "two"));
	append_to(local, "n-1.log", AT("10:00:02.000", "three"));
	move_local(local, "n-1.4.log", "n-1.4.log");
	move_local(local, "n-1.log", "n-1.5.log");
	append("logs/n-1.log", AT("10:00:03.000", "four"));
	reads(l, false, "n-1|" AT("10:00:02.000", "three") "n-1|" AT("10:00:03.000", "four"));
	append("logs/n-1.log", AT("10:00:04.000", "five"));
	reads(l, false, "n-1|" AT("10:00:04.000", "five"));
	rundir_logs_close(l);
}

/* Between two looks the file is split on the node, collected, and split in the run folder. */
static void a_reader_that_is_late_finds_where_it_was(void **state)
{
	char local[RUN_PATH], part[RUN_PATH + 20], file[RUN_PATH + 20];
	(void)state;
	keep_logs_local(local);
	append_to(local, "n-1.4.log", AT("10:00:00.000", "one"));
	append_to(local, "n-1.log", AT("10:00:01.000", "two"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-1|" AT("10:00:00.000", "one") "n-1|" AT("10:00:01.000", "two"));
	append_to(local, "n-1.log", AT("10:00:02.000", "three"));
	snprintf(file, sizeof file, "%s/n-1.log", local);
	snprintf(part, sizeof part, "%s/n-1.5.log", local);
	assert_int_equal(rename(file, part), 0);
	append_to(local, "n-1.log", AT("10:00:03.000", "four"));
	move_local(local, "n-1.4.log", "n-1.4.log");
	move_local(local, "n-1.5.log", "n-1.5.log");
	move_local(local, "n-1.log", "n-1.6.log");
	append("logs/n-1.7.log", AT("10:00:04.000", "five"));
	append("logs/n-1.log", AT("10:00:05.000", "six"));
	reads(l, false,
	      "n-1|" AT("10:00:02.000", "three") "n-1|" AT("10:00:03.000", "four") "n-1|" AT(
		      "10:00:04.000", "five") "n-1|" AT("10:00:05.000", "six"));
	rundir_logs_close(l);
}

/* A pipe that is not read holds up the reader in an early part, and the log moves meanwhile. what: how much of it,
 * of its three parts and the file. */
static char moving[RUN_PATH];
static int what;

static bool see_and_move_some(void *arg, const struct rundir_log_line *line)
{
	static const char *const names[] = { "n-1.1.log", "n-1.2.log", "n-1.3.log" };
	bool first = buf_str(&seen)[0] == '\0';
	see(arg, line);
	for (int i = 0; first && i < what && i < 3; i++)
		move_local(moving, names[i], names[i]);
	if (first && what > 3) {
		move_local(moving, "n-1.log", "n-1.4.log");
		append("logs/n-1.log", AT("10:00:09.000", "last"));
	}
	return true;
}

static void a_reader_in_an_early_part_reads_the_later_ones_wherever_they_are(void **state)
{
	for (what = 0; what <= 4; what++) {
		struct buf expected = BUF_INIT;
		keep_logs_local(moving);
		append_to(moving, "n-1.1.log", AT("10:00:01.000", "one") AT("10:00:02.000", "two"));
		append_to(moving, "n-1.2.log", AT("10:00:03.000", "three"));
		append_to(moving, "n-1.3.log", AT("10:00:04.000", "four"));
		append_to(moving, "n-1.log", AT("10:00:05.000", "five"));
		buf_puts(&expected,
			 "n-1|" AT("10:00:01.000", "one") "n-1|" AT(
				 "10:00:02.000", "two") "n-1|" AT("10:00:03.000", "three"));
		buf_puts(&expected,
			 "n-1|" AT("10:00:04.000", "four") "n-1|" AT("10:00:05.000", "five"));
		if (what > 3)
			buf_puts(&expected, "n-1|" AT("10:00:09.000", "last"));
		struct rundir_logs *l = open_logs(NULL);
		buf_clear(&seen);
		assert_int_equal(rundir_logs_read(l, false, see_and_move_some, NULL, NULL), 0);
		assert_string_equal(buf_str(&seen), buf_str(&expected));
		reads(l, false, "");
		rundir_logs_close(l);
		buf_fini(&expected);
		teardown(state);
		setup(state);
	}
}

/* The file becomes a part between the look for parts and the move. */
static void the_part_that_the_file_has_become_is_not_left_out(void **state)
{
	char local[RUN_PATH], file[RUN_PATH + 20], part[RUN_PATH + 20];
	(void)state;
	keep_logs_local(local);
	append_to(local, "n-1.log", AT("10:00:01.000", "one"));
	append("logs/n-0.log", AT("10:00:00.000", "zero"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-0|" AT("10:00:00.000", "zero") "n-1|" AT("10:00:01.000", "one"));
	append_to(local, "n-1.log", AT("10:00:02.000", "two"));
	snprintf(file, sizeof file, "%s/n-1.log", local);
	snprintf(part, sizeof part, "%s/n-1.1.log", local);
	assert_int_equal(rename(file, part), 0);
	append_to(local, "n-1.log", AT("10:00:03.000", "three"));
	append("logs/n-0.log", AT("10:00:00.500", "half"));
	struct log_file f = { .local = true };
	struct stat st;
	assert_int_equal(stat(part, &st), 0);
	f.name = "n-1.log";
	f.inode = st.st_ino;
	rundir_log_file_note_part(&f, local, 1);
	assert_int_equal(f.highest, 1);
	assert_int_equal(f.own, 1);
	reads(l, false,
	      "n-0|" AT("10:00:00.500", "half") "n-1|" AT("10:00:02.000", "two") "n-1|" AT(
		      "10:00:03.000", "three"));
	rundir_logs_close(l);
}

/* As an agent leaves it that died in the middle of a move. */
static void parts_without_the_file_are_read(void **state)
{
	(void)state;
	append("logs/n-1.1.log", AT("10:00:01.000", "one"));
	append("logs/n-1.2.log", AT("10:00:02.000", "two"));
	struct rundir_logs *l = open_logs(NULL);
	reads(l, false, "n-1|" AT("10:00:01.000", "one") "n-1|" AT("10:00:02.000", "two"));
	append("logs/n-1.log", AT("10:00:03.000", "three"));
	reads(l, false, "n-1|" AT("10:00:03.000", "three"));
	rundir_logs_close(l);
}

/* The log moves after its first line was read. */
static bool see_and_move(void *arg, const struct rundir_log_line *line)
{
	bool first = buf_str(&seen)[0] == '\0';
	see(arg, line);
	if (first) {
		move_local(moving, "n-1.1.log", "n-1.1.log");
		move_local(moving, "n-1.log", "n-1.2.log");
		append("logs/n-1.log", AT("23:00:00.000", "last"));
	}
	return true;
}

static void a_log_that_moves_while_it_is_read_is_read_to_its_end(void **state)
{
	enum { MANY = 1 << 13 }; /* more than a buffer */
	struct buf expected = BUF_INIT, text = BUF_INIT;
	char line[200];
	(void)state;
	keep_logs_local(moving);
	for (int i = 0; i < 2 * MANY; i++) {
		snprintf(line, sizeof line, "2026-01-01 10:00:%02d.%03d info  n:1: line\n",
			 i / 1000, i % 1000);
		buf_puts(&text, line);
		buf_printf(&expected, "n-1|%s", line);
		if (i % MANY == MANY - 1) {
			append_to(moving, i < MANY ? "n-1.1.log" : "n-1.log", buf_str(&text));
			buf_clear(&text);
		}
	}
	buf_printf(&expected, "n-1|" AT("23:00:00.000", "last"));
	struct rundir_logs *l = open_logs(NULL);
	buf_clear(&seen);
	assert_int_equal(rundir_logs_read(l, false, see_and_move, NULL, NULL), 0);
	assert_int_equal(seen.len, expected.len);
	assert_string_equal(buf_str(&seen), buf_str(&expected));
	rundir_logs_close(l);
	buf_fini(&expected);
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(lines_without_a_time_follow_those_before_them),
		EACH(a_growing_log_gives_each_line_once),
		EACH(a_line_too_long_comes_in_pieces_and_keeps_its_time),
		EACH(logs_without_dates_are_dated_by_their_file),
		EACH(ranks_nodes_and_times_choose_lines),
		EACH(a_log_that_was_replaced_is_read_from_its_begin),
		EACH(generations_have_their_first_start),
		cmocka_unit_test_setup_teardown(the_parts_of_a_log_are_read_in_their_order, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_reader_that_follows_loses_no_line_at_a_split,
						setup, teardown),
		EACH(logs_that_stay_on_this_node_are_read_there),
		EACH(a_reader_that_follows_loses_no_line_when_a_log_is_collected),
		EACH(a_reader_that_is_late_finds_where_it_was),
		EACH(a_log_that_moves_while_it_is_read_is_read_to_its_end),
		EACH(a_reader_in_an_early_part_reads_the_later_ones_wherever_they_are),
		EACH(the_part_that_the_file_has_become_is_not_left_out),
		EACH(parts_without_the_file_are_read),
		EACH(logs_in_a_folder_that_is_not_private_are_not_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
