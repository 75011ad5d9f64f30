/* The output that a user reads: lines in a pipe, and one line that is rewritten on a terminal. */
#include "launcher/supervise/terminal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int ends[2];
static struct terminal *term;

static void open_term(bool live, bool colour, int width)
{
	struct terminal_options o = {
		.live = live, .colour = colour, .width = width, .every = 10, .steps = 20
	};
	assert_int_equal(pipe(ends), 0);
	o.fd = ends[1];
	assert_int_equal(supervise_terminal_open(&o, &term, NULL), 0);
}

/* Closes the terminal and returns everything that it wrote. */
static const char *read_output(void)
{
	static char text[8192];
	supervise_terminal_close(term);
	close(ends[1]);
	ssize_t n = read(ends[0], text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	return text;
}

static int count_text(const char *text, const char *what)
{
	int n = 0;
	for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
		n++;
	return n;
}

static void print_steps(void)
{
	for (int i = 1; i <= 20; i++)
		supervise_terminal_step(
			term, &(struct terminal_step){ .step = i, .loss = 2.5, .left_s = 75 },
			i * 1e-3);
}

static void a_pipe_gets_one_line_per_interval(void **state)
{
	(void)state;
	open_term(false, false, 0);
	print_steps();
	const char *text = read_output();
	assert_int_equal(count_text(text, "\n"), 3); /* the first, the 10th, the 20th */
	assert_non_null(strstr(text, "  step 10/20  loss 2.5000"));
	assert_non_null(strstr(text, "eta 1:15"));
	assert_null(strchr(text, '\033'));
}

static void the_live_line_is_redrawn_at_a_limited_rate(void **state)
{
	(void)state;
	open_term(true, false, 200);
	print_steps();
	const char *text = read_output();
	/* 20 steps within 20 ms: only the last one is shown */
	assert_int_equal(count_text(text, "step"), 1);
	assert_null(strchr(text, '\n'));
}

static void events_come_above_the_live_line(void **state)
{
	(void)state;
	open_term(true, false, 200);
	supervise_terminal_step(term, &(struct terminal_step){ .step = 20 }, 1);
	supervise_terminal_event(term, TONE_BAD, "lost", "rank %d", 3);
	const char *text = read_output();
	const char *lost = strstr(text, "\r\033[K  lost       rank 3\n");
	assert_non_null(lost);
	assert_non_null(strstr(lost, "step 20/20"));
}

static void the_live_line_never_wraps(void **state)
{
	(void)state;
	open_term(true, false, 30);
	supervise_terminal_step(term, &(struct terminal_step){ .step = 20 }, 1);
	const char *text = read_output();
	assert_true(strlen(text) <= 2 * strlen("\r\033[K") + 29);
}

static void a_narrow_terminal_shows_the_loss_rather_than_the_bar(void **state)
{
	(void)state;
	open_term(true, false, 40);
	supervise_terminal_step(term, &(struct terminal_step){ .step = 20, .loss = 2.5 }, 1);
	const char *text = read_output();
	assert_non_null(strstr(text, "step 20/20  loss 2.5000"));
	assert_null(strchr(text, '#'));
	open_term(true, false, 120);
	supervise_terminal_step(term, &(struct terminal_step){ .step = 20, .loss = 2.5 }, 1);
	assert_non_null(strstr(read_output(), "####"));
}

static void texts_of_agents_cannot_steer_the_terminal(void **state)
{
	(void)state;
	open_term(false, false, 0);
	supervise_terminal_event(term, TONE_WARN, "warn", "%s", "a\033[2Jb\nc\rd");
	assert_string_equal(read_output(), "  warn       a [2Jb c d\n");
	open_term(false, false, 0);
	supervise_terminal_event(term, TONE_WARN, "warn", "%s",
				 "a\xc2\x9b"
				 "2Jb ü");
	assert_string_equal(read_output(), "  warn       a  2Jb ü\n");
}

static void durations_are_readable(void **state)
{
	(void)state;
	char out[32];
	assert_string_equal(supervise_terminal_duration(0.04, out, sizeof out), "0.0 s");
	assert_string_equal(supervise_terminal_duration(80, out, sizeof out), "1:20");
	assert_string_equal(supervise_terminal_duration(7384, out, sizeof out), "2:03:04");
	assert_string_equal(supervise_terminal_duration(INFINITY, out, sizeof out),
			    supervise_terminal_duration(1e9, (char[32]){ 0 }, 32));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pipe_gets_one_line_per_interval),
		cmocka_unit_test(the_live_line_is_redrawn_at_a_limited_rate),
		cmocka_unit_test(events_come_above_the_live_line),
		cmocka_unit_test(the_live_line_never_wraps),
		cmocka_unit_test(a_narrow_terminal_shows_the_loss_rather_than_the_bar),
		cmocka_unit_test(texts_of_agents_cannot_steer_the_terminal),
		cmocka_unit_test(durations_are_readable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
