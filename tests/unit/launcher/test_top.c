/* The screen of `muster top` as text: what is on it at each size, what keys change, and what cannot get
 * through to the terminal. */
#include "launcher/top/curve.h"
#include "launcher/top/layout.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define NOW 1700000000.0

static const char state_text[] =
	"{\"version\":1,\"muster\":\"0\",\"name\":\"demo\",\"state\":\"training\",\"since\":"
	"1699992000,"
	"\"started\":1699990000,\"time\":1699999999,\"mono\":1,\"generation\":2,\"restarts\":1,"
	"\"step\":250,\"steps\":1000,\"loss\":2.5,\"tokens_s\":12300,\"step_s\":0.5,\"predicted_"
	"s\":0.4,"
	"\"eta_s\":3750,\"goodput\":0.973,\"world\":8,\"layout\":\"tp 2 × pp 2 × dp "
	"2\",\"nodes\":2,"
	"\"host\":\"n0\",\"pid\":1,\"start\":1,\"pid_space\":1,\"boot\":\"b\",\"folder\":\"/\","
	"\"ends\":1700018000,"
	"\"checkpoint\":{\"step\":200,\"time\":1699999700,\"path\":\"/"
	"c\",\"bytes\":1048576,\"seconds\":0.25},"
	"\"next_checkpoint\":{\"step\":300,\"eta_s\":25},"
	"\"warnings\":[\"the loss jumped\"],"
	"\"stand_out\":[{\"rank\":5,\"node\":\"n1\",\"what\":\"slow: 1.5 times as long per "
	"step\"}]}";

static struct top_facts *facts;
static struct top_rows rows;
static struct top_ui ui;
static struct top_page page;

/* --- a run ---------------------------------------------------------------------------------- */

static json_t *rank_of(int r, int per_node)
{
	char node[16];
	snprintf(node, sizeof node, "n%d", r / per_node);
	return json_pack("{s:i,s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:I,s:b}", "rank", r, "node", node,
			 "phase", r % 2 ? "backward" : "forward", "step", (json_int_t)250,
			 "silent_s", 0.5, "still_s", 0.1, "own_s", r == 5 ? 0.3 : 0.2, "peers_s",
			 0.2, "wait_s", r == 5 ? 0.2 : 0.3, "peak_bytes", (json_int_t)(r + 1) << 30,
			 "slow", r == 5);
}

static void give_state(const char *text)
{
	struct err e = ERR_INIT;
	struct look *l = &facts->look;
	if (rundir_state_parse(text, strlen(text), &l->object, &l->state, &e))
		fail_msg("%s", e.text);
	l->id = rundir_state_find(l->state.state);
	l->live = true;
}

static void give_ranks(int world, int per_node)
{
	assert_int_equal(top_facts_set_world(facts, world, NULL), 0);
	json_t *list = json_array();
	for (int r = 0; r < world; r++)
		json_array_append_new(list, rank_of(r, per_node));
	top_facts_take_ranks(facts, 0, list);
	json_decref(list);
}

static void give_plan(int world)
{
	json_t *ranks = json_array();
	for (int r = 0; r < world; r++)
		json_array_append_new(ranks,
				      json_pack("[i,i,i,i]", r % 2, r / 2 % 2, r / 4, r / 4));
	json_t *plan = json_pack("{s:{s:i,s:i,s:i,s:i},s:[s,s,s,s],s:[s,s],s:o}", "layout", "tp", 2,
				 "cp", 1, "pp", 2, "dp", 2, "rank_fields", "tp", "pp", "dp", "node",
				 "nodes", "n0", "n1", "ranks", ranks);
	assert_non_null(plan);
	top_facts_take_plan(facts, plan);
	json_decref(plan);
}

static void give_steps(int n)
{
	struct buf text = BUF_INIT;
	for (int i = 1; i <= n; i++)
		buf_printf(&text, "{\"step\":%d,\"loss\":%.3f,\"tokens\":1000,\"step_s\":%.2f}\n",
			   i, 5.0 - i * 0.01, i % 10 ? 0.1 : 0.2);
	top_facts_take_metrics(facts, buf_str(&text), text.len);
	buf_fini(&text);
}

static int setup(void **state)
{
	(void)state;
	setlocale(LC_CTYPE, "C.UTF-8");
	facts = top_facts_new();
	ui = (struct top_ui){ .kind = TOP_TABLE };
	give_state(state_text);
	give_ranks(8, 4);
	give_plan(8);
	give_steps(250);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	top_rows_free(&rows);
	top_page_fini(&page);
	top_facts_free(facts);
	return 0;
}

