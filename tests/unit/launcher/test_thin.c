/* The files of a run stay below their bound for however long it goes on: old lines are thinned, and
 * neither a crash, a full disk nor a second process costs a segment. */
#include "base/file.h"
#include "base/segments.h"
#include "launcher/rundir/events.h"
#include "launcher/rundir/rundir.h"
#include "launcher/rundir/scan.h"
#include "launcher/rundir/thin.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256], folder[300];
static struct rundir *run;
static struct rundir_thinning work;

static int setup(void **state)
{
	(void)state;
	if (!tmpdir_make(dir, sizeof dir) || rundir_open(dir, "run", &run, NULL))
		return -1;
	snprintf(folder, sizeof folder, "%s", rundir_path(run));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rundir_close(run);
	file_remove_tree(dir);
	return 0;
}

static void prepare(void)
{
	memset(&work, 0, sizeof work);
	rundir_thin_begin(run, &work);
}

static void thin_if_due(void)
{
	if (!rundir_thin_due(run))
		return;
	prepare();
	rundir_thin(&work);
	assert_int_equal(work.why.code, ERR_NONE);
}

/* The bytes of a file with its segments. */
static int64_t bytes_of(const char *name)
{
	struct segments s;
	struct stat st;
	char path[RUN_PATH];
	int64_t sum = 0;
	assert_int_equal(segments_list(folder, name, &s, NULL), 0);
	for (int i = 0; i <= s.n; i++) {
		segments_path(path, folder, name, i < s.n ? s.numbers[i] : 0);
		sum += stat(path, &st) ? 0 : st.st_size;
	}
	segments_free(&s);
	return sum;
}

static int64_t bytes_of_all(void)
{
	int64_t sum = 0;
	for (int i = 0; i < RUNDIR_FILE_COUNT; i++)
		sum += bytes_of(rundir_thin_name(i));
	return sum;
}

static void add_steps(uint32_t generation, int64_t from, int64_t to)
{
	for (int64_t step = from; step <= to; step++) {
		struct msg_metrics m = { .step = step, .loss = 1.0 / (double)step };
		rundir_metrics(run, generation, &m, 0.5);
	}
}

struct series {
	int64_t lines, last, gaps_late; /* gaps_late: missing steps among the last 1000 */
	bool ordered;
	int64_t total, damaged;
};

static void see(void *arg, const double *values)
{
	struct series *s = arg;
	int64_t step = (int64_t)values[0];
	s->ordered &= step > s->last;
	if (step > s->total - 1000)
		s->gaps_late += step - s->last - 1;
	s->last = step;
	s->lines++;
}

static struct series read_series(int64_t total)
{
	static const char *const keys[] = { "step" };
	struct series s = { .ordered = true, .total = total };
	assert_int_equal(rundir_metrics_scan(folder, keys, 1, see, &s, &s.damaged, NULL), 0);
	return s;
}

/* Lines of time.jsonl are as long as this one. */
#define TIME_FIELDS(F) F(text, TEXT, REQUIRED, "as many bytes as the parts of the time have")

static void add_time(uint32_t generation)
{
	typedef struct time_line {
		TIME_FIELDS(FIELDS_MEMBER)
	} fields_struct;
	static const struct fields_row rows[] = { TIME_FIELDS(FIELDS_ROW) FIELDS_END };
	static char text[500];
	memset(text, 'x', sizeof text - 1);
	rundir_append(run, RUNDIR_TIME, generation, rows, &(fields_struct){ text });
}

/* What a restart of some ranks writes. */
static void add_restart(uint32_t generation, int ranks)
{
	rundir_event_generation_start(run, generation,
				      &(struct rundir_start){ .resume = "auto", .auth = "secret" });
	json_t *agents = json_array();
	for (int i = 0; i < ranks; i++)
		json_array_append_new(agents, rundir_agent_json(&(struct rundir_agent){
						      .rank = i, .pid = 12345 }));
	rundir_event_hello(run, generation,
			   &(struct rundir_hello){ .node = "node0123",
						   .boot = "b7a3901e-3368-4c03-ab43",
						   .agents = agents });
	json_decref(agents);
	rundir_event_ready(run, generation, &(struct rundir_ready){ .step = 1 });
}

/*
 * A year of 1,000 ranks with a step per second, a line of time.jsonl per minute, a checkpoint and an
 * evaluation each 500 steps, a warning each 100 steps and a restart per day, in a model of 1/512 of
 * its size: the bound, the files and the steps are smaller by this factor, so the number of splits
 * and thinnings is that of the year.
 */
