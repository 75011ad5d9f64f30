/* The pieces of a report: no value is lost when a series is reduced, an axis names round values
 * that lie on it, and nothing from a file can become markup. */
#include "launcher/report/page.h"
#include "launcher/report/parts.h"
#include "launcher/report/plot.h"
#include "launcher/report/sample.h"
#include "launcher/report/scale.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* --- Samples ------------------------------------------------------------------------- */

static void a_short_series_is_kept_as_it_is(void **state)
{
	(void)state;
	const double x[] = { 1, 2, 4, 9 }, y[] = { 5, NAN, -2, INFINITY };
	struct sample out[8];
	assert_int_equal(report_sample(x, y, 4, 8, out), 2);
	assert_true(out[0].first == 1 && out[0].last == 1 && out[0].mean == 5 && out[0].n == 1);
	assert_true(out[1].first == 4 && out[1].least == -2 && out[1].most == -2);
	assert_int_equal(report_sample(x, y, 0, 8, out), 0);
	assert_int_equal(report_sample(x, y, 4, 0, out), 0);
}

static void no_spike_is_lost_in_a_long_series(void **state)
{
	(void)state;
	enum { N = 100000, PARTS = 300 };
	double *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
	struct sample *out = calloc(PARTS, sizeof *out);
	assert_true(x && y && out);
	for (int spike = 1; spike < N; spike += 9973) {
		double least = INFINITY, most = -INFINITY, sum = 0;
		size_t values = 0;
		for (int i = 0; i < N; i++) {
			x[i] = i + 1;
			y[i] = sin(i * 0.01);
		}
		y[spike] = 1e6;
		y[spike - 1] = -1e6;
		size_t n = report_sample(x, y, N, PARTS, out);
		assert_int_equal(n, PARTS);
		for (size_t i = 0; i < n; i++) {
			least = fmin(least, out[i].least);
			most = fmax(most, out[i].most);
			values += out[i].n;
			sum += out[i].mean * (double)out[i].n;
			assert_true(out[i].first <= out[i].last);
			assert_true(!i || out[i].first > out[i - 1].last);
			assert_true(out[i].least <= out[i].mean && out[i].mean <= out[i].most);
		}
		assert_true(least == -1e6 && most == 1e6);
		assert_int_equal(values, N);
		double whole = 0;
		for (int i = 0; i < N; i++)
			whole += y[i];
		assert_true(fabs(sum - whole) < 1e-3);
	}
	free(x);
	free(y);
	free(out);
}

static void the_recent_value_is_a_median(void **state)
{
	(void)state;
	const double y[] = { 1000, 3, NAN, 1, 2, 900, 2 };
	assert_true(report_recent(y, 7, 5) == 2);
	assert_true(report_recent(y, 7, 2) == 451);
	assert_true(isnan(report_recent(y, 0, 5)));
	double least, most;
	report_range(y, 7, &least, &most);
	assert_true(least == 1 && most == 1000);
	report_range(y + 2, 1, &least, &most);
	assert_true(isnan(least) && isnan(most));
}

/* --- Scales --------------------------------------------------------------------------- */

static void ticks_are_round_and_lie_on_the_scale(void **state)
{
	(void)state;
	srand(5);
	for (int round = 0; round < 20000; round++) {
		double a = ldexp(rand() - RAND_MAX / 2, rand() % 80 - 60), ticks[SCALE_TICKS];
		double b = a + fabs(ldexp(rand(), rand() % 80 - 60)) * (round % 7 != 0);
		int most = 2 + rand() % 10;
		struct scale s = report_scale(a, b, round % 2);
		assert_true(isfinite(s.lo) && isfinite(s.hi) && s.lo < s.hi);
		assert_true(s.lo <= a + 1e-6 * (s.hi - s.lo) && s.hi >= b - 1e-6 * (s.hi - s.lo));
		int n = report_scale_ticks(&s, most, ticks);
		assert_true(n >= 0 && n <= most);
		for (int i = 0; i < n; i++) {
			double at = report_scale_at(&s, ticks[i]);
			assert_true(at >= 0 && at <= 1);
			assert_true(!i || ticks[i] > ticks[i - 1]);
		}
	}
}