/* --- the screen ------------------------------------------------------------------------------- */

static struct top_view view(void)
{
	return (struct top_view){ .facts = facts, .rows = &rows, .ui = &ui, .now = NOW };
}

static int settle(int height)
{
	struct top_view v = view();
	top_rows_free(&rows);
	assert_int_equal(top_rows_make(&rows, facts, &ui.order, NULL), 0);
	int room = top_layout_room(&v, height);
	top_ui_settle(&ui, &rows, facts, room);
	return room;
}

static void draw(int cols, int height, bool unicode)
{
	struct top_view v = view();
	settle(height);
	top_page_fini(&page);
	assert_int_equal(top_page_init(&page, height, cols, unicode, NULL), 0);
	top_layout(&v, &page);
}

/* Each row has as many columns as the page: nothing runs over. */
static void check_widths(void)
{
	for (int row = 0; row < page.rows; row++) {
		char *text = top_page_text(&page, row);
		assert_non_null(text);
		assert_in_range(top_page_width(&page, text), 0, page.cols);
		for (const char *s = text; *s; s++)
			assert_true((unsigned char)*s >= ' ' && *s != 0x7f);
		free(text);
	}
}

static void shows(const char *const *golden, int n)
{
	bool same = true;
	for (int row = 0; row < n; row++) {
		char *text = top_page_text(&page, row);
		if (strcmp(text, golden[row])) {
			print_message("row %d is \"%s\",\n   expected \"%s\"\n", row, text,
				      golden[row]);
			same = false;
		}
		free(text);
	}
	assert_true(same);
}

static bool is_shown(const char *words)
{
	for (int row = 0; row < page.rows; row++) {
		char *text = top_page_text(&page, row);
		bool found = strstr(text, words) != NULL;
		free(text);
		if (found)
			return true;
	}
	return false;
}

static void press(int key)
{
	assert_true(top_ui_key(&ui, key, &rows, settle(24)));
	settle(24);
}

/* The style of the row's first character that is no space. */
static enum top_style style_of(const char *words)
{
	for (int row = 0; row < page.rows; row++) {
		char *text = top_page_text(&page, row);
		const char *at = strstr(text, words);
		int col = -1;
		if (at) {
			text[at - text] = 0;
			col = top_page_width(&page, text);
		}
		free(text);
		if (col >= 0)
			return page.cells[row * page.cols + col].style;
	}
	fail_msg("\"%s\" is not shown", words);
	return TOP_PLAIN;
}

/* --- tests -------------------------------------------------------------------------------------- */

static void a_usual_terminal_shows_everything(void **state)
{
	static const char *const golden[24] = {
		" demo  training for 2 h 13 min                          generation 2, 1 restart",
		" █████████▎···························  step 250 / 1000  25.0 %  left 1 h 2 min",
		" ! the loss jumped  w shows 1 more",
		" speed      500 ms per step, 1.25× the predicted 400 ms   goodput 97.3 %",
		" checkpoint step 200, 5 min ago, 1.0 MiB in 250 ms   next step 300 in 25 s",
		" ranks      8 on 2 nodes: tp 2 × pp 2 × dp 2   time limit in 5 h",
		" loss       2.5000   ██▇▇▆▆▅▅▄▄▃▃▂▂▁▁                                  4.990",
		"                     ██████████████████▇▇▆▆▅▅▅▄▄▃▃▂▂▁▁",
		"                     ███████████████████████████████████▇▇▆▆▅▅▄▄▃▃▂▂▂▁ 2.500",
		" tokens/s   12.3 k   █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █   10.0 k",
		"                     █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █",
		"                     █▁█▁█▁█▁█▅█▁█▁█▁█▁█▅█▁█▁█▁█▁█▅█▁█▁█▁█▁█▅█▁█▁█▁█▁▅ 5.0 k",
		"",
		" RANK▼ NODE tp.pp.dp PHASE               STEP     OWN    WAIT   MEMORY NOTES",
		"     0 n0   0.0.0    forward              250  200 ms  300 ms  1.0 GiB",
		"     1 n0   1.0.0    backward             250  200 ms  300 ms  2.0 GiB",
		"     2 n0   0.1.0    forward              250  200 ms  300 ms  3.0 GiB",
		"     3 n0   1.1.0    backward             250  200 ms  300 ms  4.0 GiB",
		"     4 n1   0.0.1    forward              250  200 ms  300 ms  5.0 GiB",
		"     5 n1   1.0.1    backward             250  300 ms  200 ms  6.0 GiB slow 1.5×",
		"     6 n1   0.1.1    forward              250  200 ms  300 ms  7.0 GiB",
		"     7 n1   1.1.1    backward             250  200 ms  300 ms  8.0 GiB",
		"",
		" 1-8 of 8      n nodes  s sort  / filter  Enter log  w messages  ? help  q quit",
	};
	(void)state;
	draw(80, 24, true);
	check_widths();
	shows(golden, 24);
}