static void a_year_of_1000_ranks_stays_below_its_bound(void **state)
{
	(void)state;
	enum { YEAR_S = 365 * 86400, SCALE = 512 };
	enum { STEPS = YEAR_S / SCALE, KEEP = (1 << 30) / SCALE, RESTARTS = 365 };
	int64_t most = 0, written = 0;
	uint32_t generation = 0;
	rundir_set_keep(run, KEEP);
	for (int64_t step = 1; step <= STEPS; step++) {
		if (step % (STEPS / RESTARTS) == 1)
			add_restart(++generation, 1000 / SCALE + 1);
		add_steps(generation, step, step);
		written += 490;
		if (step % 100 == 0)
			rundir_event_log(run, generation,
					 &(struct rundir_log){ .node = "n1",
							       .level = "warn",
							       .text = "something is odd here" });
		if (step % 500 == 0)
			rundir_event_eval(run, generation, &(struct rundir_eval){ .step = step });
		if (step % 60 == 0)
			add_time(generation);
		thin_if_due();
		if (step % 100 == 0 && bytes_of_all() > most)
			most = bytes_of_all();
	}
	assert_true(written > 12 * (int64_t)KEEP); /* steps alone */
	assert_true(most > KEEP / 4);
	assert_true(most <= KEEP);
	struct series s = read_series(STEPS);
	assert_true(s.ordered);
	assert_int_equal(s.last, STEPS);
	assert_int_equal(s.damaged, 0);
	assert_int_equal(s.gaps_late, 0); /* what is recent is complete */
	assert_true(s.lines < STEPS / 4);
	assert_int_equal(rundir_lost(run), 0);
	print_message("%lld bytes of steps, at most %lld bytes in the files, of %d\n",
		      (long long)written, (long long)most, KEEP);
}

/* Fills segments 1 to 3 of metrics.jsonl. */
static void make_segments(void)
{
	rundir_set_keep(run, 1 << 20); /* 64 KiB each */
	add_steps(1, 1, 700);
	add_steps(2, 695, 1400); /* after a restart */
	rundir_set_keep(run, 1LL << 40);
	assert_true(access(folder, F_OK) == 0);
}

static char *content_of(const char *name, uint32_t number)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	segments_path(path, folder, name, number);
	assert_int_equal(file_slurp(path, 1 << 24, &text, NULL), 0);
	return buf_take(&text);
}

static void steps_that_are_multiples_and_ends_of_generations_stay(void **state)
{
	(void)state;
	make_segments();
	prepare();
	struct segments s;
	assert_int_equal(segments_list(folder, RUN_METRICS, &s, NULL), 0);
	assert_true(s.n >= 3);
	for (int i = 0; i < s.n; i++)
		assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, s.numbers[i], 1, NULL),
				 1);
	segments_free(&s);
	char *text = content_of(RUN_METRICS, 1);
	assert_non_null(strstr(text, "\"thinned\":1}\n"));
	free(text);
	static const char *const keys[] = { "step", "generation" };
	struct series seen = { .last = 0, .total = 1 << 20 };
	int64_t damaged;
	assert_int_equal(rundir_metrics_scan(folder, keys, 1, see, &seen, &damaged, NULL), 0);
	assert_true(seen.lines < 1400 / 8 + 400); /* the file itself is complete */
	/* The last step of generation 1 and the first of generation 2. */
	bool last_of_first = false, first_of_second = false;
	for (uint32_t n = 1; n < 9; n++) {
		char path[RUN_PATH];
		segments_path(path, folder, RUN_METRICS, n);
		if (access(path, F_OK))
			continue;
		text = content_of(RUN_METRICS, n);
		last_of_first |= strstr(text, "\"generation\":1,\"step\":700,") != NULL;
		first_of_second |= strstr(text, "\"generation\":2,\"step\":695,") != NULL;
		assert_null(strstr(text, "\"generation\":1,\"step\":17,"));
		free(text);
	}
	assert_true(last_of_first);
	assert_true(first_of_second);
}

/* Thins 40 lines of each of two generations to the highest level. Returns which of the lines stay, as
 * their numbers. */
static void thin_lines(enum rundir_file file, char out[200])
{
	char lines[80][64];
	struct rundir_thin_filter *f;
	size_t used = 0;
	for (int i = 0; i < 80; i++)
		snprintf(lines[i], sizeof lines[i], "{\"time\":1,\"generation\":%d,\"step\":%d}",
			 1 + i / 40, i);
	assert_int_equal(rundir_thin_filter_open(file, RUNDIR_THIN_LEVELS, 9, &f, NULL), 0);
	for (int i = 0; i < 80; i++) {
		const char *next = i < 79 ? lines[i + 1] : NULL;
		if (rundir_thin_keeps(f, lines[i], strlen(lines[i]), next, next ? strlen(next) : 0))
			used += (size_t)snprintf(out + used, 200 - used, "%d ", i);
	}
	rundir_thin_filter_close(f);
}

