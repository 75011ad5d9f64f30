/* Timelines: their times, their JSON, and the content of the drawings. */
#include "plan/show/draw_timeline.h"
#include "tests/unit/plan/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct timeline timeline_of(enum job_schedule kind, int pp, int micros)
{
	double one[STAGES_MAX];
	struct timeline t = { 0 };
	struct schedule s = table(kind, pp, micros);
	for (int i = 0; i < STAGES_MAX; i++)
		one[i] = 1;
	assert_true(
		schedule_simulate(&s,
				  &(struct sched_costs){
					  .forward = one, .input = one, .weight = one, .hop = 0 },
				  &t, NULL) > 0);
	schedule_free(&s);
	return t;
}

static const char *text_of(const struct timeline *t, int width, bool colour, struct buf *out)
{
	struct drawing d = { .title = "a table",
			     .parts = { { .name = "simulated", .timeline = t } },
			     .n_parts = 1 };
	show_draw_text(&d, width, colour, out);
	return buf_str(out);
}

static void a_table_is_drawn_to_scale(void **state)
{
	static const char *const picture = "a table\n\n"
					   "simulated: 12.0 s, bubble 25.0 %\n"
					   " 0 F0--F1--········B0------F2--B1------····B2------\n"
					   " 1 ····F0--B0------F1--B1------F2--B2------········\n"
					   "   F forward   B backward   · waiting\n";
	(void)state;
	struct timeline t = timeline_of(SCHEDULE_1F1B, 2, 3);
	struct buf out = BUF_INIT;
	assert_string_equal(text_of(&t, 51, false, &out), picture);
	buf_fini(&out);
	timeline_free(&t);
}

static void chunks_and_halves_have_letters_of_their_own(void **state)
{
	static const char *const picture =
		"a table\n\n"
		"simulated: 19.0 s, bubble 5.3 %\n"
		" 0 F0-F1-F2-f0-b0-w0-f1-b1-w1-B0-W0-f2-b2-w2-B1-W1-B2-W2-···\n"
		" 1 ···F0-f0-F1-f1-b0-w0-B0-W0-F2-f2-b1-w1-B1-b2-B2-W1-w2-W2-\n"
		"   F forward   B backward, input   W backward, weights   · waiting\n"
		"   upper case: even chunks; lower case: odd ones\n";
	(void)state;
	struct timeline t = timeline_of(SCHEDULE_ZB_V, 2, 3);
	struct buf out = BUF_INIT;
	assert_string_equal(text_of(&t, 60, false, &out), picture);
	buf_fini(&out);
	timeline_free(&t);
}

/* The columns that a terminal shows: UTF-8 characters without escapes. */
static int columns_of(const char *line, const char *end)
{
	int n = 0;
	for (; line < end; line++) {
		if (*line == '\033')
			line = strchr(line, 'm');
		else
			n += ((unsigned char)*line & 0xc0) != 0x80;
	}
	return n;
}

static void no_line_is_wider_than_the_terminal(void **state)
{
	(void)state;
	for (int colour = 0; colour < 2; colour++)
		for (int width = 40; width <= 200; width += 7)
			for (int f = 0; f < n_forms; f++) {
				struct timeline t = timeline_of(forms[f].kind, 5, 11);
				struct buf out = BUF_INIT;
				const char *at = text_of(&t, width, colour, &out);
				int rows = 0;
				for (const char *end; (end = strchr(at, '\n')); at = end + 1) {
					bool row = end - at > 3 && at[0] == ' ' && at[1] >= '0' &&
						   at[1] <= '4' && at[2] == ' ';
					rows += row;
					if (row && columns_of(at, end) > width)
						fail_msg("%d columns of %d: %.*s",
							 columns_of(at, end), width,
							 (int)(end - at), at);
				}
				assert_int_equal(rows, 5);
				buf_fini(&out);
				timeline_free(&t);
			}
}

