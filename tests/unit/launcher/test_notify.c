/* The outlets of notifications: a bounded queue, deliveries that are cut, what errors show, and the form
 * for Slack. tests/cli/notify.bats tests them in a run. */
#include "launcher/notify/outlet.h"

#include "base/clock.h"
#include "tests/unit/base/http_server.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct http_server server;
static atomic_int allowed; /* answers that may be given; others wait */

/* arg: the status line. */
static void answer(void *arg, int fd, const char *request)
{
	(void)request;
	while (server.requests > allowed)
		usleep(1000);
	dprintf(fd, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", (const char *)arg);
}

static void start(const char *status, int answers)
{
	allowed = answers;
	server.answer = answer;
	server.arg = (void *)(uintptr_t)status;
	http_server_start(&server, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	allowed = INT_MAX;
	http_server_stop(&server);
	return 0;
}

static struct notify *open_notify(const char *path)
{
	struct notify *n;
	struct err e = ERR_INIT;
	char url[200];
	snprintf(url, sizeof url, "%s%s", server.url, path);
	const struct notify_options o = {
		.url = url, .url_file = "", .secret_file = "", .ca_file = "", .command = ""
	};
	if (notify_open(&o, &n, &e))
		fail_msg("%s", e.text);
	assert_non_null(n);
	return n;
}

static void send_one(struct notify *n)
{
	notify_send(n,
		    &(struct notify_message){
			    .event = "done", .text = "t", .run = "r", .folder = "f", .host = "h" });
}

static int64_t field_of_last(const char *name)
{
	const char *body = strstr(http_server_last(&server), "\r\n\r\n");
	json_t *o = json_loads(body ? body + 4 : "", 0, NULL);
	int64_t value = json_integer_value(json_object_get(o, name));
	json_decref(o);
	return value;
}

static void wait_for_requests(int n)
{
	while (server.requests < n)
		usleep(1000);
}

static void a_full_queue_drops_the_oldest_and_the_next_one_counts_them(void **state)
{
	enum { MORE = 5, SENT = 1 + NOTIFY_QUEUE + MORE };
	struct notify_result r;
	(void)state;
	start("200 OK", 0);
	struct notify *n = open_notify("/");
	send_one(n);
	wait_for_requests(1);
	for (int i = 1; i < SENT; i++)
		send_one(n); /* never waits */
	allowed = 1;
	wait_for_requests(2);
	assert_int_equal(field_of_last("number"), 2 + MORE);
	assert_int_equal(field_of_last("dropped"), MORE);
	allowed = INT_MAX;
	notify_close(n, 60, &r);
	assert_int_equal(server.requests, 1 + NOTIFY_QUEUE);
	assert_int_equal(field_of_last("number"), SENT);
	assert_int_equal(field_of_last("dropped"), 0);
	assert_int_equal(r.lost, MORE);
}

static void a_delivery_that_hangs_is_cut_and_counted(void **state)
{
	struct notify_result r;
	(void)state;
	start("200 OK", 0);
	struct notify *n = open_notify("/s3cret");
	for (int i = 0; i < 3; i++)
		send_one(n);
	wait_for_requests(1);
	double began = clock_s();
	notify_close(n, 0.2, &r);
	assert_true(clock_s() - began < 10); /* an attempt alone may take 20 s */
	assert_int_equal(r.lost, 3);
	assert_int_equal(server.requests, 1);
	assert_non_null(strstr(r.why, "it has not answered in time"));
	assert_null(strstr(r.why, "s3cret"));
}

static void an_error_shows_the_host_only_and_is_told_once(void **state)
{
	struct notify_result r;
	char why[NOTIFY_WHY];
	(void)state;
	start("403 Forbidden", INT_MAX);
	struct notify *n = open_notify("/s3cret?key=s3cret");
	send_one(n);
	while (!notify_trouble(n, why))
		usleep(1000);
	send_one(n);
	send_one(n);
	wait_for_requests(3); /* the second one has failed in the same way */
	assert_false(notify_trouble(n, why));
	notify_close(n, 60, &r);
	assert_int_equal(r.lost, 3);
	assert_string_equal(r.why, why);
	assert_null(strstr(why, "s3cret"));
	assert_non_null(strstr(why, server.url));
	assert_non_null(strstr(why, "status 403; correct the token"));
}

/* No connection: libcurl makes the text. */
static void an_error_of_the_connection_shows_the_host_only(void **state)
{
	struct notify_result r;
	char why[NOTIFY_WHY];
	(void)state;
	start("200 OK", INT_MAX);
	struct notify *n = open_notify("/s3cret");
	http_server_stop(&server);
	send_one(n);
	while (!notify_trouble(n, why))
		usleep(1000);
	notify_close(n, 1, &r);
	assert_int_equal(r.lost, 1);
	assert_non_null(strstr(r.why, server.url));
	assert_null(strstr(r.why, "s3cret"));
	start("200 OK", INT_MAX); /* for the teardown */
}

static void slack_gets_one_text_without_markup(void **state)
{
	json_t *m = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i}", "run", "a<b", "event",
			      "failed", "text", "x < y & z > w", "remedy", "<!channel>", "step", 7,
			      "steps", 9, "dropped", 2);
	char *body = notify_body(m, true);
	(void)state;
	assert_string_equal(body, "{\"text\":\"*a&lt;b* failed, step 7 of 9: x &lt; y &amp; z &gt; "
				  "w\\n&lt;!channel&gt;\\n2 earlier notifications were not "
				  "delivered\"}");
	free(body);
	json_decref(m);
}

static void without_a_place_nothing_is_opened(void **state)
{
	struct notify *n = (struct notify *)&server;
	struct notify_result r;
	const struct notify_options o = {
		.url = "", .url_file = "", .secret_file = "", .ca_file = "", .command = " "
	};
	(void)state;
	assert_int_equal(notify_open(&o, &n, NULL), 0);
	assert_null(n);
	notify_close(NULL, 1, &r);
	assert_int_equal(r.lost, 0);
}

int main(void)
{
	unsetenv("MUSTER_NOTIFY_URL");
	unsetenv("MUSTER_NOTIFY_TOKEN");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(
			a_full_queue_drops_the_oldest_and_the_next_one_counts_them, tear_down),
		cmocka_unit_test_teardown(a_delivery_that_hangs_is_cut_and_counted, tear_down),
		cmocka_unit_test_teardown(an_error_shows_the_host_only_and_is_told_once, tear_down),
		cmocka_unit_test_teardown(an_error_of_the_connection_shows_the_host_only,
					  tear_down),
		cmocka_unit_test(slack_gets_one_text_without_markup),
		cmocka_unit_test(without_a_place_nothing_is_opened),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
