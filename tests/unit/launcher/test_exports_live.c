/* The exports of a run that goes on: the threads that write and answer never hold up the caller,
 * and a failure is told once. */
#include "launcher/exports/background.h"
#include "launcher/exports/crc32c.h"
#include "launcher/exports/exports.h"
#include "launcher/exports/token.h"

#include "base/file.h"
#include "base/net.h"
#include "base/run_paths.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { WAIT_MS = 20000 };

static char dir[256];

static int setup(void **state)
{
	(void)state;
	unsetenv(EXPORTS_TOKEN_VARIABLE);
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return access(dir, F_OK) ? 0 : -1;
}

/* --- Threads that write ------------------------------------------------------------------- */

/* A disk that hangs until it is let go. */
struct disk {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool held, writing, closed, fails;
	char text[256];
};

static int disk_write(void *arg, const char *data, size_t n, struct err *e)
{
	struct disk *d = arg;
	pthread_mutex_lock(&d->mutex);
	d->writing = true;
	pthread_cond_broadcast(&d->changed);
	while (d->held)
		pthread_cond_wait(&d->changed, &d->mutex);
	snprintf(d->text + strlen(d->text), sizeof d->text - strlen(d->text), "[%.*s]", (int)n,
		 data);
	bool fails = d->fails;
	pthread_mutex_unlock(&d->mutex);
	return fails ? err_set(e, ERR_FULL, "the disk is full") : 0;
}

static void disk_close(void *arg)
{
	struct disk *d = arg;
	pthread_mutex_lock(&d->mutex);
	d->closed = true;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->mutex);
}

static void disk_hold(struct disk *d, bool held)
{
	pthread_mutex_lock(&d->mutex);
	d->held = held;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->mutex);
}

static void disk_wait(struct disk *d, const bool *what)
{
	pthread_mutex_lock(&d->mutex);
	while (!*what)
		pthread_cond_wait(&d->changed, &d->mutex);
	pthread_mutex_unlock(&d->mutex);
}

static struct exports_background *open_disk(struct disk *d, size_t queue)
{
	struct exports_background *b = NULL;
	*d = (struct disk){ .mutex = PTHREAD_MUTEX_INITIALIZER,
			    .changed = PTHREAD_COND_INITIALIZER };
	const struct exports_background_options o = {
		.write = disk_write, .close = disk_close, .arg = d, .queue = queue
	};
	assert_int_equal(exports_background_open(&o, &b, NULL), 0);
	return b;
}

static void every_put_is_written_in_order_before_the_close_returns(void **state)
{
	(void)state;
	static struct disk d;
	struct exports_background *b = open_disk(&d, 100);
	disk_hold(&d, true);
	exports_background_put(b, "a", 1);
	disk_wait(&d, &d.writing);
	exports_background_put(b, "b", 1);
	exports_background_put(b, "c", 1);
	disk_hold(&d, false);
	exports_background_close(b, 1e6);
	assert_string_equal(d.text, "[a][bc]");
	assert_true(d.closed);
}

static void only_the_last_put_counts_without_a_queue(void **state)
{
	(void)state;
	static struct disk d;
	struct exports_background *b = open_disk(&d, 0);
	disk_hold(&d, true);
	exports_background_put(b, "a", 1);
	disk_wait(&d, &d.writing);
	exports_background_put(b, "b", 1);
	exports_background_put(b, "c", 1);
	disk_hold(&d, false);
	exports_background_close(b, 1e6);
	assert_string_equal(d.text, "[a][c]");
}

static void a_full_queue_loses_what_comes_and_says_so_once(void **state)
{
	(void)state;
	static struct disk d;
	struct err e = ERR_INIT;
	struct exports_background *b = open_disk(&d, 3);
	disk_hold(&d, true);
	exports_background_put(b, "a", 1);
	disk_wait(&d, &d.writing);
	exports_background_put(b, "bc", 2);
	assert_false(exports_background_trouble(b, &e));
	exports_background_put(b, "de", 2);
	assert_true(exports_background_trouble(b, &e));
	assert_non_null(strstr(e.text, "slower"));
	exports_background_put(b, "fg", 2);
	assert_false(exports_background_trouble(b, &e));
	disk_hold(&d, false);
	exports_background_close(b, 1e6);
	assert_string_equal(d.text, "[a][bc]");
}

static void a_disk_that_hangs_does_not_hold_up_the_end(void **state)
{
	(void)state;
	static struct disk d;
	struct exports_background *b = open_disk(&d, 100);
	disk_hold(&d, true);
	exports_background_put(b, "a", 1);
	disk_wait(&d, &d.writing);
	exports_background_close(b, 0.01);
	assert_false(d.closed);
	disk_hold(&d, false); /* the thread frees what it has */
	disk_wait(&d, &d.closed);
	assert_string_equal(d.text, "[a]");
}

