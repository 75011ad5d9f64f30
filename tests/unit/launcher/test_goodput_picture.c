/* Tests the picture of `muster simulate --svg`: what it draws, and that it is XML whatever the names are. */
#include "launcher/goodput/report_svg.h"
#include "tests/unit/launcher/goodput_setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int count(const char *text, const char *word)
{
	int n = 0;
	for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
		n++;
	return n;
}

/* Simulates, and draws into `out`. */
static void draw(struct goodput_report *r, const struct goodput_setup *s, struct buf *out)
{
	struct err e = ERR_INIT;
	r->job = r->job ? r->job : "job";
	r->cluster = r->cluster ? r->cluster : "cluster:16";
	r->devices = 128;
	r->setup = *s;
	r->plan = (struct goodput_plan){ .runs = 3, .seed = 1 };
	buf_clear(out);
	if (goodput_report_make(r, &e) || goodput_report_svg(r, out, &e))
		fail_msg("%s", e.text);
	goodput_report_close(r);
}

/* The sum of the numbers that follow the word in each line that has both. */
static double sum_of(const char *text, const char *with, const char *word)
{
	double sum = 0;
	for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		char one[1000];
		snprintf(one, sizeof one, "%.*s", (int)(end - line), line);
		const char *at = strstr(one, with) ? strstr(one, word) : NULL;
		sum += at ? strtod(at + strlen(word), NULL) : 0;
	}
	return sum;
}

static void each_day_is_a_column_and_each_fault_a_mark(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_report *r = calloc(1, sizeof *r);
	struct buf out = BUF_INIT;
	f.n = 2;
	f.of[1] = f.of[0];
	strcpy(f.of[1].name, "second");
	s.seconds = 54 * day;
	draw(r, &s, &out);
	const char *svg = buf_str(&out);
	assert_int_equal(count(svg, "<title>days "), 54);
	assert_int_equal(count(svg, "went, each day; the axis begins at 9"), 1);
	/* A path of marks has an M for each. */
	assert_int_equal(count(svg, "class=\"mark\""), 2);
	int marks = 0;
	for (const char *at = svg; (at = strstr(at, "class=\"mark\"")); at++)
		for (const char *c = at; *c != '\n'; c++)
			marks += *c == 'M';
	assert_in_range(marks, 0.9 * (double)r->sum.first.all_faults, r->sum.first.all_faults);
	/* The comparison: a bar is as long as its share. */
	assert_int_equal(count(svg, ">muster with the job's settings; each other launcher with "),
			 1);
	assert_int_equal(count(svg, ">torchrun, every "), 1);
	assert_int_equal(count(svg, ">nvrx-in-process, every "), 1);
	double bars = sum_of(svg, "<title>trained", "width=\""), shares = r->sum.effective;
	for (int i = 0; i < r->launchers.n; i++)
		shares += r->launchers.of[i].sum.effective;
	assert_float_equal(bars / shares, SVG_PLOT - 260, 1);
	/* Each column is filled: all that is filled, without the background, the bars and the legend. */
	double filled = sum_of(svg, "fill=\"#", "height=\"") -
			sum_of(svg, "fill=\"#fff\"", "height=\"") -
			26 * count(svg, " %</title></rect>") - 20 * count(svg, "height=\"20\"");
	assert_float_equal(filled, 340 * 54, 54);
	buf_fini(&out);
	free(r);
}

static void columns_have_round_times(void **state)
{
	(void)state;
	assert_float_equal(goodput_svg_column(54 * day), day, 0);
	assert_float_equal(goodput_svg_column(20 * day), 6 * hour, 0);
	assert_float_equal(goodput_svg_column(365 * day), 7 * day, 0);
	assert_float_equal(goodput_svg_column(hour), 60, 0);
	for (double seconds = 1; seconds < 1e11; seconds *= 1.7)
		assert_in_range(seconds / goodput_svg_column(seconds), 15, 81);
}

/* Columns of 100 s: the first one loses 1 %, the second one 3 %, the last one half of its time. */
static double axis_of(int columns, double end)
{
	struct buf out = BUF_INIT;
	struct goodput_report *r = calloc(1, sizeof *r);
	struct svg_sheet h = { .r = r, .out = &out, .end = end };
	assert_int_equal(goodput_timeline_open(&h.run, &r->history, 100, columns, NULL), 0);
	for (int i = 0; i < columns; i++) {
		double lasts = fmin(100, end - 100 * i),
		       lost = i == columns - 1 ? lasts / 2 : 1 + 2 * i;
		h.run.columns[i][GOODPUT_LOST] = lost;
		h.run.columns[i][GOODPUT_TRAINED] = lasts - lost;
	}
	goodput_svg_columns(&h, 0);
	const char *at = strstr(buf_str(&out), "the axis begins at ");
	double low = at ? strtod(at + strlen("the axis begins at "), NULL) : -1;
	goodput_timeline_close(&h.run);
	buf_fini(&out);
	free(r);
	return low;
}

