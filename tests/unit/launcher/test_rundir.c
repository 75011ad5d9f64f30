/* The run folder: one muster at a time uses it, it is private, generation numbers continue, and no
 * line is cut in two. */
#include "base/file.h"
#include "launcher/rundir/events.h"
#include "launcher/rundir/rundir.h"
#include "launcher/rundir/submissions.h"
#include "launcher/rundir/traces.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256];
static struct rundir *run;

static int setup(void **state)
{
	(void)state;
	return !tmpdir_make(dir, sizeof dir) || rundir_open(dir, "deep/run", &run, NULL) ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	char remove[512];
	rundir_close(run);
	snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
	return system(remove) ? -1 : 0;
}

static void a_second_muster_reports_who_holds_the_lock(void **state)
{
	(void)state;
	struct rundir *second = NULL;
	struct err e = ERR_INIT;
	char pid[32];
	assert_int_equal(rundir_open(dir, "deep/run", &second, &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
	snprintf(pid, sizeof pid, "process %ld", (long)getpid());
	assert_non_null(strstr(e.text, pid));
	assert_null(second);
	rundir_close(run);
	assert_int_equal(rundir_open(dir, "deep/run", &run, &e), 0);
}

static void folders_and_files_are_private(void **state)
{
	(void)state;
	static const char *const names[] = { "",     "logs",         "ckpt",
					     "lock", "events.jsonl", "metrics.jsonl" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[512];
		struct stat st;
		snprintf(path, sizeof path, "%s/%s", rundir_path(run), names[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 077, 0);
	}
}

static void a_folder_that_others_may_write_to_is_refused(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct rundir *open = NULL;
	struct stat st;
	char path[512];
	snprintf(path, sizeof path, "%s/shared", dir);
	assert_int_equal(mkdir(path, 0700) || chmod(path, 0770), 0);
	assert_int_equal(rundir_open(dir, "shared", &open, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_non_null(strstr(e.text, "chmod go-w"));
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(rundir_open(dir, "shared", &open, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	rundir_close(open);
}

static void a_folder_of_another_user_is_refused(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct rundir *open = NULL;
	char path[512];
	snprintf(path, sizeof path, "%s/theirs", dir);
	if (geteuid())
		skip(); /* only root can give a folder away */
	assert_int_equal(mkdir(path, 0700) || chown(path, 65534, 65534), 0);
	assert_int_equal(rundir_open(dir, "theirs", &open, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_non_null(strstr(e.text, "uid 65534"));
}

/* The decoy is a file that muster would truncate or append to if it followed the link. */
static void links_and_pipes_in_place_of_its_files_are_refused(void **state)
{
	(void)state;
	static const char *const names[] = { "lock", "events.jsonl", "metrics.jsonl", "logs",
					     "trace" };
	char decoy[512], path[512];
	struct buf text = BUF_INIT;
	snprintf(decoy, sizeof decoy, "%s/decoy", dir);
	assert_int_equal(file_replace(decoy, "precious\n", 9, NULL), 0);
	for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
		struct err e = ERR_INIT;
		struct rundir *open = NULL;
		snprintf(path, sizeof path, "%s/laid-%zu", dir, i);
		assert_int_equal(mkdir(path, 0700), 0);
		snprintf(path, sizeof path, "%s/laid-%zu/%s", dir, i, names[i / 2]);
		assert_int_equal(i % 2 ? mkfifo(path, 0600) : symlink(decoy, path), 0);
		snprintf(path, sizeof path, "laid-%zu", i);
		assert_int_equal(rundir_open(dir, path, &open, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_non_null(strstr(e.text, names[i / 2]));
		assert_non_null(strstr(e.text, i % 2 ? "pipe (FIFO)" : "symbolic link"));
	}
	assert_int_equal(file_slurp(decoy, 100, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "precious\n");
	buf_fini(&text);
}

static void links_to_the_run_folder_and_its_checkpoints_are_followed(void **state)
{
	(void)state;
	struct rundir *open = NULL;
	char scratch[512], link[600];
	struct stat st;
	snprintf(scratch, sizeof scratch, "%s/scratch/ckpt", dir);
	assert_int_equal(file_make_dirs(scratch, NULL), 0);
	snprintf(scratch, sizeof scratch, "%s/scratch/run", dir);
	assert_int_equal(mkdir(scratch, 0700), 0);
	snprintf(link, sizeof link, "%s/scratch/run/ckpt", dir);
	assert_int_equal(symlink("../ckpt", link), 0);
	snprintf(link, sizeof link, "%s/linked", dir);
	assert_int_equal(symlink(scratch, link), 0);
	assert_int_equal(rundir_open(dir, "linked", &open, NULL), 0);
	assert_string_equal(rundir_path(open), scratch);
	snprintf(link, sizeof link, "%s/logs", scratch);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	rundir_close(open);
}

static void old_traces_behind_a_link_stay(void **state)
{
	(void)state;
	char decoy[512], file[600], trace[512], link[600];
	struct stat st;
	snprintf(decoy, sizeof decoy, "%s/elsewhere", dir);
	snprintf(file, sizeof file, "%s/comm-0.json", decoy);
	snprintf(trace, sizeof trace, "%s/trace", rundir_path(run));
	snprintf(link, sizeof link, "%s/gen-1", trace);
	assert_int_equal(mkdir(decoy, 0700) || mkdir(trace, 0700) || symlink(decoy, link) ||
				 file_replace(file, "{}", 2, NULL),
			 0);
	rundir_prune_traces(rundir_path(run), 100);
	assert_int_equal(stat(file, &st), 0);
}

static void generation_numbers_continue(void **state)
{
	(void)state;
	json_t *plan = json_pack("{s:i}", "world", 8);
	char path[512];
	assert_int_equal(rundir_next_generation(run), 1);
	assert_int_equal(rundir_save_plan(run, 9, plan, NULL), 0);
	assert_int_equal(rundir_save_plan(run, 10, plan, NULL), 0);
	snprintf(path, sizeof path, "%s/plan-99.json.tmp", rundir_path(run));
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(rundir_next_generation(run), 11);
	json_decref(plan);
}

static void a_job_that_muster_did_not_write_is_never_replaced(void **state)
{
	(void)state;
	static const char mine[] = "[job]\nname = mine\n";
	char path[512];
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	snprintf(path, sizeof path, "%s/job.ini", rundir_path(run));
	assert_int_equal(rundir_save_job(run, "[job]\n", NULL), 0);
	assert_int_equal(rundir_save_job(run, "[model]\n", NULL), 0);
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	assert_string_equal(buf_str(&text), RUNDIR_MARK "\n[model]\n");
	buf_clear(&text);
	assert_int_equal(file_replace(path, mine, strlen(mine), NULL), 0);
	assert_int_equal(rundir_save_job(run, "[job]\n", &e), -1);
	assert_non_null(strstr(e.text, "move it elsewhere"));
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	assert_string_equal(buf_str(&text), mine);
	buf_fini(&text);
}

static void each_submission_has_a_file_of_its_own(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	assert_int_equal(rundir_next_submission("/nonexistent"), 1);
	assert_int_equal(rundir_next_submission(rundir_path(run)), 1);
	assert_int_equal(rundir_save_submission(dir, "deep/run", 1, "[job]\n", "#!/bin/sh\n", NULL),
			 0);
	assert_int_equal(rundir_save_submission(dir, "deep/run", 1, "[model]\n", "", &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
	assert_int_equal(rundir_next_submission(rundir_path(run)), 2);
}

/* The first line after the head of the file. */
static json_t *first_line(const char *text)
{
	json_t *head = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(head);
	assert_int_equal(json_integer_value(json_object_get(head, "version")), 1);
	json_decref(head);
	return json_loads(strchr(text, '\n') + 1, JSON_DISABLE_EOF_CHECK, NULL);
}

static void each_file_begins_with_a_head(void **state)
{
	(void)state;
	static const char *const names[] = { "events.jsonl", "metrics.jsonl", "health.jsonl" };
	rundir_event_connected(run, 2, NULL);
	rundir_metrics(run, 2, &(struct msg_metrics){ .step = 1 }, 0);
	rundir_metrics(run, 2, &(struct msg_metrics){ .step = 2 }, 0);
	json_t *findings = json_array();
	rundir_health(run, 2, &(struct rundir_health){ .node = "n1", .findings = findings });
	json_decref(findings);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[512], format[32];
		struct buf text = BUF_INIT;
		snprintf(path, sizeof path, "%s/%s", rundir_path(run), names[i]);
		snprintf(format, sizeof format, "muster/%.*s", (int)strcspn(names[i], "."),
			 names[i]);
		assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
		json_t *head = json_loads(text.data, JSON_DISABLE_EOF_CHECK, NULL);
		assert_string_equal(json_string_value(json_object_get(head, "format")), format);
		assert_int_equal(json_integer_value(json_object_get(head, "version")), 1);
		assert_int_equal(json_integer_value(json_object_get(head, "generation")), 2);
		assert_null(strstr(strchr(text.data, '\n'), "\"format\""));
		json_decref(head);
		buf_fini(&text);
	}
}

static void events_carry_both_times_and_the_generation(void **state)
{
	(void)state;
	char path[512];
	struct buf text = BUF_INIT;
	rundir_event_slow_rank(run, 3,
			       &(struct rundir_slow_rank){ .rank = 5, .node = "n1", .text = "" });
	rundir_event_connected(run, 3, NULL);
	snprintf(path, sizeof path, "%s/events.jsonl", rundir_path(run));
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	json_t *line = first_line(text.data);
	assert_string_equal(json_string_value(json_object_get(line, "event")), "slow-rank");
	assert_int_equal(json_integer_value(json_object_get(line, "rank")), 5);
	assert_int_equal(json_integer_value(json_object_get(line, "generation")), 3);
	assert_true(json_real_value(json_object_get(line, "time")) > 1e9);
	assert_true(json_real_value(json_object_get(line, "mono")) > 0);
	json_decref(line);
	buf_fini(&text);
}

/* An error can quote a file name in any encoding. */
static void an_event_whose_text_is_not_utf8_is_kept(void **state)
{
	(void)state;
	char path[512];
	struct buf text = BUF_INIT;
	rundir_event_refused(run, 1, &(struct rundir_why){ .why = "abc\xc3" });
	assert_int_equal(rundir_lost(run), 0);
	snprintf(path, sizeof path, "%s/events.jsonl", rundir_path(run));
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	assert_non_null(strstr(buf_str(&text), "\"why\":\"abc?\""));
	buf_fini(&text);
}

static void lines_lost_on_a_full_disk_are_counted(void **state)
{
	(void)state;
	struct rlimit old, none;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	none = old;
	none.rlim_cur = 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	rundir_event_connected(run, 1, NULL);
	rundir_metrics(run, 1, &(struct msg_metrics){ .step = 1 }, 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rundir_lost(run), 2);
	rundir_event_started(run, 1, NULL);
	assert_int_equal(rundir_lost(run), 2);
	char path[512];
	struct buf text = BUF_INIT;
	snprintf(path, sizeof path, "%s/events.jsonl", rundir_path(run));
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	/* What the disk had taken of the lost line is gone. */
	json_t *line = first_line(text.data);
	assert_string_equal(json_string_value(json_object_get(line, "event")), "started");
	json_decref(line);
	buf_fini(&text);
}

/* Appends to a file of the run folder, as a muster does that is killed in the middle of a line. */
static void append_text(const char *name, const char *text)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", rundir_path(run), name);
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void the_torn_end_of_an_earlier_run_is_removed(void **state)
{
	(void)state;
	/* A line's beginning: longer than one read, of a file without another line, and none. */
	static const struct {
		const char *before;
		int torn;
	} rows[] = { { "{\"step\":1}\n", 9 },
		     { "{\"step\":1}\n", 9000 },
		     { "", 5000 },
		     { "", 0 },
		     { "{\"step\":1}\n{\"step\":2}\n", 0 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char path[512], torn[9001];
		struct buf text = BUF_INIT;
		memset(torn, 'x', sizeof torn);
		torn[rows[i].torn] = '\0';
		snprintf(path, sizeof path, "%s/metrics.jsonl", rundir_path(run));
		assert_int_equal(truncate(path, 0), 0);
		append_text("metrics.jsonl", rows[i].before);
		append_text("metrics.jsonl", torn);
		rundir_close(run);
		assert_int_equal(rundir_open(dir, "deep/run", &run, NULL), 0);
		assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
		assert_string_equal(buf_str(&text), rows[i].before);
		buf_fini(&text);
	}
}

static void a_refused_submission_leaves_nothing(void **state)
{
	(void)state;
	char path[512];
	struct stat st;
	snprintf(path, sizeof path, "%s/new", dir);
	assert_int_equal(rundir_save_submission(dir, "new", 1, "x", "", NULL), 0);
	rundir_drop_submission(path, 1, true);
	assert_int_equal(stat(path, &st), -1);
	/* A folder that existed, or has a file, stays. */
	assert_int_equal(rundir_save_submission(dir, "new", 1, "x", "", NULL), 0);
	assert_int_equal(rundir_save_submission(dir, "new", 2, "x", "", NULL), 0);
	rundir_drop_submission(path, 2, true);
	assert_int_equal(rundir_next_submission(path), 2);
	rundir_drop_submission(path, 0, true);
	assert_int_equal(rundir_next_submission(path), 2);
	rundir_drop_submission(path, 1, false);
	assert_int_equal(rundir_next_submission(path), 1);
	assert_int_equal(stat(path, &st), 0);
}

static void only_old_flight_recorders_are_removed(void **state)
{
	(void)state;
	char command[800];
	snprintf(command, sizeof command,
		 "cd '%s' && mkdir trace && cd trace && mkdir gen-1 gen-2 gen-3 gen-x other && "
		 "touch gen-1/comm-0.json gen-1/comm-0.json.77-0 gen-1/timeline-0.json gen-2/mine "
		 "gen-2/comm-1.json gen-3/comm-0.json",
		 rundir_path(run));
	assert_int_equal(system(command), 0);
	rundir_prune_traces(rundir_path(run), 2 + RUNDIR_TRACES);
	snprintf(command, sizeof command,
		 "cd '%s/trace' && test \"$(echo * */*)\" = \"gen-2 gen-3 gen-x other gen-2/mine "
		 "gen-3/comm-0.json\"",
		 rundir_path(run));
	assert_int_equal(system(command), 0);
}

/* The jobs of a run are read in the order of the queue; a line that a full disk has cut is skipped, and
 * the next one begins on a line of its own. */
static void submissions_are_read_in_order(void **state)
{
	struct rundir_submissions all;
	char path[512];
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(rundir_submissions_read(dir, &all, &e), 0);
	assert_int_equal(all.n, 0);
	assert_int_equal(rundir_submissions_find(&all, "7"), -1);
	rundir_submissions_free(&all);
	const struct rundir_submission first = { .submission = 3, .job = "7" };
	const struct rundir_submission next = { .submission = 3,
						.job = "8",
						.has_by = true,
						.by = "7",
						.has_resumed = true,
						.resumed = 120 };
	assert_int_equal(rundir_submissions_append(dir, &first, &e), 0);
	snprintf(path, sizeof path, "%s/submissions.jsonl", dir);
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	fputs("{\"submission\":3,\"jo", f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(rundir_submissions_append(dir, &next, &e), 0);
	assert_int_equal(rundir_submissions_read(dir, &all, &e), 0);
	assert_int_equal(all.n, 2);
	assert_int_equal(rundir_submissions_find(&all, "8"), 1);
	assert_string_equal(all.of[1].by, "7");
	assert_int_equal(all.of[1].resumed, 120);
	assert_false(all.of[0].has_by);
	assert_true(all.of[1].time >= all.of[0].time && all.of[0].time > 0);
	rundir_submissions_free(&all);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(only_old_flight_recorders_are_removed),
		T(a_second_muster_reports_who_holds_the_lock),
		T(folders_and_files_are_private),
		T(a_folder_that_others_may_write_to_is_refused),
		T(a_folder_of_another_user_is_refused),
		T(links_and_pipes_in_place_of_its_files_are_refused),
		T(links_to_the_run_folder_and_its_checkpoints_are_followed),
		T(old_traces_behind_a_link_stay),
		T(generation_numbers_continue),
		T(a_job_that_muster_did_not_write_is_never_replaced),
		T(each_submission_has_a_file_of_its_own),
		T(each_file_begins_with_a_head),
		T(events_carry_both_times_and_the_generation),
		T(an_event_whose_text_is_not_utf8_is_kept),
		T(lines_lost_on_a_full_disk_are_counted),
		T(the_torn_end_of_an_earlier_run_is_removed),
		T(a_refused_submission_leaves_nothing),
		T(submissions_are_read_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