static void a_terminal_without_utf8_gets_ascii(void **state)
{
	(void)state;
	draw(80, 24, false);
	for (int i = 0; i < page.rows * page.cols; i++)
		assert_true(page.cells[i].ch >= ' ' && page.cells[i].ch < 0x7f);
	assert_true(is_shown("###---"));
	assert_true(is_shown("tp 2 x pp 2"));
}

static void a_small_terminal_keeps_what_matters(void **state)
{
	static const char *const golden[10] = {
		" demo  training for 2 h 13 min",       " step 250 / 1000  25.0 %  left 1 h",
		" ! the loss jumped  w shows 1 more",   " loss     2.5000   ██▇▇▇▆▆▅▅▅▄▄▄▃▃▂▂▂▁▁",
		" RANK▼ NODE PHASE         STEP NOTES", "     0 n0   forward        250",
		"     1 n0   backward       250",       "     2 n0   forward        250",
		"     3 n0   backward       250",       " 1-4 of 8     Enter log  ? help  q quit",
	};
	(void)state;
	draw(40, 10, true);
	check_widths();
	shows(golden, 10);
}

static void no_size_runs_over(void **state)
{
	(void)state;
	for (ui.kind = TOP_TABLE; ui.kind <= TOP_HELP; ui.kind++)
		for (int height = 1; height <= 60; height += 3)
			for (int cols = 1; cols <= 200; cols += 13) {
				draw(cols, height, true);
				check_widths();
			}
}

static void a_thousand_ranks_are_paged_and_sorted(void **state)
{
	(void)state;
	give_ranks(1024, 8);
	draw(80, 24, true);
	assert_true(is_shown("of 1024"));
	press(TOP_KEY_END);
	draw(80, 24, true);
	assert_true(is_shown("-1024 of 1024"));
	assert_true(is_shown(" 1023 n127"));
	press(TOP_KEY_HOME);
	press(TOP_KEY_PAGE_DOWN);
	int page_rows = settle(24);
	assert_int_equal(ui.chosen, page_rows);
	assert_int_equal(ui.first, page_rows);
	for (int i = 0; i < TOP_BY_MEMORY; i++)
		press('s');
	press(TOP_KEY_HOME);
	assert_int_equal(ui.chosen, 1023); /* the greatest comes first */
	press('r');
	press(TOP_KEY_HOME);
	assert_int_equal(ui.chosen, 0);
}

static void the_cursor_stays_on_its_rank(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		press(TOP_KEY_DOWN);
	assert_int_equal(ui.chosen, 5);
	while (ui.order.sort != TOP_BY_MARK)
		press('s');
	assert_int_equal(rows.of[0].rank, 5); /* what stands out comes first */
	assert_int_equal(ui.at, 0);
	press('n');
	assert_int_equal(rows.n, 2);
	assert_string_equal(rows.of[ui.at].node, "n1");
}

static void a_node_has_the_worst_of_its_ranks(void **state)
{
	(void)state;
	facts->ranks[6].step = 240;
	press('n');
	draw(100, 24, true);
	const struct top_row *r = &rows.of[1];
	assert_int_equal(r->ranks, 4);
	assert_int_equal(r->step, 240);
	assert_true(r->own_s == 0.3 && r->peak_bytes == 8.0 * (1 << 30));
	assert_string_equal(r->what, "rank 5: slow 1.5×");
	assert_int_equal(rows.of[0].mark, TOP_MARK_NONE);
	press(TOP_KEY_DOWN);
	press(TOP_KEY_ENTER);
	assert_int_equal(rows.n, 4); /* its ranks */
	assert_int_equal(rows.of[0].rank, 4);
	press(TOP_KEY_ESCAPE);
	assert_int_equal(rows.n, 8);
}