static void a_short_last_column_does_not_decide_the_axis(void **state)
{
	(void)state;
	assert_float_equal(axis_of(3, 240), 95, 1e-9);
	assert_float_equal(axis_of(3, 260), 0, 1e-9);
	assert_float_equal(axis_of(1, 40), 0, 1e-9);
}

static void hostile_names_stay_xml(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_report *r = calloc(1, sizeof *r);
	struct buf out = BUF_INIT;
	strcpy(f.name, "<n>&\"'");
	strcpy(f.of[0].name, "<k>\303\251 maintenance");
	strcpy(f.of[0].doc, "]]><!-- \001");
	r->job = "<script>\033\377\357\277\277&</title>";
	r->cluster = "</text></svg>";
	draw(r, &s, &out);
	const char *svg = buf_str(&out);
	static const char *const absent[] = { "<script", "<n>",  "<k>",   "<!--",  "\033",
					      "\001",    "\377", "\"nan", "\"inf", "\357\277\277" };
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
		if (strstr(svg, absent[i]))
			fail_msg("%s", absent[i]);
	assert_int_equal(count(svg, "<svg"), 1);
	assert_int_equal(count(svg, "</svg>"), 1);
	assert_int_equal(count(svg, "<text"), count(svg, "</text>"));
	assert_int_equal(count(svg, "<title>"), count(svg, "</title>"));
	assert_int_equal(count(svg, "<g>"), count(svg, "</g>"));
	assert_int_equal(count(svg, "&#60;k&#62;\303\251 maintenance"), 1);
	/* A long name is cut. */
	r->job = "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj";
	memset(&r->settings, 0, sizeof r->settings);
	memset(&r->costs, 0, sizeof r->costs);
	memset(&r->launchers, 0, sizeof r->launchers);
	draw(r, &s, &out);
	assert_int_equal(count(buf_str(&out), ">jjjjjjjjjjjjjjjjjjjjjjjjjjjj… on "), 2);
	buf_fini(&out);
	free(r);
}

/* Without --days; without faults; with more kinds than rows. */
static void any_run_can_be_drawn(void **state)
{
	(void)state;
	struct goodput_faults none = { 0 }, many = { .n = GOODPUT_KINDS };
	struct goodput_setup s = make_setup(&none);
	struct buf out = BUF_INIT;
	struct goodput_report *r = calloc(3, sizeof *r);
	s.seconds = 0;
	s.steps = 1000;
	draw(&r[0], &s, &out);
	assert_int_equal(count(buf_str(&out), "It had no faults"), 1);
	assert_int_equal(count(buf_str(&out), "class=\"row\""), 0);
	assert_int_equal(count(buf_str(&out), "<title>minutes "), 35); /* of 2,061 s */
	for (int i = 0; i < GOODPUT_KINDS; i++) {
		many.of[i] = only(SHOWS_CLOSED, 16, 200 * hour, 0).of[0];
		snprintf(many.of[i].name, sizeof many.of[i].name, "kind-%d", i);
	}
	s = make_setup(&many);
	draw(&r[1], &s, &out);
	assert_int_equal(count(buf_str(&out), "class=\"row\""), 25);
	assert_int_equal(count(buf_str(&out), ">others<"), 1);
	assert_float_equal(sum_of(buf_str(&out), "class=\"count\"", "\"count\">"),
			   r[1].sum.first.all_faults, 0);
	/* All of the time may be lost. */
	const struct goodput_faults hang = only(SHOWS_HANG, 16, hour, 0);
	s = make_setup(&hang);
	s.costs.hang = 1e9;
	draw(&r[2], &s, &out);
	assert_int_equal(count(buf_str(&out), "the axis begins at 0 %"), 1);
	buf_fini(&out);
	free(r);
}

static void a_run_that_would_not_end_is_refused(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10, 0);
	struct goodput_report *r = calloc(1, sizeof *r);
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	r->job = r->cluster = "x";
	r->setup = make_setup(&f);
	r->setup.seconds = 0;
	r->setup.steps = 1000;
	r->plan = (struct goodput_plan){ .runs = 1, .seed = 1 };
	assert_int_equal(goodput_report_make(r, &e), 0);
	assert_int_equal(goodput_report_svg(r, &out, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "give --days"));
	goodput_report_close(r);
	buf_fini(&out);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_day_is_a_column_and_each_fault_a_mark),
		cmocka_unit_test(columns_have_round_times),
		cmocka_unit_test(a_short_last_column_does_not_decide_the_axis),
		cmocka_unit_test(hostile_names_stay_xml),
		cmocka_unit_test(any_run_can_be_drawn),
		cmocka_unit_test(a_run_that_would_not_end_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
