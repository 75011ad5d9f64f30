/* A run's files are read as one history: a step that was repeated counts once, a loss knows what it
 * cost, and damaged files leave what can be used. */
#include "base/run_paths.h"
#include "launcher/rundir/history.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	char command[512];
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) ? -1 : 0;
}

static void append(const char *name, const char *fmt, ...)
{
	char path[512];
	va_list ap;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fclose(f);
}

static void event(const char *name, double time, int generation, const char *rest)
{
	append(RUN_EVENTS, "{\"event\":\"%s\",\"time\":%.3f,\"mono\":1,\"generation\":%d%s}\n",
	       name, time, generation, rest);
}

static void start(double time, int generation, int restarts, int from)
{
	char rest[128];
	event("plan", time, generation,
	      ",\"world\":4,\"tp\":1,\"cp\":1,\"ep\":1,\"dp\":2,\"pp\":2,\"step_s\":0.5");
	snprintf(rest, sizeof rest, ",\"resume\":\"auto\",\"restarts\":%d,\"auth\":\"secret\"",
		 restarts);
	event("generation-start", time, generation, rest);
	snprintf(rest, sizeof rest, ",\"step\":%d", from);
	event("ready", time + 1, generation, rest);
}

static void step(double time, int generation, int number, double loss)
{
	append(RUN_METRICS,
	       "{\"time\":%.3f,\"mono\":1,\"generation\":%d,\"step\":%d,\"loss\":%.17g,\"tokens\":"
	       "64,"
	       "\"step_s\":0.5,\"compute_s\":0.25}\n",
	       time, generation, number, loss);
}

static void lose(double time, int generation, int rank)
{
	char rest[256];
	snprintf(rest, sizeof rest,
		 ",\"rank\":%d,\"node\":\"n1\",\"how\":\"closed\",\"code\":\"peer\",\"text\":"
		 "\"connection "
		 "closed\",\"fault\":\"connection-closed\",\"owner\":\"unknown\"",
		 rank);
	event("rank-lost", time, generation, rest);
}

static struct rundir_history read_history(void)
{
	struct rundir_history h;
	struct err e = ERR_INIT;
	int rc = rundir_history_read(dir, &h, &e);
	if (rc)
		print_error("%s\n", e.text);
	assert_int_equal(rc, 0);
	return h;
}