static void an_axis_names_the_values_that_people_expect(void **state)
{
	(void)state;
	double ticks[SCALE_TICKS];
	struct scale s = report_scale(2.67, 5.5, true);
	assert_true(near(s.lo, 2) && near(s.hi, 6));
	assert_int_equal(report_scale_ticks(&s, 6, ticks), 5);
	for (int i = 0; i < 5; i++)
		assert_true(near(ticks[i], 2 + i));
	s = report_scale(1, 518400, false);
	assert_int_equal(report_scale_ticks(&s, 7, ticks), 5);
	assert_true(near(ticks[0], 100000) && near(ticks[4], 500000));
	/* A single value, and none, still have a scale. */
	s = report_scale(3, 3, true);
	assert_true(s.lo < 3 && s.hi > 3);
	s = report_scale(NAN, NAN, true);
	assert_true(s.lo == 0 && s.hi == 1);
	s = report_scale(-INFINITY, 4, true);
	assert_true(s.lo == 0 && s.hi == 1);
	s = report_scale(-1.7e308, 1.7e308, true);
	assert_true(isfinite(s.lo) && isfinite(s.hi));
	s = report_scale(0, 10, false);
	assert_true(report_scale_at(&s, 5) == 0.5);
	assert_true(report_scale_at(&s, -5) == 0 && report_scale_at(&s, 15) == 1);
	assert_true(report_scale_at(&s, NAN) == 0);
}

/* --- Text ----------------------------------------------------------------------------- */

static const char *escaped(const char *text)
{
	static struct buf out = BUF_INIT;
	buf_clear(&out);
	report_text(&out, text);
	return buf_str(&out);
}