/* --- A run with exports ------------------------------------------------------------------- */

static struct {
	int warnings;
	char warning[1200], where[200];
} told;

static void tell(void *arg, bool warning, const char *text)
{
	(void)arg;
	told.warnings += warning;
	if (warning)
		snprintf(told.warning, sizeof told.warning, "%s", text);
	else
		snprintf(told.where, sizeof told.where, "%s", text);
}

static struct exports *open_exports(const char *const *words, int n)
{
	static struct job job;
	struct err e = ERR_INIT;
	memset(&told, 0, sizeof told);
	assert_int_equal(job_words(words, n, &job, &e), 0);
	return exports_open(&(struct exports_options){ .job = &job, .run = dir, .tell = tell });
}

static void begin(struct exports *x, int64_t step)
{
	static struct job job;
	assert_int_equal(job_words(NULL, 0, &job, NULL), 0);
	exports_begin(x, &(struct export_begin){ .generation = 1,
						 .job = &job,
						 .plan = "the plan",
						 .predicted_s = 0.5,
						 .step = step,
						 .ranks = 4,
						 .nodes = 2 });
}

static void step(struct exports *x, int64_t number, double loss)
{
	exports_step(x, &(struct msg_metrics){
				.step = number, .tokens = 1000, .loss = loss, .step_s = 0.25 });
}

