/*
 * What make check-gpu measures and writes, without a GPU: its own programs and its report, at toy
 * sizes over the emulator; and that it skips by name where there is nothing to check.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a command: `said` gets its output. Returns its exit status. */
static int run_command(char *said, size_t size, const char *format, ...)
{
	char command[1024];
	va_list ap;
	va_start(ap, format);
	vsnprintf(command, sizeof command, format, ap);
	va_end(ap);
	FILE *out = popen(command, "r");
	assert_non_null(out);
	said[fread(said, 1, size - 1, out)] = '\0';
	return pclose(out);
}

static void a_step_is_measured(void **state)
{
	char said[8000];
	(void)state;
	if (run_command(said, sizeof said,
			"'%s/bench' --toy 'gemm 64 0.01' 'copy 100000' 'open gpt2-50257' 'turn 2' "
			"'open "
			"llama-1b' 'turn 1' close 2>&1",
			DOUBLES))
		fail_msg("bench:\n%s", said);
	assert_non_null(strstr(said, "\"peak_bytes\""));
	assert_null(strstr(said, "error"));
}

/* A late step ends with the next one, and computes the same. */
static void a_step_is_measured_in_both_ways(void **state)
{
	static char said[8000];
	double seconds[2][3], loss[2];
	(void)state;
	if (run_command(said, sizeof said,
			"f=job.deterministic=yes; '%s/bench' --toy \"open gpt2-50304 $f\" "
			"'turn 3' \"open gpt2-50304 $f\" 'turn 3 waits' 2>&1",
			DOUBLES))
		fail_msg("bench:\n%s", said);
	const char *at = said;
	for (int i = 0; i < 2; i++, at++) {
		at = strstr(at, "{\"seconds\": [");
		assert_non_null(at);
		assert_int_equal(sscanf(at, "{\"seconds\": [%lf, %lf, %lf], \"loss\": %lf,",
					&seconds[i][0], &seconds[i][1], &seconds[i][2], &loss[i]),
				 4);
		assert_true(seconds[i][0] > 0 && seconds[i][1] > 0 && seconds[i][2] > 0);
	}
	assert_true(loss[0] == loss[1]);
}

/* The emulator is some thousand times slower than the GPU that it is named after, and a calibration
 * says so. */
static void a_calibrated_prediction_is_that_of_the_measured_device(void **state)
{
	static char said[8000];
	double published, calibrated, measured;
	(void)state;
	if (run_command(
		    said, sizeof said,
		    "'%s/bench' --toy 'calibrate 0.0001 8192' 'open gpt2-50257' predict 'turn 1' "
		    "2>&1",
		    DOUBLES))
		fail_msg("bench:\n%s", said);
	const char *at = strstr(said, "{\"published_s\": "),
		   *turn = strstr(said, "{\"seconds\": [");
	assert_true(at && turn);
	assert_int_equal(sscanf(at, "{\"published_s\": %lf, \"calibrated_s\": %lf}", &published,
				&calibrated),
			 2);
	assert_int_equal(sscanf(turn, "{\"seconds\": [%lf]", &measured), 1);
	if (!(measured > 20 * published && calibrated > 20 * published))
		fail_msg("published %g s, calibrated %g s, measured %g s", published, calibrated,
			 measured);
}

/* Nobody else would see why an op is slow. */
static void what_the_backend_reports_is_in_the_answers(void **state)
{
	static const char *const commands[] = { "bench' --toy 'open gpt2-50304' 'turn 1' choices",
						"kernels' --toy --only attention_fwd" };
	static char said[8000];
	(void)state;
	for (int i = 0; i < 2; i++) {
		if (run_command(said, sizeof said, "MUSTER_DOUBLE_CUDNN=refuses '%s/%s 2>&1",
				DOUBLES, commands[i]))
			fail_msg("%s:\n%s", commands[i], said);
		assert_non_null(strstr(said, "\"notices\": [\"backend cuda: "));
	}
}

/* Casts move memory, also those that sum columns. */
static void each_cast_has_a_prediction(void **state)
{
	static char said[8000];
	(void)state;
	if (run_command(said, sizeof said, "'%s/kernels' --toy --only fp8_cast 2>&1", DOUBLES))
		fail_msg("kernels:\n%s", said);
	assert_non_null(strstr(said, "with a bias's gradient"));
	assert_non_null(strstr(said, "\"published_s\": "));
	assert_null(strstr(said, "\"published_s\": 0,"));
	assert_null(strstr(said, "\"published_s\": 0}"));
}

