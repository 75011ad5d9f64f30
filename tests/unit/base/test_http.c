/* http: what is sent, what comes back, and each way in which a server answers badly. */
#include "base/http/http.h"
#include "tests/unit/base/http_server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct http_server server;
static atomic_int release;

/* arg: the bytes of the answer. */
static void write_raw(void *arg, int fd, const char *request)
{
	(void)request;
	dprintf(fd, "%s", (const char *)arg);
}

/* The bytes, and then nothing until the test ends. */
static void write_and_hold(void *arg, int fd, const char *request)
{
	write_raw(arg, fd, request);
	while (!release)
		usleep(10000);
}

static void write_much(void *arg, int fd, const char *request)
{
	(void)arg, (void)request;
	char block[1000];
	memset(block, 'x', sizeof block);
	dprintf(fd, "HTTP/1.1 200 OK\r\n\r\n");
	for (int i = 0; i < 1000; i++)
		if (write(fd, block, sizeof block) < 0)
			return;
}

static void start(void (*answer)(void *arg, int fd, const char *request), const char *bytes)
{
	server.answer = answer;
	server.arg = (void *)(uintptr_t)bytes;
	http_server_start(&server, NULL);
}

static struct http_request request_to(const char *url)
{
	return (struct http_request){
		.method = "GET", .url = url, .connect_s = 5, .total_s = 30, .most = 1000
	};
}

/* Sends a request to the server and expects an error with this code and text. */
static void expect_failure(struct http_request r, enum err_code code, const char *text)
{
	struct http_answer a;
	struct err e = ERR_INIT;
	int rc = http_send(&r, &a, NULL, &e);
	if (!rc || e.code != code || !strstr(e.text, text))
		print_error("rc %d, %s: %s; expected %s: %s\n", rc, err_word(e.code), e.text,
			    err_word(code), text);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, code);
	assert_non_null(strstr(e.text, text));
}