static void an_empty_folder_has_no_history(void **state)
{
	(void)state;
	struct rundir_history h = read_history();
	assert_int_equal(h.n_generations + h.n_losses + h.n_checkpoints + h.steps.n, 0);
	assert_true(isnan(h.begin) && isnan(h.end) && !h.ended);
	rundir_history_fini(&h);
	struct err e = ERR_INIT;
	assert_int_equal(rundir_history_read("/nonexistent/run", &h, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	rundir_history_fini(&h);
}

static void a_loss_knows_what_it_cost(void **state)
{
	(void)state;
	start(100, 1, 0, 0);
	for (int i = 1; i <= 9; i++)
		step(101 + i, 1, i, i);
	lose(111, 1, 3);
	event("fault", 111.5, 1,
	      ",\"rank\":2,\"node\":\"n2\",\"fault\":\"agent-killed\",\"owner\":\"unknown\","
	      "\"retry\":\"now\","
	      "\"text\":\"a signal\",\"remedy\":\"find it\"");
	start(112, 2, 1, 5);
	event("first-step", 115, 2, ",\"step\":6,\"since_start_s\":3,\"loss\":60");
	for (int i = 6; i <= 12; i++)
		step(109 + i, 2, i, 10 * i);
	event("done", 122, 2, ",\"reason\":\"\",\"status\":0,\"step\":12,\"restarts\":1");
	struct rundir_history h = read_history();
	assert_int_equal(h.n_losses, 1);
	const struct rundir_loss *l = &h.losses[0];
	assert_string_equal(l->fault, "agent-killed");
	assert_string_equal(l->node, "n2");
	assert_string_equal(l->remedy, "find it");
	assert_int_equal(l->rank, 2);
	assert_true(l->restart_s == 4 && isnan(l->still_s));
	assert_int_equal(l->repeated, 4);
	assert_int_equal(h.restarts, 1);
	assert_int_equal(h.runs, 1);
	assert_string_equal(h.ended, "done");
	assert_true(h.begin == 100 && h.end == 122);
	assert_int_equal(h.n_generations, 2);
	assert_int_equal(h.generations[0].last_step, 9);
	assert_true(h.generations[0].lost && h.generations[0].end == 111);
	assert_int_equal(h.generations[1].resumed, 5);
	assert_true(h.generations[1].predicted_s == 0.5);
	/* Steps 6 to 9 came twice: the last line of each counts. */
	assert_int_equal(h.steps.n, 12);
	assert_int_equal(h.steps.lines, 16);
	for (size_t i = 0; i < h.steps.n; i++) {
		assert_true(h.steps.of[COLUMN_STEP][i] == (double)i + 1);
		assert_true(h.steps.of[COLUMN_LOSS][i] == ((double)i + 1) * (i < 5 ? 1 : 10));
		assert_true(h.steps.of[COLUMN_PARTS + STEP_PART_COMPUTE][i] == 0.25);
		assert_true(isnan(h.steps.of[COLUMN_GRAD_NORM][i]));
	}
	rundir_history_fini(&h);
}

static void a_run_that_goes_on_or_is_continued_is_told_apart(void **state)
{
	(void)state;
	start(100, 1, 0, 0);
	step(102, 1, 1, 3);
	struct rundir_history h = read_history();
	assert_null(h.ended);
	assert_true(isnan(h.generations[0].end));
	rundir_history_fini(&h);
	event("stopped", 103, 1,
	      ",\"reason\":\"time limit\",\"status\":75,\"step\":1,\"restarts\":0");
	h = read_history();
	assert_string_equal(h.ended, "stopped");
	assert_string_equal(h.reason, "time limit");
	rundir_history_fini(&h);
	start(200, 2, 0, 1);
	h = read_history();
	assert_null(h.ended);
	assert_null(h.reason);
	assert_int_equal(h.runs, 2);
	assert_int_equal(h.restarts, 0);
	rundir_history_fini(&h);
}

static void a_loss_after_which_nothing_ran_has_no_end(void **state)
{
	(void)state;
	start(100, 1, 0, 0);
	step(102, 1, 1, 3);
	lose(103, 1, 0);
	event("hang", 104, 1,
	      ",\"rank\":0,\"node\":\"n1\",\"step\":1,\"phase\":\"forward\",\"kind\":\"stopped\","
	      "\"text\":\"x\","
	      "\"still_s\":31.5,\"examined_s\":1");
	start(105, 2, 1, 1);
	lose(107, 2, 1);
	struct rundir_history h = read_history();
	assert_int_equal(h.n_losses, 2);
	assert_true(h.losses[0].still_s == 31.5 && isnan(h.losses[0].restart_s));
	assert_int_equal(h.losses[0].repeated, 0);
	assert_int_equal(h.losses[1].repeated, -1);
	rundir_history_fini(&h);
}

static void checkpoints_evaluations_and_marks_are_kept(void **state)
{
	(void)state;
	start(100, 1, 0, 0);
	event("ckpt", 101, 1,
	      ",\"step\":25,\"path\":\"/c/25\",\"bytes\":7,\"seconds\":2,\"stall_s\":0.5");
	event("ckpt-local", 102, 1,
	      ",\"step\":30,\"path\":\"/c/30\",\"bytes\":8,\"seconds\":1,\"stall_s\":0");
	for (int i = 0; i < 9; i++) {
		char rest[64];
		snprintf(rest, sizeof rest, ",\"step\":%d,\"loss\":%d", 10 * (i + 1), 9 - i);
		event("eval", 103 + i, 1, rest);
	}
	event("eval", 120, 2, ",\"step\":70,\"loss\":0.5"); /* 70, 80 and 90 are repeated */
	event("slow-rank", 121, 1,
	      ",\"rank\":2,\"node\":\"n\",\"slow\":true,\"factor\":1.4,\"since_s\":9,\"text\":"
	      "\"slow\"");
	event("warning", 122, 1, ",\"holds\":true,\"text\":\"loss spike\"");
	event("warning", 123, 1, ",\"holds\":false,\"text\":\"loss spike\"");
	struct rundir_history h = read_history();
	assert_int_equal(h.n_checkpoints, 2);
	assert_true(h.checkpoints[0].step == 25 && !h.checkpoints[0].local);
	assert_true(h.checkpoints[1].local);
	assert_string_equal(h.checkpoints[1].path, "/c/30");
	assert_int_equal(h.n_evaluations, 7);
	assert_true(h.evaluations[6].step == 70 && h.evaluations[6].loss == 0.5);
	assert_int_equal(h.n_marks, 3);
	assert_string_equal(h.marks[1].text, "loss spike");
	assert_string_equal(h.marks[1].event, "warning");
	assert_string_equal(h.marks[2].event, "warning ends");
	assert_int_equal(h.n_seats, 3);
	assert_true(h.seats[2].slow && h.seats[2].factor == 1.4 && isnan(h.seats[0].factor));
	rundir_history_fini(&h);
}

static void the_seats_are_those_of_the_last_generation(void **state)
{
	(void)state;
	const char *hello =
		",\"rank\":%d,\"node\":\"%s\",\"pid\":1,\"start\":2,\"pid_space\":3,\"boot\":\"b\"";
	char rest[256];
	start(100, 1, 0, 0);
	snprintf(rest, sizeof rest, hello, 5, "old");
	event("hello", 100, 1, rest);
	start(110, 2, 1, 0);
	snprintf(rest, sizeof rest, hello, 1, "new");
	event("hello", 111, 2, rest);
	append(RUN_HEALTH, "{\"time\":1,\"mono\":1,\"generation\":1,\"rank\":0,\"node\":\"old\","
			   "\"step\":1,\"steps\":2,"
			   "\"slow\":true,\"pace_s\":9,\"peers_s\":1,\"clock\":0,\"gpu_clock\":0,"
			   "\"findings\":[]}\n"
			   "{\"time\":1,\"mono\":1,\"generation\":2,\"rank\":1,\"node\":\"new\","
			   "\"step\":1,\"steps\":2,"
			   "\"slow\":false,\"pace_s\":3,\"peers_s\":2,\"clock\":0,\"gpu_clock\":0,"
			   "\"findings\":[]}\n");
	struct rundir_history h = read_history();
	assert_int_equal(h.n_seats, 2);
	assert_null(h.seats[0].node);
	assert_string_equal(h.seats[1].node, "new");
	assert_true(isnan(h.seats[0].factor) && h.seats[1].factor == 1.5);
	rundir_history_fini(&h);
}

static void damaged_lines_are_counted_and_left_out(void **state)
{
	(void)state;
	start(100, 1, 0, 0);
	step(101, 1, 1, 3);
	append(RUN_METRICS, "{\"time\":1,\"mono\":2,\"gen\n\x80\xff\n");
	append(RUN_METRICS,
	       "{\"time\":102,\"mono\":2,\"generation\":1,\"step\":2,\"loss\":null}\n");
	append(RUN_METRICS, "{\"time\":103,\"mono\":2,\"generation\":1,\"loss\":5}\n");
	append(RUN_METRICS, "{\"time\":104,\"mono\":2,\"generation\":1,\"step\":3,\"loss\":2}");
	append(RUN_EVENTS, "{\"event\":\"rank-lost\",\"time\":105,\"mono\":1,\"generation\":1}\n");
	append(RUN_EVENTS, "{\"event\":\"ckpt\",\"time\":105,\"mono\":1,\"generation\":1}\n");
	append(RUN_EVENTS,
	       "{\"event\":\"hello\",\"time\":105,\"mono\":1,\"generation\":1,\"rank\":2147483647,"
	       "\"node\":\"n\",\"pid\":1,\"start\":2,\"pid_space\":3,\"boot\":\"b\"}\n[]\n");
	struct rundir_history h = read_history();
	assert_int_equal(h.steps.n, 2);
	assert_true(isnan(h.steps.of[COLUMN_LOSS][1]));
	/* Three lines of metrics.jsonl and its cut end, and one event. */
	assert_int_equal(h.damaged, 5);
	assert_int_equal(h.n_losses, 1);
	assert_string_equal(h.losses[0].fault, "");
	assert_int_equal(h.losses[0].rank, -1);
	assert_int_equal(h.n_checkpoints, 0);
	assert_int_equal(h.n_seats, 0);
	rundir_history_fini(&h);
}

static void things_beyond_the_limit_are_counted(void **state)
{
	(void)state;
	char path[512];
	snprintf(path, sizeof path, "%s/%s", dir, RUN_EVENTS);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < RUNDIR_HISTORY_MOST + 3; i++)
		fprintf(f, "{\"event\":\"warning\",\"time\":%d,\"mono\":1,\"generation\":1}\n",
			1 + i);
	fclose(f);
	struct rundir_history h = read_history();
	assert_int_equal(h.n_marks, RUNDIR_HISTORY_MOST);
	assert_int_equal(h.left_out, 3);
	rundir_history_fini(&h);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_empty_folder_has_no_history),
		TEST(a_loss_knows_what_it_cost),
		TEST(a_run_that_goes_on_or_is_continued_is_told_apart),
		TEST(a_loss_after_which_nothing_ran_has_no_end),
		TEST(checkpoints_evaluations_and_marks_are_kept),
		TEST(the_seats_are_those_of_the_last_generation),
		TEST(damaged_lines_are_counted_and_left_out),
		TEST(things_beyond_the_limit_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
