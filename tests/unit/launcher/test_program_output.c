/* Tests what people see of the output of a program while nobody reads the output of muster. */
#include "tests/unit/launcher/program_run.h"

#include <pthread.h>

struct reader {
	int fd;
	struct buf text;
};

static void *read_to_the_end(void *arg)
{
	struct reader *r = arg;
	for (ssize_t n = 1; n > 0;) {
		char *room = buf_room(&r->text, 4096);
		n = room ? read(r->fd, room, 4096) : -1;
		r->text.len += n > 0 ? (size_t)n : 0;
	}
	return NULL;
}

/* What is printed goes to a pipe. Returns the end to write to. */
static int print_to_pipe(struct reader *r)
{
	int ends[2];
	supervise_close(h.supervisor);
	supervise_terminal_close(h.term);
	assert_int_equal(pipe(ends), 0);
	*r = (struct reader){ ends[0], BUF_INIT };
	assert_int_equal(supervise_terminal_open(&(struct terminal_options){ .fd = ends[1] },
						 &h.term, NULL),
			 0);
	assert_int_equal(open_supervisor(&fake_ops), 0);
	return ends[1];
}

/* Returns all that was printed. */
static const char *end_reading(struct reader *r, int end, pthread_t reader)
{
	supervise_close(h.supervisor);
	h.supervisor = NULL;
	supervise_terminal_close(h.term);
	h.term = NULL;
	close(end);
	pthread_join(reader, NULL);
	close(r->fd);
	return buf_str(&r->text);
}

enum { FLOOD = 200, FLOODS = 20 };

/* Rank 0 prints more than the pipe and the queue hold. */
static void flood(void)
{
	char line[1801];
	memset(line, 'x', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	json_t *lines = json_array();
	for (int i = 0; i < FLOOD; i++)
		json_array_append_new(lines, json_string(line));
	for (int i = 0; i < FLOODS; i++) {
		send_message(&h.peers[0], MSG_OUTPUT,
			     msg_output_json(&(struct msg_output){ .lines = lines }));
		deliver_all();
	}
	json_decref(lines);
}

/* The number of lines that begin like this. first: the first of them. */
static int count_lines(const char *text, const char *begin, const char **first)
{
	int n = 0;
	*first = NULL;
	for (; *text; text = strchr(text, '\n') + 1)
		if (!strncmp(text, begin, strlen(begin)) && !n++)
			*first = text;
	return n;
}

/* All is seen meanwhile, and what there was no room for is counted. */
static void a_reader_that_does_not_read_stops_nothing(void **state)
{
	(void)state;
	struct reader r;
	pthread_t thread;
	const char *x, *gap, *lost, *error, *ended;
	int left_out = 0, end = print_to_pipe(&r);
	h.first.job.program.show = SHOW_FIRST;
	start_run();
	flood();
	lose_task(0, 3 << 8, "ValueError: bad shape");
	assert_int_equal(count_events("rank-lost", "the task ended"), 1);
	assert_int_equal(h.starts, 2);
	start_tasks();
	supervise_stop(h.supervisor, "Interrupt", false);
	assert_int_equal(count_events("\"event\":\"stop\"", "Interrupt"), 1);
	assert_int_equal(pthread_create(&thread, NULL, read_to_the_end, &r), 0);
	assert_true(supervise_terminal_flush(h.term));
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	const char *text = end_reading(&r, end, thread);
	assert_int_equal(count_lines(text, "(", &gap), 1);
	assert_int_equal(sscanf(gap, "(%d lines are only in the log of the rank)", &left_out), 1);
	assert_int_equal(count_lines(text, "x", &x) + left_out, FLOOD * FLOODS);
	assert_int_equal(count_lines(text, "  lost  ", &lost), 1);
	assert_int_equal(count_lines(text, "  output     ValueError: bad shape", &error), 1);
	assert_int_equal(count_lines(text, "  stopped  ", &ended), 1);
	assert_true(x && x < lost && lost < error && error < ended);
	buf_fini(&r.text);
}

/* Rank 0 need not print anything more for that. */
static void lines_that_are_left_out_are_said_when_there_is_room(void **state)
{
	(void)state;
	struct reader r;
	pthread_t thread;
	const char *x, *gap;
	int left_out = 0, end = print_to_pipe(&r);
	h.first.job.program.show = SHOW_FIRST;
	start_run();
	flood();
	assert_int_equal(pthread_create(&thread, NULL, read_to_the_end, &r), 0);
	assert_true(supervise_terminal_flush(h.term));
	pass_time(0.1);
	const char *text = end_reading(&r, end, thread);
	assert_int_equal(count_lines(text, "(", &gap), 1);
	assert_int_equal(sscanf(gap, "(%d lines are only in the log of the rank)", &left_out), 1);
	assert_true(left_out > 0);
	assert_int_equal(count_lines(text, "x", &x) + left_out, FLOOD * FLOODS);
	assert_true(x && x < gap);
	buf_fini(&r.text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_program, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_reader_that_does_not_read_stops_nothing),
		TEST(lines_that_are_left_out_are_said_when_there_is_room),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