static void test_answer(void **state)
{
	(void)state;
	const struct http_header headers[] = { { "X-Token", "s3cret", true },
					       { "X-Name", "me", false } };
	struct http_answer a;
	struct err e = ERR_INIT;
	enum http_reach reach = HTTP_KEPT;
	start(write_raw, "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: "
			 "4\r\n\r\nnone");
	struct http_request r = request_to(server.url);
	r.method = "POST";
	r.headers = headers;
	r.n_headers = 2;
	r.body = "{\"a\": 1}";
	r.content_type = "application/json";
	assert_int_equal(http_send(&r, &a, &reach, &e), 0);
	assert_int_equal(reach, HTTP_SENT);
	assert_int_equal(a.status, 404);
	assert_string_equal(a.content_type, "text/plain");
	assert_string_equal(buf_str(&a.body), "none");
	http_answer_free(&a);
	http_server_stop(&server);
	static const char *const parts[] = {
		"POST / HTTP/1.1\r\n",       "\r\nX-Token: s3cret\r\n",
		"\r\nX-Name: me\r\n",        "\r\nUser-Agent: muster/",
		"\r\nContent-Length: 8\r\n", "\r\nContent-Type: application/json\r\n",
		"\r\n\r\n{\"a\": 1}"
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		assert_non_null(strstr(http_server_last(&server), parts[i]));
	assert_null(strstr(http_server_last(&server), "Expect"));
}

static void test_empty_body_and_delete(void **state)
{
	(void)state;
	struct http_answer a;
	struct err e = ERR_INIT;
	start(write_raw, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	struct http_request r = request_to(server.url);
	r.method = "DELETE";
	assert_int_equal(http_send(&r, &a, NULL, &e), 0);
	assert_string_equal(buf_str(&a.body), "");
	assert_string_equal(a.content_type, "");
	http_answer_free(&a);
	http_server_stop(&server);
	assert_memory_equal(http_server_last(&server), "DELETE / ", 9);
}

static void test_redirect_is_not_followed(void **state)
{
	(void)state;
	struct http_answer a;
	struct err e = ERR_INIT;
	start(write_raw,
	      "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
	struct http_request r = request_to(server.url);
	assert_int_equal(http_send(&r, &a, NULL, &e), 0);
	assert_int_equal(a.status, 302);
	http_answer_free(&a);
	http_server_stop(&server);
	assert_int_equal(server.requests, 1);
}

static void test_proxy_of_the_environment_is_not_used(void **state)
{
	(void)state;
	struct http_answer a;
	struct err e = ERR_INIT;
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
	start(write_raw, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	struct http_request r = request_to(server.url);
	assert_int_equal(http_send(&r, &a, NULL, &e), 0);
	http_answer_free(&a);
	http_server_stop(&server);
	unsetenv("http_proxy");
	unsetenv("ALL_PROXY");
}

static void test_bad_answers(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		enum err_code code;
		const char *text;
	} cases[] = {
		{ "", ERR_NET, "without an answer" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut", ERR_NET,
		  "broke before the whole" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ERR_NET,
		  "broke before the whole" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", ERR_PROTO,
		  "longer than 1000 bytes" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", ERR_PROTO, "is not HTTP" },
		{ "SSH-2.0-OpenSSH_9.2\r\n", ERR_PROTO, "is not HTTP" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		start(write_raw, cases[i].bytes);
		expect_failure(request_to(server.url), cases[i].code, cases[i].text);
		http_server_stop(&server);
	}
	start(write_much, NULL);
	expect_failure(request_to(server.url), ERR_PROTO, "longer than 1000 bytes");
	http_server_stop(&server);
}

static void test_time_outs(void **state)
{
	(void)state;
	static const char *const held[] = { "", "HTTP/1.1 200 OK\r\nContent-Le",
					    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nslow" };
	for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
		release = 0;
		start(write_and_hold, held[i]);
		struct http_request r = request_to(server.url);
		r.total_s = 0.2;
		expect_failure(r, ERR_TIMEOUT, "within 0.2 seconds");
		release = 1;
		http_server_stop(&server);
	}
}

static void test_no_server(void **state)
{
	(void)state;
	start(write_raw, "");
	http_server_stop(&server);
	struct http_answer a;
	struct err e = ERR_INIT;
	enum http_reach reach = HTTP_SENT;
	struct http_request r = request_to(server.url);
	assert_int_equal(http_send(&r, &a, &reach, &e), -1);
	assert_int_equal(e.code, ERR_NET);
	assert_int_equal(reach, HTTP_KEPT);
	expect_failure(request_to("http://name.invalid/"), ERR_NOTFOUND, "unknown");
}

static void test_bad_requests(void **state)
{
	(void)state;
	const struct http_header broken[] = { { "X-Token", "s3cret\r\nX-Other: 1", true } };
	struct http_request r = request_to("http://127.0.0.1:1/");
	r.headers = broken;
	r.n_headers = 1;
	expect_failure(r, ERR_USAGE, "X-Token");
	struct http_answer a;
	struct err e = ERR_INIT;
	assert_int_equal(http_send(&r, &a, NULL, &e), -1);
	assert_null(strstr(e.text, "s3cret"));
	expect_failure(request_to("file:///etc/passwd"), ERR_USAGE, "neither");
	expect_failure(request_to("127.0.0.1:80"), ERR_USAGE, "neither");
	expect_failure(request_to("http://me:word@127.0.0.1:1/"), ERR_USAGE,
		       "must not contain a user name");
	expect_failure(request_to("http://[::1/"), ERR_USAGE, "not an address");
}

static void test_socket(void **state)
{
	(void)state;
	char folder[] = "/tmp/http.XXXXXX", path[64];
	struct http_answer a;
	struct err e = ERR_INIT;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/s", folder);
	server.answer = write_raw;
	server.arg = (void *)(uintptr_t) "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	http_server_start(&server, path);
	struct http_request r = request_to("http://localhost/a");
	r.socket = path;
	assert_int_equal(http_send(&r, &a, NULL, &e), 0);
	assert_string_equal(buf_str(&a.body), "ok");
	http_answer_free(&a);
	assert_memory_equal(http_server_last(&server), "GET /a ", 7);
	http_server_stop(&server);
	expect_failure(r, ERR_NOTFOUND, "there is no such socket");
	fclose(fopen(path, "w"));
	expect_failure(r, ERR_NET, "nobody listens");
	unlink(path);
	rmdir(folder);
}

/* Sends a body of n bytes to a Unix socket, and returns how far it came. */
static enum http_reach reach_of_body(const char *path, size_t n)
{
	struct http_answer a;
	struct err e = ERR_INIT;
	enum http_reach reach = HTTP_KEPT;
	struct http_request r = request_to("http://localhost/a");
	char *body = malloc(n + 1);
	assert_non_null(body);
	memset(body, 'x', n);
	body[n] = '\0';
	r.socket = path;
	r.method = "POST";
	r.body = body;
	r.content_type = "text/plain";
	assert_int_equal(http_send(&r, &a, &reach, &e), -1);
	assert_int_equal(e.code, ERR_NET);
	assert_non_null(strstr(e.text, "the connection broke"));
	free(body);
	return reach;
}

static void test_unread_requests(void **state)
{
	(void)state;
	static const size_t sizes[] = { 1, 1 << 22 }; /* the second fills the socket */
	char folder[] = "/tmp/http.XXXXXX", path[64];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/s", folder);
	server.answer = write_raw;
	/* The request was read, and its answer is cut. */
	server.arg = (void *)(uintptr_t) "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut";
	http_server_start(&server, path);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		server.unread = 1;
		assert_int_equal(reach_of_body(path, sizes[i]), HTTP_UNREAD);
	}
	assert_int_equal(server.requests, 0);
	assert_int_equal(reach_of_body(path, 1), HTTP_SENT);
	http_server_stop(&server);
	rmdir(folder);
}

static void test_tls_needs_tls(void **state)
{
	(void)state;
	char url[256];
	start(write_raw, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	snprintf(url, sizeof url, "https%.60s", server.url + 4);
	expect_failure(request_to(url), ERR_NET, "there is no TLS there");
	http_server_stop(&server);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_empty_body_and_delete),
		cmocka_unit_test(test_redirect_is_not_followed),
		cmocka_unit_test(test_proxy_of_the_environment_is_not_used),
		cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_time_outs),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_socket),
		cmocka_unit_test(test_unread_requests),
		cmocka_unit_test(test_tls_needs_tls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