static void counts_of(const char *said, int counts[2])
{
	const char *at = strstr(said, "cudnn: ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "cudnn: %d forward, %d backward", &counts[0], &counts[1]), 2);
}

/* Own kernels are the fixed rule for a backward pass: cuDNN runs there only to be compared. */
static void a_calibration_chooses_as_training_does(void **state)
{
	static char said[8000];
	int counts[2];
	(void)state;
	if (run_command(said, sizeof said,
			"MUSTER_DOUBLE_CUDNN=counts '%s/bench' --toy 'calibrate 0.0001 8192' 2>&1",
			DOUBLES))
		fail_msg("bench:\n%s", said);
	counts_of(said, counts);
	assert_true(counts[1] > 0);
}

static int count_words(const char *said, const char *word)
{
	int n = 0;
	for (const char *at = said; (at = strstr(at, word)); at++)
		n++;
	return n;
}

/* Each way has a column. A contest runs cuDNN's 16 times; a column runs a way once, and records it
 * once. The first column has the way that was chosen, which depends on the emulator's speed. */
static void each_way_of_attention_has_its_own_column(void **state)
{
	enum { CONTEST = 16, COLUMN = 2 };
	static char said[8000];
	int counts[2];
	(void)state;
	if (run_command(said, sizeof said,
			"MUSTER_DOUBLE_CUDNN=counts '%s/kernels' --toy --only attention_fwd 2>&1",
			DOUBLES))
		fail_msg("kernels:\n%s", said);
	counts_of(said, counts);
	int rows = count_words(said, "\"chose\": "),
	    chosen = count_words(said, "\"chose\": \"cudnn");
	assert_true(rows > 0);
	assert_int_equal(counts[0], rows * (CONTEST + COLUMN) + chosen * COLUMN);
}

static void wrong_commands_are_answered_with_an_error(void **state)
{
	char said[8000];
	(void)state;
	assert_int_not_equal(run_command(said, sizeof said,
					 "'%s/bench' --toy turn 'open gpt3' 'open gpt2-50257 "
					 "parallel.tp=no' predict 'calibrate no' jump 2>&1",
					 DOUBLES),
			     0);
	int errors = 0;
	for (const char *at = said; (at = strstr(at, "{\"error\": ")); at++)
		errors++;
	assert_int_equal(errors, 6);
}

static void a_report_has_all_its_tables(void **state)
{
	static const char *const parts[] = { "## Checks",           "## Limits",
					     "### gpt2-50304",      "### llama-1b",
					     "## Memory",           "## Kernels",
					     "| adamw |",           "## Predicted beside measured",
					     "| fp8_product |",     "muster, 8 bits |",
					     "muster, any order |", "a wait after each step |",
					     "calibrated, µs" };
	static char said[100000];
	(void)state;
	if (run_command(said, sizeof said,
			"d=$(mktemp -d) && PYTHONPATH= python3 -S '%s/tests/gpu/report' $d --toy "
			"--programs '%s' --parts step,kernels 2>&1 && "
			"cat $d/report.md && python3 -m json.tool $d/report.json >/dev/null; "
			"rc=$?; rm -rf "
			"$d; exit $rc",
			SOURCES, DOUBLES))
		fail_msg("report:\n%s", said);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (!strstr(said, parts[i]))
			fail_msg("the report has no %s:\n%s", parts[i], said);
}

static void without_a_gpu_each_part_is_skipped_by_name(void **state)
{
	char said[8000];
	(void)state;
	int rc = run_command(
		said, sizeof said,
		"d=$(mktemp -d); printf '#!/bin/sh\\nexit 9\\n' >$d/nvidia-smi; chmod +x "
		"$d/nvidia-smi; "
		"PATH=$d:$PATH python3 '%s/tests/gpu/report' $d/x 2>&1; rc=$?; rm -rf $d; exit $rc",
		SOURCES);
	if (rc || !strstr(said, "\n0 passed, 0 failed, 9 skipped\n") ||
	    !strstr(said, "skip   train: "))
		fail_msg("report without a GPU: %d\n%s", rc, said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_is_measured),
		cmocka_unit_test(a_step_is_measured_in_both_ways),
		cmocka_unit_test(a_calibrated_prediction_is_that_of_the_measured_device),
		cmocka_unit_test(what_the_backend_reports_is_in_the_answers),
		cmocka_unit_test(each_cast_has_a_prediction),
		cmocka_unit_test(a_calibration_chooses_as_training_does),
		cmocka_unit_test(each_way_of_attention_has_its_own_column),
		cmocka_unit_test(wrong_commands_are_answered_with_an_error),
		cmocka_unit_test(a_report_has_all_its_tables),
		cmocka_unit_test(without_a_gpu_each_part_is_skipped_by_name),
	};
	return cmocka_run_group_tests_name("make check-gpu, over an emulator", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("make check-gpu, over an emulator")

#endif