static void ranks_that_are_wrong_say_so(void **state)
{
	(void)state;
	facts->ranks[2].silent_s = 12;
	*facts->ranks[3].phase = 0;
	draw(100, 30, true);
	assert_true(is_shown("silent 12 s"));
	assert_true(is_shown("not connected"));
	assert_true(is_shown("slow 1.5×"));
	assert_int_equal(style_of("silent 12 s"), TOP_BAD);
	assert_int_equal(style_of("slow 1.5×"), TOP_WARN);
	/* When the supervisor is gone, nothing is known of the ranks any more. */
	facts->look.live = false;
	snprintf(facts->look.note, sizeof facts->look.note, "its supervisor is gone");
	draw(100, 30, true);
	assert_true(is_shown("its supervisor is gone; this is what it was 1 s ago"));
	assert_false(is_shown("silent 12 s"));
}

static void a_filter_is_typed_and_dropped(void **state)
{
	(void)state;
	press('/');
	press('N');
	press('1');
	draw(80, 24, true);
	assert_true(is_shown("/N1"));
	assert_int_equal(rows.n, 4);
	press('q'); /* is a letter now */
	assert_int_equal(rows.n, 0);
	draw(80, 24, true);
	assert_true(is_shown("no node has this in its name"));
	press(TOP_KEY_BACKSPACE);
	press(TOP_KEY_ENTER);
	assert_int_equal(rows.n, 4);
	press('/');
	press(TOP_KEY_ESCAPE);
	assert_int_equal(rows.n, 4); /* the one before */
	assert_false(top_ui_key(&ui, 'q', &rows, 10));
}

static void details_show_the_end_of_the_log(void **state)
{
	struct buf text = BUF_INIT;
	(void)state;
	for (int i = 0; i < 100; i++)
		buf_printf(&text, "2026-01-02 10:00:00.000 %s n1: line %d\n",
			   i == 99 ? "error" : "info", i);
	ui.chosen = 5;
	settle(24);
	press(TOP_KEY_ENTER);
	assert_int_equal(top_ui_details(&ui), 5);
	draw(80, 24, true);
	assert_true(is_shown("is being read"));
	facts->log_rank = 5;
	facts->log = buf_take(&text);
	draw(80, 24, true);
	assert_true(is_shown("rank 5 on n1, tp.pp.dp = 1.0.1"));
	assert_true(is_shown("own 300 ms, its peers 200 ms; waits 200 ms"));
	assert_true(is_shown("line 99"));
	assert_int_equal(style_of("10:00:00.000 error n1: line 99"), TOP_BAD);
	press(TOP_KEY_PAGE_UP);
	draw(80, 24, true);
	assert_false(is_shown("line 99"));
	press(TOP_KEY_DOWN);
	assert_int_equal(top_ui_details(&ui), 6);
}

static void nothing_from_outside_controls_the_terminal(void **state)
{
	(void)state;
	snprintf(facts->ranks[0].node, sizeof facts->ranks[0].node, "\x1b[2J\xc2\x9bm\x07n\xff");
	snprintf(facts->ranks[1].phase, sizeof facts->ranks[1].phase, "a\nb\tc\x7f");
	facts->look.state.name = "\x1b]0;owned\x07";
	facts->log_rank = 0;
	facts->log = strdup("\x1b[31mred\r\n\xe2\x80\xae"
			    "back\n");
	for (ui.kind = TOP_TABLE; ui.kind <= TOP_HELP; ui.kind++) {
		draw(120, 30, true);
		for (int i = 0; i < page.rows * page.cols; i++) {
			wchar_t c = page.cells[i].ch;
			assert_true(c == 0 || (c >= ' ' && c < 0x7f) || c >= 0xa0);
			assert_true(c != 0x202e); /* which turns the direction of what follows */
		}
	}
}

static void wide_characters_take_two_columns(void **state)
{
	(void)state;
	top_page_fini(&page);
	assert_int_equal(top_page_init(&page, 1, 6, true, NULL), 0);
	assert_int_equal(top_page_width(&page, "日本"), 4);
	assert_int_equal(top_page_put(&page, 0, 0, 6, TOP_PLAIN, "日本語x"), 5); /* 7 columns */
	char *text = top_page_text(&page, 0);
	assert_string_equal(text, "日本…");
	free(text);
	assert_int_equal(page.cells[1].ch, 0);
	assert_int_equal(top_page_width(&page, "e\xcc\x81"), 1); /* an accent of its own */
	top_page_put(&page, 0, 0, 6, TOP_PLAIN, "\xef\xb7\x90"); /* U+FDD0, which is no character */
	assert_int_equal(page.cells[0].ch, L'?');
}