static void nothing_from_a_file_becomes_markup(void **state)
{
	(void)state;
	assert_string_equal(
		escaped("<script>alert('a & \"b\"')</script>"),
		"&#60;script&#62;alert(&#39;a &#38; &#34;b&#34;&#39;)&#60;/script&#62;");
	assert_string_equal(escaped("ünïcödé 漢 🙂"), "ünïcödé 漢 🙂");
	assert_string_equal(escaped(NULL), "");
	assert_string_equal(escaped("a\x01\x1b[2Jb\x7f\tc\nd"), "a  [2Jb  c\nd");
	/* Not UTF-8: cut, overlong, a surrogate, too large, a control character, a direction mark. */
	assert_string_equal(escaped("\xc3"), "\xef\xbf\xbd");
	assert_string_equal(escaped("\xc0\xbc"), "\xef\xbf\xbd\xef\xbf\xbd");
	assert_string_equal(escaped("\xe0\x80\xbc"
				    "x"),
			    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx");
	assert_null(strstr(escaped("\xed\xa0\x80"), "\xed"));
	assert_null(strstr(escaped("\xf4\x90\x80\x80"), "\xf4"));
	assert_null(strstr(escaped("\xc2\x85"), "\xc2\x85"));
	assert_null(strstr(escaped("\xe2\x80\xae"), "\xe2\x80\xae"));
	struct buf out = BUF_INIT;
	report_text_cut(&out, "ääää", 3);
	assert_string_equal(buf_str(&out), "ää…");
	buf_fini(&out);
}

static void any_bytes_are_harmless(void **state)
{
	(void)state;
	char text[65];
	srand(9);
	for (int round = 0; round < 20000; round++) {
		for (int i = 0; i < 64; i++)
			text[i] = (char)(1 + rand() % 255);
		text[64] = '\0';
		for (const char *s = escaped(text); *s; s++)
			assert_null(strchr("<>\"'", *s));
	}
}

/* --- Numbers --------------------------------------------------------------------------- */

static void numbers_are_written_for_people(void **state)
{
	(void)state;
	char w[REPORT_WORD];
	assert_string_equal(report_count(0, w), "0");
	assert_string_equal(report_count(999, w), "999");
	assert_string_equal(report_count(518400, w), "518,400");
	assert_string_equal(report_count(INT64_MIN, w), "-9,223,372,036,854,775,808");
	assert_string_equal(report_duration(0.0413, w), "41.3 ms");
	assert_string_equal(report_duration(59.7, w), "1 min 0 s");
	assert_string_equal(report_duration(3599.9, w), "1 h 0 min");
	assert_string_equal(report_duration(30 * 86400 + 4 * 3600, w), "30 d 4 h");
	assert_string_equal(report_duration(NAN, w), "–");
	assert_string_equal(report_after(0.00002, w), "0 s");
	assert_string_equal(report_percent(0.973, w), "97.3 %");
	assert_string_equal(report_percent(0.0006, w), "0.06 %");
	assert_string_equal(report_percent(INFINITY, w), "–");
	assert_string_equal(report_value(2.31300001, w), "2.313");
	assert_string_equal(report_value(-INFINITY, w), "–");
	assert_string_equal(report_hours(3600.0 * 383478, w), "383,478");
	assert_string_equal(report_device_time(7200, w), "2 h");
	assert_string_equal(report_device_time(31.4, w), "31.4 s");
	assert_string_equal(report_time(1700000000, w), "2023-11-14 22:13:20");
	assert_string_equal(report_time(NAN, w), "–");
	assert_string_equal(report_time(1e300, w), "–");
}

static void an_exact_number_is_read_back_as_the_same(void **state)
{
	(void)state;
	char w[REPORT_WORD];
	srand(3);
	for (int i = 0; i < 100000; i++) {
		double v = ldexp((double)rand() * RAND_MAX + rand(), rand() % 200 - 130);
		assert_true(strtod(report_exact(v, w), NULL) == v);
	}
	assert_string_equal(report_exact(0.1, w), "0.1");
	assert_string_equal(report_exact(NAN, w), "null");
}

/* --- Parts and plots ---------------------------------------------------------------------- */

static void every_part_of_time_is_in_the_stack_once(void **state)
{
	(void)state;
	int seen[TIME_PART_COUNT] = { 0 };
	for (int i = 0; i < TIME_PART_COUNT; i++) {
		seen[report_parts[i]]++;
		assert_true(*report_part_word(report_parts[i]));
	}
	for (int i = 0; i < TIME_PART_COUNT; i++)
		assert_int_equal(seen[i], 1);
}

static void a_bar_is_filled_to_its_end(void **state)
{
	(void)state;
	double values[TIME_PART_COUNT] = { 0 }, sum = 0;
	struct buf out = BUF_INIT;
	for (int i = 0; i < TIME_PART_COUNT; i += 2)
		values[i] = i + 1;
	values[1] = NAN;
	report_part_bar(&out, "a <b>", values);
	for (const char *s = buf_str(&out); (s = strstr(s, " width=\"")); s++)
		sum += atof(s + 8);
	assert_true(fabs(sum - 1000) < 0.2);
	assert_non_null(strstr(buf_str(&out), "a &#60;b&#62;, compute"));
	buf_fini(&out);
}

static void a_plot_places_its_labels_and_draws_many_marks_short(void **state)
{
	(void)state;
	double marks[20];
	struct buf out = BUF_INIT;
	const struct plot p = { .label = "l",
				.x_name = "step",
				.x = report_scale(0, 100, false),
				.y = report_scale(0, 10, false),
				.x_format = report_rate,
				.y_format = report_rate,
				.height = 100 };
	for (int i = 0; i < 20; i++)
		marks[i] = i * 5;
	report_plot_open(&out, &p);
	report_plot_marks(&out, &p, marks, 20);
	report_plot_close(&out, &p);
	assert_non_null(strstr(buf_str(&out), "top:0.00%\">10<"));
	assert_non_null(strstr(buf_str(&out), "left:100.00%\">100<"));
	assert_non_null(strstr(buf_str(&out), "class=\"mark many\" d=\"M0.0 285V300M50.0 285V300"));
	buf_clear(&out);
	report_plot_marks(&out, &p, marks, 2);
	assert_string_equal(buf_str(&out), "<path class=\"mark\" d=\"M0.0 0V300M50.0 0V300\"/>\n");
	buf_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_series_is_kept_as_it_is),
		cmocka_unit_test(no_spike_is_lost_in_a_long_series),
		cmocka_unit_test(the_recent_value_is_a_median),
		cmocka_unit_test(ticks_are_round_and_lie_on_the_scale),
		cmocka_unit_test(an_axis_names_the_values_that_people_expect),
		cmocka_unit_test(nothing_from_a_file_becomes_markup),
		cmocka_unit_test(any_bytes_are_harmless),
		cmocka_unit_test(numbers_are_written_for_people),
		cmocka_unit_test(an_exact_number_is_read_back_as_the_same),
		cmocka_unit_test(every_part_of_time_is_in_the_stack_once),
		cmocka_unit_test(a_bar_is_filled_to_its_end),
		cmocka_unit_test(a_plot_places_its_labels_and_draws_many_marks_short),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
