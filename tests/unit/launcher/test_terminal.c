/* The output that a user reads: lines in a pipe, and one line that is rewritten on a terminal. What
 * becomes of it while its reader does not read. */
#include "launcher/supervise/terminal.h"

#include "base/buf.h"
#include "launcher/supervise/writer.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int ends[2];
static struct terminal *term;
static struct buf got; /* everything that was read */

static void open_with(struct terminal_options o)
{
	assert_int_equal(pipe(ends), 0);
	o.fd = ends[1];
	buf_clear(&got);
	assert_int_equal(supervise_terminal_open(&o, &term, NULL), 0);
}

static void open_term(bool live, bool colour, int width)
{
	open_with((struct terminal_options){
		.live = live, .colour = colour, .width = width, .every = 10, .steps = 20 });
}

/* Reads so many bytes, or fewer at the end. */
static void read_bytes(size_t most)
{
	for (size_t end = got.len + most; got.len < end;) {
		size_t left = end - got.len, part = left < 65536 ? left : 65536;
		char *room = buf_room(&got, part);
		ssize_t n = room ? read(ends[0], room, part) : -1;
		if (n <= 0)
			return;
		got.len += (size_t)n;
	}
}

static void *read_all(void *arg)
{
	(void)arg;
	read_bytes((size_t)1 << 40);
	return NULL;
}