static void a_curve_spans_its_values(void **state)
{
	static const double rising[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, flat[] = { 3, 3, 3 };
	static const double holes[] = { 1, NAN, 2 };
	(void)state;
	top_page_fini(&page);
	assert_int_equal(top_page_init(&page, 4, 8, true, NULL), 0);
	top_curve_draw(&page, 0, 0, 1, 8, rising, 8);
	top_curve_draw(&page, 1, 0, 1, 4, rising, 8);
	top_curve_draw(&page, 2, 0, 1, 8, flat, 3);
	top_curve_draw(&page, 3, 0, 1, 8, holes, 3);
	shows((const char *const[]){ "▁▂▃▄▅▆▇█", "▁▃▆█", "▅▅▅", "▁!█" }, 4);
	top_page_fini(&page);
	assert_int_equal(top_page_init(&page, 2, 4, true, NULL), 0);
	top_curve_draw(&page, 0, 0, 2, 4, rising, 4);
	shows((const char *const[]){ "  ▃█", "▁▆██" }, 2);
}

static void steps_that_come_again_replace_what_they_undo(void **state)
{
	static const char again[] = "{\"step\":100,\"loss\":9,\"tokens\":10,\"step_s\":2}\n"
				    "{\"step\":broken\n"
				    "{\"step\":101,\"loss\":null,\"tokens\":10,\"step_s\":2}\n";
	(void)state;
	give_steps(2000);
	assert_int_equal(facts->n_samples, TOP_SAMPLES);
	assert_int_equal(facts->samples[0].step, 2000 - TOP_SAMPLES + 1);
	top_facts_take_metrics(facts, again, strlen(again));
	assert_int_equal(facts->n_samples, 2);
	assert_true(facts->samples[0].loss == 9 && facts->samples[0].tokens_s == 5);
	assert_true(facts->samples[1].step == 101 && isnan(facts->samples[1].loss));
	draw(80, 24, true);
	check_widths();
}

static void damaged_answers_change_nothing(void **state)
{
	(void)state;
	json_t *list = json_pack("[{s:i},i,{s:i,s:s}]", "rank", 0, 5, "rank", 99, "node", "x");
	top_facts_take_ranks(facts, 0, list);
	json_decref(list);
	json_t *plan = json_pack("{s:[s],s:[[i],[i],i,s,n,[i],[i],[i]],s:[i]}", "rank_fields",
				 "node", "ranks", 7, -1, 3, "x", 0, 0, 0, "nodes", 4);
	assert_non_null(plan);
	top_facts_take_plan(facts, plan);
	json_decref(plan);
	plan = json_pack("{s:[s],s:[[i],[i],[i],[i],[i],[i],[i],[i]],s:[s]}", "rank_fields", "tp",
			 "ranks", 0, 0, 0, 0, 0, 0, 0, 0, "nodes", "other");
	assert_non_null(plan);
	top_facts_take_plan(facts, plan);
	json_decref(plan);
	draw(80, 24, true);
	assert_string_equal(facts->ranks[0].node, "n0");
	assert_string_equal(facts->ranks[0].phase, "forward");
}

static void a_run_of_which_nothing_is_known_says_why(void **state)
{
	(void)state;
	top_facts_free(facts);
	facts = top_facts_new();
	snprintf(facts->look.run, sizeof facts->look.run, "runs/demo");
	snprintf(facts->trouble, sizeof facts->trouble, "the folder has no state.json");
	draw(80, 24, true);
	assert_true(is_shown("demo"));
	assert_true(is_shown("the folder has no state.json"));
	assert_true(is_shown("nothing is known of its ranks yet"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_usual_terminal_shows_everything),
		TEST(a_terminal_without_utf8_gets_ascii),
		TEST(a_small_terminal_keeps_what_matters),
		TEST(no_size_runs_over),
		TEST(a_thousand_ranks_are_paged_and_sorted),
		TEST(the_cursor_stays_on_its_rank),
		TEST(a_node_has_the_worst_of_its_ranks),
		TEST(ranks_that_are_wrong_say_so),
		TEST(a_filter_is_typed_and_dropped),
		TEST(details_show_the_end_of_the_log),
		TEST(nothing_from_outside_controls_the_terminal),
		TEST(wide_characters_take_two_columns),
		TEST(a_curve_spans_its_values),
		TEST(steps_that_come_again_replace_what_they_undo),
		TEST(damaged_answers_change_nothing),
		TEST(a_run_of_which_nothing_is_known_says_why),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
