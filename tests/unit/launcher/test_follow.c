/* The files of a run are read while they grow: a line counts once, when it is complete, and a
 * damaged line does not stop the reader. */
#include "base/run_paths.h"
#include "launcher/rundir/events.h"
#include "launcher/rundir/follow.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256];

struct seen {
	int events, metrics;
	int64_t generations;
	char last[64];
};

static int setup(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char remove[512];
	snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
	return system(remove) ? -1 : 0;
}

static void see_event(void *arg, const struct rundir_line *l)
{
	struct seen *s = arg;
	s->events++;
	s->generations += l->generation;
	snprintf(s->last, sizeof s->last, "%s", l->has_event ? l->event : "");
}

static void see_metrics(void *arg, const struct rundir_line *l)
{
	struct seen *s = arg;
	(void)l;
	s->metrics++;
}

static struct rundir_follower *follow(const char *run, struct seen *s)
{
	struct rundir_follower *f = NULL;
	const struct rundir_reader reader = { see_event, see_metrics, s };
	assert_int_equal(rundir_follow_open(run, &reader, &f, NULL), 0);
	return f;
}

static void append(const char *name, const char *text)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

#define LINE(event, generation) \
	"{\"event\":\"" event "\",\"time\":1,\"mono\":2,\"generation\":" generation "}"

static void a_line_is_reported_once_when_it_is_complete(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct rundir_follower *f = follow(dir, &s);
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	append("events.jsonl", LINE("plan", "1") "\n{\"event\":\"re");
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(s.events, 1);
	append("events.jsonl", "ady\",\"time\":1,\"mono\":2,\"generation\":5}");
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(s.events, 1);
	append("events.jsonl", "\n");
	append("metrics.jsonl", "{\"time\":1,\"mono\":2,\"generation\":1,\"step\":1}\n");
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(s.events, 2);
	assert_int_equal(s.metrics, 1);
	assert_int_equal(s.generations, 6);
	assert_string_equal(s.last, "ready");
	assert_int_equal(rundir_follow_damaged(f), 0);
	rundir_follow_close(f);
}

static void a_damaged_line_is_counted_and_the_next_one_is_read(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct rundir_follower *f = follow(dir, &s);
	append("events.jsonl", "{\"event\":\"cut\n" LINE("a", "1") "\n[]\n{}\n\n\x80\n" LINE(
				       "b", "-1") "\n" LINE("c", "1") "\n");
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(s.events, 2);
	assert_string_equal(s.last, "c");
	assert_int_equal(rundir_follow_damaged(f), 5);
	rundir_follow_close(f);
}

static void a_line_without_end_takes_bounded_memory(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct rundir_lines lines = { 0 };
	static char zeros[1 << 20];
	memset(zeros, '0', sizeof zeros);
	for (int i = 0; i < 16; i++) {
		rundir_lines_feed(&lines, zeros, sizeof zeros, see_event, &s);
		assert_true(lines.split.part.cap <= 2 * RUNDIR_LINE_MAX);
	}
	const char *rest = "\n" LINE("after", "1") "\n";
	rundir_lines_feed(&lines, rest, strlen(rest), see_event, &s);
	assert_int_equal(s.events, 1);
	assert_string_equal(s.last, "after");
	assert_int_equal(lines.damaged, 1);
	rundir_lines_fini(&lines);
}

static void a_fifo_in_place_of_a_file_is_refused(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct err e = ERR_INIT;
	char path[512];
	struct rundir_follower *f = follow(dir, &s);
	snprintf(path, sizeof path, "%s/events.jsonl", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(rundir_follow_read(f, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	rundir_follow_close(f);
}

static void what_the_writer_writes_the_reader_reads(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct rundir *run = NULL;
	char path[512];
	snprintf(path, sizeof path, "%s/run", dir);
	assert_int_equal(rundir_open(dir, "run", &run, NULL), 0);
	struct rundir_follower *f = follow(path, &s);
	rundir_event_connected(run, 3, NULL);
	rundir_metrics(run, 3, &(struct msg_metrics){ .step = 1 }, 0.5);
	rundir_event_done(run, 3, &(struct rundir_end){ .reason = "it \"is\" done\n" });
	assert_int_equal(rundir_follow_read(f, NULL), 0);
	assert_int_equal(s.events, 2);
	assert_int_equal(s.metrics, 1);
	assert_string_equal(s.last, "done");
	rundir_follow_close(f);
	rundir_close(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_is_reported_once_when_it_is_complete, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_damaged_line_is_counted_and_the_next_one_is_read,
						setup, teardown),
		cmocka_unit_test(a_line_without_end_takes_bounded_memory),
		cmocka_unit_test_setup_teardown(a_fifo_in_place_of_a_file_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_the_writer_writes_the_reader_reads, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