static void a_cut_drawing_says_so(void **state)
{
	(void)state;
	struct timeline t = timeline_of(SCHEDULE_GPIPE, 4, 40);
	struct buf out = BUF_INIT;
	assert_non_null(strstr(text_of(&t, 80, false, &out),
			       "cut at 19.2 s of 129 s: a wider terminal shows more"));
	buf_clear(&out);
	assert_null(strstr(text_of(&t, 2000, false, &out), "cut at"));
	buf_fini(&out);
	timeline_free(&t);
}

static void only_the_ends_of_many_ranks_are_shown(void **state)
{
	struct timeline t = { .ranks = 1000, .chunks = 1 };
	struct buf out = BUF_INIT;
	(void)state;
	for (int r = 0; r < 1000; r++)
		assert_int_equal(timeline_add(&t, &(struct timeline_event){ r, SCHED_FORWARD, 0, 0,
									    r, r + 1 }),
				 0);
	const char *text = text_of(&t, 80, false, &out);
	assert_non_null(strstr(text, "960 ranks between"));
	assert_non_null(strstr(text, "\n 999 "));
	assert_null(strstr(text, "\n 500 "));
	buf_fini(&out);
	timeline_free(&t);
}

static void a_number_that_does_not_fit_is_left_out(void **state)
{
	struct timeline t = { .ranks = 1, .chunks = 1 };
	struct buf out = BUF_INIT;
	(void)state;
	/* 123 in one column of 37 would read as 1. */
	assert_int_equal(
		timeline_add(&t, &(struct timeline_event){ 0, SCHED_FORWARD, 0, 123, 0, 1 }), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(timeline_add(&t,
					      &(struct timeline_event){ 0, SCHED_BACKWARD, 0, 7,
									1 + 20 * i, 21 + 20 * i }),
				 0);
	const char *text = text_of(&t, 40, false, &out);
	assert_null(strstr(text, "F1 "));
	assert_null(strstr(text, "F1B"));
	buf_fini(&out);
	timeline_free(&t);
}

static int count(const char *text, const char *what)
{
	int n = 0;
	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static void the_svg_has_every_pass(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++) {
		struct timeline t = timeline_of(forms[f].kind, 4, 8);
		struct drawing d = { .title = "<a & \"b\">",
				     .parts = { { .name = "simulated", .timeline = &t },
						{ .name = "measured", .timeline = &t } },
				     .n_parts = 2 };
		struct buf out = BUF_INIT;
		show_draw_svg(&d, &out);
		const char *text = buf_str(&out);
		assert_false(buf_failed(&out));
		assert_int_equal(count(text, "</title></rect>"), 2 * t.n);
		assert_int_equal(count(text, ">rank 3<"), 2);
		assert_non_null(strstr(text, "&#60;a &#38; &#34;b&#34;&#62;"));
		assert_int_equal(strncmp(text, "<svg ", 5), 0);
		assert_string_equal(text + strlen(text) - 7, "</svg>\n");
		buf_fini(&out);
		timeline_free(&t);
	}
}

static void names_of_any_bytes_stay_xml(void **state)
{
	(void)state;
	static const struct {
		const char *text, *xml;
	} cases[] = {
		{ "a <b> & \"c\"", "a &#60;b&#62; &#38; &#34;c&#34;" },
		{ "caf\303\251 \346\274\242 \360\237\230\200",
		  "caf\303\251 \346\274\242 \360\237\230\200" },
		{ "a\033\001\tb\177", "a???b?" },
		{ "\377\303z\346\274", "??z??" },
		{ "\357\277\276\357\277\277\357\277\275", "??\357\277\275" },
		{ "", "" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf out = BUF_INIT;
		show_svg_escape(&out, cases[i].text);
		assert_string_equal(buf_str(&out), cases[i].xml);
		buf_fini(&out);
	}
}

/* The columns hold all seconds of the passes, by kind and parity of the chunk. */
static void merged_passes_keep_their_seconds(void **state)
{
	enum { COLUMNS = 37 };
	(void)state;
	for (int f = 0; f < n_forms; f++) {
		struct timeline t = timeline_of(forms[f].kind, 4, 8);
		double end = timeline_end(&t), sum[SCHED_OPS][2] = { { 0 } };
		struct draw_column *all = calloc((size_t)t.ranks * COLUMNS, sizeof *all);
		assert_non_null(all);
		show_draw_merge(&t, end, COLUMNS, all);
		for (int i = 0; i < t.n; i++)
			sum[t.events[i].op][t.events[i].chunk % 2] += t.events[i].end -
								      t.events[i].begin;
		for (int op = 0; op < SCHED_OPS; op++)
			for (int odd = 0; odd < 2; odd++) {
				double drawn = 0;
				for (int c = 0; c < t.ranks * COLUMNS; c++)
					drawn += all[c].share[op][odd] * end / COLUMNS;
				near(drawn, sum[op][odd]);
			}
		free(all);
		timeline_free(&t);
	}
}

/* Rank 1 has less work: it waits for longer than the bubble. */
static void the_bubble_is_the_busiest_ranks(void **state)
{
	(void)state;
	struct timeline t = { .ranks = 2, .chunks = 1 };
	struct buf out = BUF_INIT;
	assert_int_equal(timeline_add(&t, &(struct timeline_event){ 0, SCHED_FORWARD, 0, 0, 0, 8 }),
			 0);
	assert_int_equal(
		timeline_add(&t, &(struct timeline_event){ 1, SCHED_FORWARD, 0, 0, 8, 10 }), 0);
	near(timeline_bubble(&t), 0.2);
	near(timeline_idle(&t), 0.5);
	struct draw_part part = { .name = "it", .timeline = &t };
	show_draw_caption(&part, &out);
	assert_string_equal(buf_str(&out), "it: 10.0 s, bubble 20.0 %, ranks idle 50.0 %");
	buf_clear(&out);
	part.step = 20;
	part.bubble = 2;
	show_draw_caption(&part, &out);
	assert_string_equal(buf_str(&out),
			    "it: 10.0 s of a step of 20.0 s, bubble 10.0 %, ranks idle 50.0 %");
	buf_fini(&out);
	timeline_free(&t);
}

static void json_is_written_and_read_back(void **state)
{
	(void)state;
	struct timeline t = timeline_of(SCHEDULE_ZB_V, 3, 5), back = { 0 };
	struct err e = ERR_INIT;
	json_t *doc = timeline_json(&t);
	if (timeline_read(doc, "it", &back, &e))
		fail_msg("%s", e.text);
	assert_int_equal(back.n, t.n);
	assert_int_equal(back.ranks, 3);
	assert_int_equal(back.chunks, 2);
	for (int i = 0; i < t.n; i++) {
		assert_int_equal(back.events[i].op, t.events[i].op);
		assert_int_equal(back.events[i].micro, t.events[i].micro);
		assert_true(back.events[i].begin == t.events[i].begin &&
			    back.events[i].end == t.events[i].end);
	}
	json_decref(doc);
	timeline_free(&back);
	timeline_free(&t);
}

/* Each rank's clock begins when its step does. After reading, the timelines have their original
 * order in time. */
static void timelines_of_ranks_are_aligned_by_their_clocks(void **state)
{
	struct timeline all = { 0 }, ranks[2] = { { .ranks = 2, .chunks = 1, .start = 1000.5 },
						  { .ranks = 2, .chunks = 1, .start = 1000.25 } };
	(void)state;
	for (int r = 0; r < 2; r++) {
		assert_int_equal(timeline_add(&ranks[r], &(struct timeline_event){ r, SCHED_FORWARD,
										   0, 0, 0.5, 1 }),
				 0);
		json_t *doc = timeline_json(&ranks[r]);
		assert_int_equal(timeline_read(doc, "it", &all, NULL), 0);
		json_decref(doc);
		timeline_free(&ranks[r]);
	}
	timeline_begin_at_zero(&all);
	near(all.events[0].begin, 0.25);
	near(all.events[1].begin, 0);
	near(timeline_end(&all), 0.75);
	near(timeline_bubble(&all), 1 - 1 / 1.5);
	timeline_free(&all);
}

static void means_are_of_each_stage(void **state)
{
	struct timeline t = { .ranks = 2, .chunks = 2 };
	struct layout l = table_layout(SCHEDULE_ZB_V, 2, 2);
	double f[4], i[4], w[4];
	(void)state;
	for (int n = 0; n < 2; n++) {
		assert_int_equal(timeline_add(&t, &(struct timeline_event){ 1, SCHED_FORWARD, 1, n,
									    n, 2 * n + 1 }),
				 0);
		assert_int_equal(timeline_add(&t, &(struct timeline_event){ 0, SCHED_BACKWARD_INPUT,
									    1, n, 4, 6 }),
				 0);
		assert_int_equal(timeline_add(&t,
					      &(struct timeline_event){ 0, SCHED_BACKWARD_WEIGHT, 0,
									n, 4, 7 }),
				 0);
	}
	timeline_means(&t, &l, f, i, w);
	near(f[2], 1.5); /* rank 1's second chunk is stage 2 */
	near(i[3], 2);
	near(w[0], 3);
	near(f[0] + f[1] + f[3] + i[0] + i[1] + i[2] + w[1] + w[2] + w[3], 0);
	timeline_free(&t);
}

static void json_of_another_kind_is_refused(void **state)
{
	static const char *const wrong[] = {
		"[]",
		"{}",
		"{\"version\":2,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[]}",
		"{\"version\":1,\"ranks\":0,\"chunks\":1,\"start\":0,\"events\":[]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":65,\"start\":0,\"events\":[]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":-1,\"events\":[]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":{}}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[1,\"forward\",0,"
		"0,0,1]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"sideways\",0,"
		"0,0,1]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"forward\",1,"
		"0,0,1]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"forward\",0,-"
		"1,0,1]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"forward\",0,"
		"0,1,0]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"forward\",0,"
		"0,0,1e300]]}",
		"{\"version\":1,\"ranks\":1,\"chunks\":1,\"start\":0,\"events\":[[0,\"forward\",0,"
		"0,0]]}",
	};
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct timeline t = { 0 };
		struct err e = ERR_INIT;
		json_t *doc = json_loads(wrong[i], 0, NULL);
		assert_non_null(doc);
		if (!timeline_read(doc, "it", &t, &e))
			fail_msg("accepted: %s", wrong[i]);
		assert_int_equal(e.code, ERR_PROTO);
		json_decref(doc);
		timeline_free(&t);
	}
	struct timeline t = { .ranks = 2, .chunks = 1 };
	json_t *other = json_loads(
		"{\"version\":1,\"ranks\":3,\"chunks\":1,\"start\":0,\"events\":[]}", 0, NULL);
	assert_int_equal(timeline_read(other, "it", &t, NULL), -1);
	json_decref(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_is_drawn_to_scale),
		cmocka_unit_test(chunks_and_halves_have_letters_of_their_own),
		cmocka_unit_test(no_line_is_wider_than_the_terminal),
		cmocka_unit_test(a_cut_drawing_says_so),
		cmocka_unit_test(only_the_ends_of_many_ranks_are_shown),
		cmocka_unit_test(a_number_that_does_not_fit_is_left_out),
		cmocka_unit_test(the_svg_has_every_pass),
		cmocka_unit_test(names_of_any_bytes_stay_xml),
		cmocka_unit_test(merged_passes_keep_their_seconds),
		cmocka_unit_test(the_bubble_is_the_busiest_ranks),
		cmocka_unit_test(json_is_written_and_read_back),
		cmocka_unit_test(timelines_of_ranks_are_aligned_by_their_clocks),
		cmocka_unit_test(means_are_of_each_stage),
		cmocka_unit_test(json_of_another_kind_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
