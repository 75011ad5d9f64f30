/* The quick reader gives the numbers that a JSON parser gives, bit for bit, and skips lines that are
 * cut or damaged. */
#include "base/file.h"
#include "base/segments.h"
#include "launcher/rundir/rundir.h"
#include "launcher/rundir/scan.h"
#include "launcher/rundir/tail.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void write_text(uint32_t number, const char *text)
{
	char path[RUN_PATH];
	segments_path(path, dir, RUN_METRICS, number);
	assert_int_equal(file_replace(path, text, strlen(text), NULL), 0);
}

static const char *const keys[] = { "step", "loss", "generation" };
enum { STEP, LOSS, GENERATION, KEYS };

/* Every number is formatted as muster does it, read back, and has its bits. */
static void numbers_keep_their_bits(void **state)
{
	(void)state;
	struct rundir_scan s;
	uint64_t dice = 88172645463325252u;
	int quick = 0;
	rundir_scan_init(&s, keys, KEYS);
	for (int i = 0; i < 300000; i++) {
		double v, values[KEYS];
		char line[128];
		dice ^= dice << 13;
		dice ^= dice >> 7;
		dice ^= dice << 17;
		if (i % 3) /* like losses and times: exponents that the quick way takes */
			v = ldexp((double)(int64_t)dice, (int)(dice % 40) - 60);
		else
			memcpy(&v, &dice, sizeof v);
		if (!isfinite(v))
			continue;
		int n = snprintf(line, sizeof line, "{\"x\":1,\"loss\":%.*g}", i % 2 ? 17 : 9, v);
		assert_true(rundir_scan_line(&s, line, (size_t)n, values));
		double right = strtod(strchr(line + 7, ':') + 1, NULL);
		if (memcmp(&values[LOSS], &right, sizeof right))
			fail_msg("%s: %.17g", line, values[LOSS]);
		quick++;
	}
	assert_true(quick > 200000);
}

static void lines_are_whole_objects_or_refused(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *line;
		bool whole;
		double step, loss; /* NAN: missing */
	} rows[] = {
		{ "{\"step\":1,\"loss\":2.5}", true, 1, 2.5 },
		{ " { \"loss\" : -2.5e-3 , \"step\" : 7 } \r", true, 7, -2.5e-3 },
		{ "{}", true, NAN, NAN },
		{ "{\"step\":1,\"loss\":null}", true, 1, NAN },
		{ "{\"step\":1,\"loss\":\"2\"}", true, 1, NAN },
		{ "{\"a\":\"}{\\\"\",\"b\":[{\"loss\":1},\"]\"],\"step\":3,\"c\":{\"step\":9},\"loss\":4}", true, 3, 4 },
		{ "{\"b\":\"\\\\\",\"step\":3,\"d\":true,\"e\":false}", true, 3, NAN },
		{ "{\"step\":1,\"step\":2}", true, 2, NAN },
		{ "{\"step\":1,\"loss\":2.5", false, 0, 0 },
		{ "{\"step\":1,\"loss\":2.", false, 0, 0 },
		{ "{\"step\":1,\"loss\":2.}", false, 0, 0 },
		{ "{\"step\":1,\"loss\":}", false, 0, 0 },
		{ "{\"step\":1,\"lo", false, 0, 0 },
		{ "{\"step\":1,}", false, 0, 0 },
		{ "{\"step\":1}x", false, 0, 0 },
		{ "{\"step\":1e}", false, 0, 0 },
		{ "{\"step\":-}", false, 0, 0 },
		{ "{\"step\" 1}", false, 0, 0 },
		{ "{\"a\":[1,2}", false, 0, 0 },
		{ "{\"a\":\"\\\"}", false, 0, 0 },
		{ "[1]", false, 0, 0 },
		{ "{", false, 0, 0 },
		{ "", false, 0, 0 },
		{ "step", false, 0, 0 },
	};
	/* clang-format on */
	struct rundir_scan s;
	rundir_scan_init(&s, keys, KEYS);
	for (int twice = 0; twice < 2; twice++)
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			double v[KEYS];
			bool whole = rundir_scan_line(&s, rows[i].line, strlen(rows[i].line), v);
			if (whole != rows[i].whole)
				fail_msg("%s: %d", rows[i].line, whole);
			if (whole &&
			    !((v[STEP] == rows[i].step ||
			       (isnan(v[STEP]) && isnan(rows[i].step))) &&
			      (v[LOSS] == rows[i].loss || (isnan(v[LOSS]) && isnan(rows[i].loss)))))
				fail_msg("%s: %g %g", rows[i].line, v[STEP], v[LOSS]);
		}
}