/* The second line of a generation in time.jsonl says what was lost. */
static void the_first_lines_and_the_last_one_of_a_generation_stay(void **state)
{
	(void)state;
	char kept[200];
	thin_lines(RUNDIR_TIME, kept);
	assert_string_equal(kept, "0 1 2 10 18 26 34 39 40 41 45 53 61 69 77 79 ");
	thin_lines(RUNDIR_HEALTH, kept);
	assert_string_equal(kept, "0 1 9 17 25 33 39 40 43 51 59 67 75 79 ");
}

static bool keeps(struct rundir_thin_filter *f, const char *event, int generation)
{
	char line[200];
	int n = snprintf(line, sizeof line, "{\"event\":\"%s\",\"time\":1,\"generation\":%d}",
			 event, generation);
	return rundir_thin_keeps(f, line, (size_t)n, NULL, 0);
}

static void events_of_the_story_stay_longest(void **state)
{
	(void)state;
	struct rundir_thin_filter *f;
	assert_int_equal(rundir_thin_filter_open(RUNDIR_EVENTS, 1, 9, &f, NULL), 0);
	assert_false(keeps(f, "hello", 7));
	assert_true(keeps(f, "hello", 8)); /* its agents may still run */
	assert_true(keeps(f, "hello", 9));
	assert_false(keeps(f, "log", 9));
	assert_false(keeps(f, "refused", 9));
	for (int i = 0; i < 20; i++)
		assert_true(keeps(f, "ckpt", 3));
	rundir_thin_filter_close(f);
	assert_int_equal(rundir_thin_filter_open(RUNDIR_EVENTS, 2, 9, &f, NULL), 0);
	int ckpt = 0, restart = 0, ready = 0;
	for (int i = 0; i < 64; i++) {
		ckpt += keeps(f, "ckpt", 3);
		restart += keeps(f, "restart", 3);
		ready += keeps(f, "ready", 8);
	}
	assert_int_equal(ckpt, 8);
	assert_int_equal(restart, 64);
	assert_int_equal(ready, 64);
	rundir_thin_filter_close(f);
	assert_int_equal(rundir_thin_filter_open(RUNDIR_EVENTS, 4, 9, &f, NULL), 0);
	for (restart = 0, ckpt = 0; ckpt < 64; ckpt++)
		restart += keeps(f, "restart", 3);
	assert_int_equal(restart, 8);
	assert_false(rundir_thin_keeps(f, "{\"event\":\"done\"", 15, NULL, 0));
	/* More names than there are places for. */
	for (int i = 0; i < 500; i++) {
		char name[16];
		snprintf(name, sizeof name, "event-%d", i);
		keeps(f, name, 3);
	}
	rundir_thin_filter_close(f);
}

static void two_processes_never_thin_the_same_segment(void **state)
{
	(void)state;
	char path[RUN_PATH];
	make_segments();
	prepare();
	segments_path(path, folder, RUN_METRICS, 1);
	char *before = content_of(RUN_METRICS, 1);
	int fd = open(path, O_RDONLY);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 0);
	char *after = content_of(RUN_METRICS, 1);
	assert_string_equal(after, before);
	free(after);
	free(before);
	close(fd);
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 1);
}

static void a_full_disk_leaves_the_segment(void **state)
{
	(void)state;
	struct rlimit old, small;
	struct err e = ERR_INIT;
	make_segments();
	prepare();
	char *before = content_of(RUN_METRICS, 1);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 1000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_FULL);
	char *after = content_of(RUN_METRICS, 1), beside[RUN_PATH + 8];
	assert_string_equal(after, before);
	free(after);
	free(before);
	segments_path(beside, folder, RUN_METRICS, 1);
	strcat(beside, ".new");
	assert_int_equal(access(beside, F_OK), -1);
}

static void a_thinning_that_is_stopped_leaves_the_segment(void **state)
{
	(void)state;
	make_segments();
	prepare();
	char *before = content_of(RUN_METRICS, 1);
	atomic_store(&work.stop, true);
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 0);
	char *after = content_of(RUN_METRICS, 1);
	assert_string_equal(after, before);
	free(after);
	free(before);
}