/* Closes the terminal while somebody reads, and returns everything that it wrote. */
static const char *read_output(void)
{
	pthread_t reader;
	assert_int_equal(pthread_create(&reader, NULL, read_all, NULL), 0);
	supervise_terminal_close(term);
	close(ends[1]);
	pthread_join(reader, NULL);
	close(ends[0]);
	return buf_str(&got);
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

/* --- a reader that does not read ----------------------------------------------------------- */

enum { LINE = 100 };

/* Prints numbered lines of output until one is refused. Returns how many were not, from `first` on. */
static int fill_output(int first)
{
	char line[LINE + 2];
	for (int n = 0; n < 10000000; n++) {
		snprintf(line, sizeof line, "%0*d\n", LINE - 1, first + n);
		if (!supervise_terminal_output(term, line))
			return n;
	}
	fail_msg("output is queued without a limit");
	return 0;
}

/* Checks that the text begins with the lines 0 to n - 1. Returns what follows. */
static const char *check_lines(const char *text, int n)
{
	for (int i = 0; i < n; i++, text += LINE) {
		char line[LINE + 1];
		snprintf(line, sizeof line, "%0*d\n", LINE - 1, i);
		assert_memory_equal(text, line, LINE);
	}
	return text;
}

static void output_that_nobody_reads_is_refused_and_what_muster_says_is_not(void **state)
{
	(void)state;
	open_term(false, false, 0);
	int n = fill_output(0);
	assert_true((size_t)n >= WRITER_MOST / LINE);
	for (int i = 0; i < 100; i++)
		supervise_terminal_event(term, TONE_BAD, "lost", "rank %d", i);
	assert_false(supervise_terminal_output(term, "too much\n"));
	const char *rest = check_lines(read_output(), n);
	for (int i = 0; i < 100; i++) {
		char line[40];
		int len = snprintf(line, sizeof line, "  lost       rank %d\n", i);
		assert_memory_equal(rest, line, (size_t)len);
		rest += len;
	}
	assert_string_equal(rest, "");
}

static void output_is_refused_until_half_of_the_room_is_free(void **state)
{
	(void)state;
	open_term(false, false, 0);
	int n = fill_output(0);
	size_t read = WRITER_MOST / 4;
	read_bytes(read);
	assert_false(supervise_terminal_output(term, "too early\n"));
	read_bytes((size_t)n * LINE - read);
	assert_true(supervise_terminal_flush(term));
	int more = fill_output(n);
	assert_string_equal(check_lines(read_output(), n + more), "");
}

static void lines_of_muster_without_room_are_counted(void **state)
{
	(void)state;
	enum { EVENTS = 4000, STEPS = 7 };
	open_with((struct terminal_options){ .every = 1 });
	int n = fill_output(0), left_out = 0, some;
	for (int i = 0; i < EVENTS; i++)
		supervise_terminal_event(term, TONE_BAD, "lost", "rank %0*d", LINE, i);
	for (int i = 1; i <= STEPS; i++)
		supervise_terminal_step(term, &(struct terminal_step){ .step = i }, i);
	const char *rest = check_lines(read_output(), n);
	int shown = count_text(rest, "  lost       rank");
	assert_true((size_t)shown * LINE >= WRITER_RESERVE / 2);
	assert_int_equal(count_text(rest, "step "), 0);
	for (const char *at = rest; (at = strstr(at, "  left out")); at++, left_out += some)
		assert_int_equal(sscanf(at, "  left out %d line", &some), 1);
	assert_int_equal(shown + left_out, EVENTS + STEPS);
}

/* The words on what is left out come before what is printed next. */
static void what_is_left_out_is_said_as_soon_as_there_is_room(void **state)
{
	(void)state;
	open_with((struct terminal_options){ .every = 1 });
	int n = fill_output(0);
	supervise_terminal_step(term, &(struct terminal_step){ .step = 1 }, 1);
	read_bytes((size_t)n * LINE);
	supervise_terminal_flush(term);
	assert_true(supervise_terminal_output(term, "next\n"));
	assert_string_equal(check_lines(read_output(), n),
			    "  left out   1 line of muster, because the output was not read; "
			    "events.jsonl and metrics.jsonl have them\nnext\n");
}

/* The queue is not empty, because the pipe holds less. */
static void a_live_line_that_waits_is_replaced(void **state)
{
	(void)state;
	open_term(true, false, 200);
	char line[LINE + 1];
	snprintf(line, sizeof line, "%*s\n", LINE - 1, "");
	for (size_t n = 0; n < WRITER_MOST / 4; n += LINE)
		assert_true(supervise_terminal_output(term, line));
	for (int i = 1; i <= 1000; i++)
		supervise_terminal_step(term, &(struct terminal_step){ .step = i }, i);
	supervise_terminal_event(term, TONE_BAD, "lost", "rank 3");
	const char *text = read_output();
	/* One may be replaced too late: the thread takes all that waits at once. */
	assert_in_range(count_text(text, "step "), 2, 3);
	const char *lost = strstr(text, "step 1000/20");
	assert_non_null(lost);
	lost = strstr(lost, "\r\033[K  lost       rank 3\n");
	assert_non_null(lost);
	assert_non_null(strstr(lost, "step 1000/20"));
}

/* Nothing can end a write(2) that waits for a reader: its thread ends by itself once somebody reads. The
 * read at the end returns only because the thread closes its descriptor. */
static void the_end_waits_for_a_reader_that_does_not_read_only_so_long(void **state)
{
	(void)state;
	open_with((struct terminal_options){ .stall = 0.02 });
	int n = fill_output(0);
	supervise_terminal_event(term, TONE_GOOD, "done", "20 steps");
	read_bytes(1);
	assert_false(supervise_terminal_flush(term));
	supervise_terminal_close(term);
	close(ends[1]);
	read_all(NULL);
	close(ends[0]);
	assert_true(got.len < (size_t)n * LINE);
	check_lines(buf_str(&got), (int)(got.len / LINE));
}

static void a_reader_that_has_gone_stops_nothing(void **state)
{
	(void)state;
	open_term(false, false, 0);
	close(ends[0]);
	for (int i = 0; i < 100; i++) {
		supervise_terminal_event(term, TONE_BAD, "lost", "rank %d", i);
		assert_true(supervise_terminal_flush(term));
	}
	supervise_terminal_close(term);
	close(ends[1]);
}

static void nothing_is_lost_if_another_process_made_the_pipe_non_blocking(void **state)
{
	(void)state;
	open_term(false, false, 0);
	assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	int n = fill_output(0);
	assert_string_equal(check_lines(read_output(), n), "");
}

static void no_descriptor_is_no_error(void **state)
{
	(void)state;
	struct terminal_options o = { .fd = -1 };
	assert_int_equal(supervise_terminal_open(&o, &term, NULL), 0);
	supervise_terminal_event(term, TONE_BAD, "lost", "rank 3");
	assert_true(supervise_terminal_flush(term));
	supervise_terminal_close(term);
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
		cmocka_unit_test(output_that_nobody_reads_is_refused_and_what_muster_says_is_not),
		cmocka_unit_test(output_is_refused_until_half_of_the_room_is_free),
		cmocka_unit_test(lines_of_muster_without_room_are_counted),
		cmocka_unit_test(what_is_left_out_is_said_as_soon_as_there_is_room),
		cmocka_unit_test(a_live_line_that_waits_is_replaced),
		cmocka_unit_test(the_end_waits_for_a_reader_that_does_not_read_only_so_long),
		cmocka_unit_test(a_reader_that_has_gone_stops_nothing),
		cmocka_unit_test(nothing_is_lost_if_another_process_made_the_pipe_non_blocking),
		cmocka_unit_test(no_descriptor_is_no_error),
	};
	signal(SIGPIPE, SIG_IGN); /* as muster does */
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	buf_fini(&got);
	return failed;
}