/* Sends the request and returns the answer; the connection ends with it. */
static char *ask(const char *request)
{
	static char answer[1 << 16];
	char address[200];
	int fd;
	size_t n = 0;
	assert_int_equal(sscanf(told.where, "http://%199[^/]/metrics", address), 1);
	assert_int_equal(net_connect(address, 10, &fd, NULL), 0);
	assert_int_equal(write(fd, request, strlen(request)), strlen(request));
	for (ssize_t got; (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
		n += (size_t)got;
	answer[n] = '\0';
	close(fd);
	return answer;
}

/* Reads the only event file of the run. */
static void slurp_events(struct buf *out)
{
	char folder[RUN_PATH], path[2 * RUN_PATH] = "";
	struct dirent *at;
	run_path(folder, dir, RUN_TENSORBOARD);
	DIR *d = opendir(folder);
	assert_non_null(d);
	while ((at = readdir(d)))
		if (strstr(at->d_name, "tfevents")) {
			assert_string_equal(path, "");
			snprintf(path, sizeof path, "%s/%s", folder, at->d_name);
		}
	closedir(d);
	assert_int_equal(file_slurp_own(path, 1 << 20, out, NULL), 0);
	file_remove_tree(folder);
}

static bool holds(const struct buf *b, const char *text)
{
	return memmem(b->data, b->len, text, strlen(text));
}

#define GET(path, more) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" more "\r\n"

static void a_scrape_gets_what_the_loop_has_handed_over(void **state)
{
	(void)state;
	const char *words[] = { "metrics.listen=127.0.0.1:0", "job.name=demo" };
	struct exports *x = open_exports(words, 2);
	assert_non_null(x);
	assert_non_null(strstr(ask(GET("/metrics", "")), " 503 "));
	begin(x, 0);
	step(x, 1, 2.5);
	exports_tick(x, 100);
	char *answer = ask(GET("/metrics", ""));
	assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
	assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4"));
	assert_non_null(strstr(answer, "\nmuster_loss{run=\"demo\",host="));
	assert_non_null(strstr(answer, "} 2.5\n"));
	step(x, 2, 2.25);
	exports_tick(x, 100.5); /* too soon */
	assert_non_null(strstr(ask(GET("/metrics", "")), "} 2.5\n"));
	exports_tick(x, 101);
	assert_non_null(strstr(ask(GET("/metrics", "")), "} 2.25\n"));
	answer = ask(GET("/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n"));
	assert_non_null(
		strstr(answer, "Content-Type: application/openmetrics-text; version=1.0.0"));
	assert_non_null(strstr(answer, "\n# EOF\n"));
	assert_int_equal(told.warnings, 0);
	exports_close(x, RUNDIR_STATE_DONE);
}

static void other_requests_are_refused(void **state)
{
	(void)state;
	const char *words[] = { "metrics.listen=127.0.0.1:0" };
	struct exports *x = open_exports(words, 1);
	exports_tick(x, 1);
	assert_non_null(strstr(ask(GET("/", "")), " 404 "));
	assert_non_null(strstr(ask(GET("/metrics/../x", "")), " 404 "));
	assert_non_null(strstr(ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
				   "Connection: close\r\n\r\nabc"),
			       " 405 "));
	exports_close(x, RUNDIR_STATE_DONE);
}

static void a_scrape_without_the_token_is_refused(void **state)
{
	(void)state;
	const char *words[] = { "metrics.listen=127.0.0.1:0" };
	setenv(EXPORTS_TOKEN_VARIABLE, "0123456789abcdef", 1);
	struct exports *x = open_exports(words, 1);
	unsetenv(EXPORTS_TOKEN_VARIABLE);
	exports_tick(x, 1);
	char *answer = ask(GET("/metrics", ""));
	assert_non_null(strstr(answer, " 401 "));
	assert_non_null(strstr(answer, "WWW-Authenticate: Bearer"));
	assert_null(strstr(answer, "muster_"));
	assert_non_null(strstr(ask(GET("/metrics", "Authorization: Bearer 0123456789abcdeX\r\n")),
			       " 401 "));
	assert_non_null(strstr(ask(GET("/metrics", "Authorization: Bearer 0123456789abcdef\r\n")),
			       " 200 "));
	exports_close(x, RUNDIR_STATE_DONE);
}

static void without_a_token_only_loopback_is_listened_on(void **state)
{
	(void)state;
	/* 192.0.2.1 is for documentation; the address is refused before it is tried. */
	const char *outside[] = { "metrics.listen=192.0.2.1:0" };
	assert_null(open_exports(outside, 1));
	assert_int_equal(told.warnings, 1);
	assert_non_null(strstr(told.warning, "other machines can reach"));
	assert_non_null(strstr(told.warning, "token"));
	const char *all[] = { "metrics.listen=0.0.0.0:0" };
	setenv(EXPORTS_TOKEN_VARIABLE, "0123456789abcdef", 1);
	assert_null(open_exports(all, 1));
	unsetenv(EXPORTS_TOKEN_VARIABLE);
	assert_non_null(strstr(told.warning, "every network"));
}

static void a_port_that_is_taken_is_told_and_the_rest_works(void **state)
{
	(void)state;
	char bound[NET_ADDR_MAX], listen[NET_ADDR_MAX + 32];
	struct buf file = BUF_INIT;
	int fd;
	assert_int_equal(net_listen("127.0.0.1", &fd, bound, NULL), 0);
	snprintf(listen, sizeof listen, "metrics.listen=%s", bound);
	const char *words[] = { listen, "metrics.tensorboard=yes" };
	struct exports *x = open_exports(words, 2);
	assert_non_null(x);
	assert_int_equal(told.warnings, 1);
	assert_non_null(strstr(told.warning, "metrics.listen: cannot listen on"));
	assert_non_null(strstr(told.warning, "choose another port"));
	close(fd);
	begin(x, 0);
	step(x, 1, 2);
	exports_close(x, RUNDIR_STATE_DONE);
	slurp_events(&file);
	assert_true(holds(&file, "train/loss"));
	buf_fini(&file);
}

static void strangers_who_say_nothing_hold_up_nobody(void **state)
{
	(void)state;
	enum { STRANGERS = 40 };
	const char *words[] = { "metrics.listen=127.0.0.1:0" };
	struct exports *x = open_exports(words, 1);
	char address[200];
	int fds[STRANGERS];
	exports_tick(x, 1);
	assert_int_equal(sscanf(told.where, "http://%199[^/]/metrics", address), 1);
	for (int i = 0; i < STRANGERS; i++) {
		assert_int_equal(net_connect(address, 10, &fds[i], NULL), 0);
		send(fds[i], "GET ", 4, MSG_NOSIGNAL);
	}
	for (int i = 1; i < 100; i++) {
		step(x, i, 1);
		exports_tick(x, 1 + i);
	}
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
	exports_close(x, RUNDIR_STATE_DONE);
}

/* --- Files ---------------------------------------------------------------------------------- */

/* Every record is whole. */
static void check_records(const struct buf *b)
{
	for (size_t at = 0; at < b->len;) {
		uint64_t n;
		uint32_t crc;
		assert_true(b->len - at >= 16);
		memcpy(&n, b->data + at, 8);
		assert_true(n <= b->len - at - 16);
		memcpy(&crc, b->data + at + 12 + n, 4);
		assert_int_equal(crc, exports_crc32c_masked(b->data + at + 12, n));
		at += 16 + n;
	}
}

static void an_event_file_has_what_was_reported(void **state)
{
	(void)state;
	const char *words[] = { "metrics.tensorboard=yes" };
	struct buf file = BUF_INIT;
	struct exports *x = open_exports(words, 1);
	begin(x, 0);
	step(x, 1, 2);
	exports_eval(x, &(struct msg_eval){ .step = 1, .loss = 3 });
	exports_checkpoint(x, &(struct msg_ckpt){ .step = 1, .path = "p", .seconds = 1 });
	exports_close(x, RUNDIR_STATE_DONE);
	slurp_events(&file);
	check_records(&file);
	static const char *const tags[] = { "train/loss",         "eval/loss",
					    "step_parts/compute", "checkpoint/seconds",
					    "the plan",           "_hparams_/experiment",
					    "brain.Event:2",      "session_end" };
	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
		assert_true(holds(&file, tags[i]));
	buf_fini(&file);
}

static void wait_for_warning(struct exports *x)
{
	for (int i = 0; i < WAIT_MS && !told.warnings; i++) {
		exports_tick(x, i);
		poll(NULL, 0, 1);
	}
	assert_int_equal(told.warnings, 1);
}

static void a_full_disk_costs_records_but_leaves_whole_ones(void **state)
{
	(void)state;
	const char *words[] = { "metrics.tensorboard=yes" };
	struct rlimit before, small;
	struct buf file = BUF_INIT;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 5000; /* the first record, and more of the next ones than follows later */
	struct exports *x = open_exports(words, 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	begin(x, 0);
	wait_for_warning(x);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_non_null(strstr(told.warning, "metrics.tensorboard: "));
	assert_non_null(strstr(told.warning, "until there is room"));
	step(x, 7, 2);
	exports_close(x, RUNDIR_STATE_DONE);
	slurp_events(&file);
	check_records(&file);
	assert_false(holds(&file, "_hparams_/experiment"));
	assert_true(holds(&file, "train/loss"));
	buf_fini(&file);
}

static void the_textfile_is_replaced_whole_and_everybody_may_read_it(void **state)
{
	(void)state;
	char path[300], word[400];
	struct stat st;
	struct buf text = BUF_INIT;
	snprintf(path, sizeof path, "%s/demo.prom", dir);
	snprintf(word, sizeof word, "metrics.textfile=%s", path);
	const char *words[] = { word };
	struct exports *x = open_exports(words, 1);
	begin(x, 0);
	step(x, 3, 2.5);
	exports_tick(x, 1);
	exports_close(x, RUNDIR_STATE_FAILED);
	assert_int_equal(file_slurp_own(path, 1 << 20, &text, NULL), 0);
	assert_true(holds(&text, "state=\"failed\"} 1\n"));
	assert_true(holds(&text, "\nmuster_loss{"));
	assert_false(holds(&text, "# EOF"));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	unlink(path);
	buf_fini(&text);
}

static void a_folder_that_is_missing_is_told_once(void **state)
{
	(void)state;
	char word[400];
	snprintf(word, sizeof word, "metrics.textfile=%s/none/demo.prom", dir);
	const char *words[] = { word };
	struct exports *x = open_exports(words, 1);
	wait_for_warning(x);
	assert_non_null(strstr(told.warning, "metrics.textfile: "));
	for (int i = 0; i < 20; i++) {
		step(x, i, 1);
		exports_tick(x, WAIT_MS + 10 * i);
	}
	exports_close(x, RUNDIR_STATE_DONE);
	assert_int_equal(told.warnings, 1);
}

static void a_job_without_exports_has_none(void **state)
{
	(void)state;
	assert_null(open_exports(NULL, 0));
	assert_int_equal(told.warnings, 0);
	begin(NULL, 0);
	step(NULL, 1, 1);
	exports_tick(NULL, 1);
	exports_close(NULL, RUNDIR_STATE_DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_put_is_written_in_order_before_the_close_returns),
		cmocka_unit_test(only_the_last_put_counts_without_a_queue),
		cmocka_unit_test(a_full_queue_loses_what_comes_and_says_so_once),
		cmocka_unit_test(a_disk_that_hangs_does_not_hold_up_the_end),
		cmocka_unit_test(a_scrape_gets_what_the_loop_has_handed_over),
		cmocka_unit_test(other_requests_are_refused),
		cmocka_unit_test(a_scrape_without_the_token_is_refused),
		cmocka_unit_test(without_a_token_only_loopback_is_listened_on),
		cmocka_unit_test(a_port_that_is_taken_is_told_and_the_rest_works),
		cmocka_unit_test(strangers_who_say_nothing_hold_up_nobody),
		cmocka_unit_test(an_event_file_has_what_was_reported),
		cmocka_unit_test(a_full_disk_costs_records_but_leaves_whole_ones),
		cmocka_unit_test(the_textfile_is_replaced_whole_and_everybody_may_read_it),
		cmocka_unit_test(a_folder_that_is_missing_is_told_once),
		cmocka_unit_test(a_job_without_exports_has_none),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