/* In the child: writes and thins until it is killed. */
static void write_on(int told)
{
	struct rundir *own;
	if (rundir_open(dir, "run", &own, NULL))
		_exit(1);
	rundir_set_keep(own, 1 << 19);
	static struct rundir_thinning w;
	for (int64_t step = read_series(0).last + 1;; step++) {
		rundir_metrics(own, 1, &(struct msg_metrics){ .step = step }, 0);
		if (write(told, &step, sizeof step) != sizeof step)
			_exit(1);
		if (rundir_thin_due(own)) {
			rundir_thin_begin(own, &w);
			rundir_thin(&w);
		}
	}
}

/* The last step that the child has written whole before it was killed after `lines` lines. */
static int64_t kill_writer(int lines, unsigned *dice)
{
	int ends[2];
	int64_t step = 0, last = 0;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(ends[0]);
		write_on(ends[1]);
	}
	close(ends[1]);
	for (int i = 0; i < lines && read(ends[0], &step, sizeof step) == sizeof step; i++)
		last = step;
	*dice = *dice * 1103515245U + 12345;
	usleep(*dice >> 16 & 1023); /* anywhere in a line, a split or a thinning */
	kill(child, SIGKILL);
	while (read(ends[0], &step, sizeof step) == sizeof step)
		last = step;
	close(ends[0]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	return last;
}

static void a_crash_costs_at_most_the_last_line(void **state)
{
	(void)state;
	unsigned dice = 1;
	rundir_close(run); /* the children hold the lock */
	run = NULL;
	for (int i = 0; i < 16; i++) {
		int64_t last = kill_writer(40 + 31 * i, &dice);
		struct series s = read_series(last);
		assert_true(s.ordered);
		assert_true(s.last >= last); /* all that it said to have written */
		assert_true(s.last <= last + 1);
		assert_true(s.damaged <= i + 1); /* the kernel may cut a write at a page */
		assert_true(last < 1000 || s.gaps_late < 1000 - 60); /* no segment is missing */
	}
	assert_int_equal(rundir_open(dir, "run", &run, NULL), 0);
}

static void thinning_again_to_a_level_changes_nothing(void **state)
{
	(void)state;
	make_segments();
	prepare();
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 1);
	char *once = content_of(RUN_METRICS, 1);
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 1);
	char *twice = content_of(RUN_METRICS, 1);
	assert_string_equal(once, twice);
	free(once);
	free(twice);
}

static char *read_on(struct segments_reader *r)
{
	struct buf text = BUF_INIT;
	char data[4096];
	ssize_t n;
	while ((n = segments_read(r, data, sizeof data, NULL)) > 0)
		buf_add(&text, data, (size_t)n);
	assert_int_equal(n, 0);
	return buf_take(&text);
}

static void a_reader_does_not_read_a_segment_again_that_was_thinned(void **state)
{
	(void)state;
	struct segments_reader r;
	segments_reader_init(&r, folder, RUN_METRICS);
	add_steps(1, 1, 10);
	char *before = read_on(&r);
	assert_non_null(strstr(before, "\"step\":8,"));
	rundir_set_keep(run, 1 << 20); /* 64 KiB each */
	add_steps(1, 11, 700);
	rundir_set_keep(run, 1LL << 40);
	prepare();
	assert_int_equal(rundir_thin_segment(&work, RUNDIR_METRICS, 1, 1, NULL), 1);
	char *after = read_on(&r);
	assert_null(strstr(after, "\"step\":8,"));
	assert_non_null(strstr(after, "\"step\":11,"));
	assert_non_null(strstr(after, "\"step\":700,"));
	segments_reader_fini(&r);
	free(before);
	free(after);
}

static void a_file_that_cannot_be_split_grows_on(void **state)
{
	(void)state;
	if (!geteuid())
		skip(); /* permissions do not bind root */
	rundir_set_keep(run, 1 << 16);
	assert_int_equal(chmod(folder, 0500), 0);
	add_steps(1, 1, 100);
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(rundir_lost(run), 0);
	assert_int_equal(read_series(100).lines, 100);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(a_year_of_1000_ranks_stays_below_its_bound),
		EACH(steps_that_are_multiples_and_ends_of_generations_stay),
		EACH(events_of_the_story_stay_longest),
		EACH(two_processes_never_thin_the_same_segment),
		EACH(a_full_disk_leaves_the_segment),
		EACH(a_thinning_that_is_stopped_leaves_the_segment),
		EACH(the_first_lines_and_the_last_one_of_a_generation_stay),
		EACH(a_crash_costs_at_most_the_last_line),
		EACH(a_reader_does_not_read_a_segment_again_that_was_thinned),
		EACH(thinning_again_to_a_level_changes_nothing),
		EACH(a_file_that_cannot_be_split_grows_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