struct seen {
	int lines;
	double steps, generation;
};

static void see(void *arg, const double *values)
{
	struct seen *s = arg;
	s->lines++;
	s->steps = s->steps * 10 + values[STEP];
	s->generation = values[GENERATION];
}

#define HEAD(version) \
	"{\"format\":\"muster/metrics\",\"version\":" version \
	",\"time\":1,\"mono\":1,\"generation\":1}\n"

static void all_segments_are_scanned_and_damage_is_counted(void **state)
{
	(void)state;
	struct seen s = { 0 };
	int64_t damaged = -1;
	assert_int_equal(rundir_metrics_scan(dir, keys, KEYS, see, &s, &damaged, NULL), 0);
	assert_int_equal(s.lines, 0);
	assert_int_equal(damaged, 0);
	write_text(1,
		   HEAD("1") "{\"step\":1,\"generation\":1}\n{\"step\":2,\"gen\n\n{\"step\":2}\n");
	write_text(2, "{\"step\":3}\n\x80\n");
	write_text(0, HEAD("1") "{\"step\":4,\"generation\":2}\n{\"step\":5");
	assert_int_equal(rundir_metrics_scan(dir, keys, KEYS, see, &s, &damaged, NULL), 0);
	assert_int_equal(s.lines, 4);
	assert_true(s.steps == 1234 && s.generation == 2);
	assert_int_equal(damaged, 3);
}

static void a_newer_format_is_refused(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct rundir *run;
	struct err e = ERR_INIT;
	int64_t damaged = 0;
	write_text(0, HEAD("2") "{\"step\":1}\n");
	assert_int_equal(rundir_metrics_scan(dir, keys, KEYS, see, &s, &damaged, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "a newer muster wrote the file (version 2"));
	assert_int_equal(rundir_open(dir, ".", &run, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
}

static void tail_is(int n, const char *expected)
{
	struct buf out = BUF_INIT;
	assert_int_equal(rundir_tail(dir, RUN_METRICS, n, &out, NULL), 0);
	assert_string_equal(buf_str(&out), expected);
	buf_fini(&out);
}

static void the_last_lines_are_found_from_the_end(void **state)
{
	(void)state;
	tail_is(3, "");
	write_text(1, HEAD("1") "{\"step\":1}\n{\"step\":2}\n");
	write_text(0, HEAD("1") "{\"step\":3}\n\n{\"step\":4}\n{\"st");
	tail_is(1, "{\"step\":4}\n");
	tail_is(2, "{\"step\":3}\n{\"step\":4}\n");
	tail_is(3, "{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
	tail_is(9, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
	/* Lines that are longer than what is read at first. */
	struct buf text = BUF_INIT;
	char *blanks = malloc(100001);
	memset(blanks, ' ', 100000);
	blanks[100000] = '\0';
	for (int i = 0; i < 5; i++)
		buf_printf(&text, "{\"step\":%d}%s\n", i, blanks);
	write_text(0, buf_str(&text));
	struct buf out = BUF_INIT;
	assert_int_equal(rundir_tail(dir, RUN_METRICS, 2, &out, NULL), 0);
	assert_int_equal(out.len, 2 * (100000 + 11));
	assert_memory_equal(out.data, "{\"step\":3}", 10);
	buf_fini(&out);
	buf_fini(&text);
	free(blanks);
}

/* A file without newlines must not come into memory as a whole. */
static void the_end_is_searched_up_to_a_bound(void **state)
{
	(void)state;
	char path[RUN_PATH];
	write_text(0, "{\"step\":1}\n");
	segments_path(path, dir, RUN_METRICS, 0);
	assert_int_equal(truncate(path, 80 << 20), 0);
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	fputs("\n{\"step\":2}\n", f);
	fclose(f);
	tail_is(3, "{\"step\":2}\n");
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(numbers_keep_their_bits),
		EACH(lines_are_whole_objects_or_refused),
		EACH(all_segments_are_scanned_and_damage_is_counted),
		EACH(a_newer_format_is_refused),
		EACH(the_last_lines_are_found_from_the_end),
		EACH(the_end_is_searched_up_to_a_bound),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
