/* rest: Slurm's REST interface with a server in a thread: orders, addresses, tokens, and every way in
 * which a server answers badly. test_rest_forms.c has what the versions differ in. */
#include "launcher/slurm/rest/parts.h"
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

/* {"exp": 4102444800, "sun": "ana"}, and the same that expired in 1970 */
#define TOKEN   "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOiA0MTAyNDQ0ODAwLCAic3VuIjogImFuYSJ9.c2VjcmV0"
#define EXPIRED "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOiAxMDAsICJzdW4iOiAiYW5hIn0.c2VjcmV0"
#define OK      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
#define OPENAPI(v) \
	OK "{\"paths\": {\"/slurm/v0.0." v "/job/submit\": {}, \"/slurm/v0.0.37/job/submit\": " \
	   "{}}}"

static struct http_server server;
static char folder[] = "/tmp/rest.XXXXXX", path[100], url[120];
static const char *_Atomic openapi,
	*_Atomic answer; /* what the server answers; NULL: nothing, and it waits */
static atomic_int release;

static void reply(void *arg, int fd, const char *request)
{
	(void)arg;
	const char *bytes = strstr(request, " /openapi") ? openapi : answer;
	if (bytes)
		dprintf(fd, "%s", bytes);
	while (!bytes && !release)
		usleep(10000);
}

static int set_up(void **state)
{
	(void)state;
	openapi = OPENAPI("41");
	answer = OK "{}";
	release = 0;
	setenv("SLURM_JWT", TOKEN, 1);
	unsetenv("SLURM_USER_NAME");
	server.answer = reply;
	http_server_start(&server, path);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	release = 1;
	http_server_stop(&server);
	return 0;
}

static int open_rest(const char *address, const char *token_file, struct slurm_rest **r,
		     struct err *e)
{
	const struct slurm_rest_options o = { address, token_file, "" };
	*e = (struct err)ERR_INIT;
	return slurm_rest_open(&o, r, e);
}

static struct slurm_rest *open_well(void)
{
	struct slurm_rest *r = NULL;
	struct err e;
	if (open_rest(url, "", &r, &e))
		fail_msg("%s", e.text);
	return r;
}

static void expect_text(const struct err *e, enum err_code code, const char *text)
{
	if (e->code != code || !strstr(e->text, text))
		fail_msg("%s: %s; expected %s: %s", err_word(e->code), e->text, err_word(code),
			 text);
	assert_null(strstr(e->text, "c2VjcmV0")); /* the token's signature */
}

/* --- A server that answers badly --- */

struct bad {
	const char *name, *openapi, *answer; /* openapi NULL: a good one */
	enum err_code code;
	const char *text;
};

#define SAYS(status, body) "HTTP/1.1 " status "\r\nContent-Type: application/json\r\n\r\n" body
#define ERRORS(text)       "{\"errors\": [{\"description\": \"d\", \"error\": \"" text "\"}]}"

/* clang-format off */
static const struct bad bads[] = {
	{ "401", NULL, SAYS("401 UNAUTHORIZED", "Authentication failure"), ERR_AUTH, "get a new token" },
	{ "403", NULL, SAYS("403 Forbidden", ""), ERR_DENIED, "does not allow this" },
	{ "404", NULL, SAYS("404 NOT FOUND", ""), ERR_NOTFOUND, "is [slurm] rest the address" },
	{ "407 of a proxy", NULL, SAYS("407 Proxy", ""), ERR_PROTO, "a proxy asks" },
	{ "418", NULL, SAYS("418 Teapot", ""), ERR_PROTO, "refuses the request (status 418" },
	{ "429", NULL, SAYS("429 Slow", ""), ERR_TIMEOUT, "too many requests" },
	{ "500", NULL, SAYS("500 INTERNAL ERROR", ""), ERR_IO, "see the log of slurmrestd" },
	{ "500 with reasons", NULL, SAYS("500 INTERNAL ERROR", ERRORS("Requested reservation is invalid")), ERR_IO, "d: Requested reservation is invalid; check [slurm] reservation" },
	{ "500 for a token", NULL, SAYS("500 INTERNAL ERROR", ERRORS("Protocol authentication error")), ERR_AUTH, "get a new token" },
	{ "500 without a controller", NULL, SAYS("500 INTERNAL ERROR", ERRORS("Unable to contact slurm controller (connect failure)")), ERR_TIMEOUT, "try again when it is up" },
	{ "502", NULL, SAYS("502 Bad Gateway", "<html>"), ERR_NET, "does not reach it" },
	{ "redirect", NULL, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", ERR_PROTO, "does not send the token there" },
	{ "204", NULL, "HTTP/1.1 204 No Content\r\n\r\n", ERR_PROTO, "status 204" },
	{ "errors with 200", NULL, OK ERRORS("Invalid job id specified"), ERR_NOTFOUND, "is unknown, or ended" },
	{ "errors that are numbers", NULL, OK "{\"errors\": [7]}", ERR_IO, "a message without a text" },
	{ "HTML", NULL, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>hello</html>", ERR_PROTO, "it is text/html, and not valid JSON" },
	{ "empty", NULL, OK "", ERR_PROTO, "it is empty" },
	{ "broken JSON", NULL, OK "{\"jobs\": [", ERR_PROTO, "not valid JSON" },
	{ "JSON of another kind", NULL, OK "[1, 2]", ERR_PROTO, "JSON of another kind" },
	{ "deep JSON", NULL, OK "[[[[[[[[[[[[[[[[[[[[[[", ERR_PROTO, "not valid JSON" },
	{ "no job in it", NULL, OK "{\"jobs\": []}", ERR_NOTFOUND, "does not contain it" },
	{ "wrong types", NULL, OK "{\"jobs\": {\"job_id\": 7}}", ERR_NOTFOUND, "does not contain it" },
	{ "a job without a state", NULL, OK "{\"jobs\": [{\"job_id\": 7, \"job_state\": 3}]}", ERR_PROTO, "does not say its state" },
	{ "cut body", NULL, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"jobs\"", ERR_NET, "broke before the whole answer" },
	{ "closed without an answer", NULL, "", ERR_NET, "without an answer" },
	{ "not HTTP", NULL, "SSH-2.0-OpenSSH_9.2\r\n", ERR_PROTO, "is not HTTP" },
	{ "a negative length", NULL, "HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n{}", ERR_PROTO, "is not HTTP" },
	{ "too long", NULL, "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", ERR_PROTO, "longer than" },
	{ "never", NULL, NULL, ERR_TIMEOUT, "no complete answer within" },
	{ "an unknown version", OPENAPI("99"), NULL, ERR_UNSUPPORTED, "speaks version v0.0.99" },
	{ "an old version", OK "{\"paths\": {\"/slurm/v0.0.36/job/submit\": {}}}", NULL, ERR_UNSUPPORTED, "speaks version v0.0.36" },
	{ "another service", OK "{\"paths\": {\"/pets\": {}}}", NULL, ERR_PROTO, "describes no Slurm REST interface" },
	{ "no paths", OK "{\"paths\": 3}", NULL, ERR_PROTO, "describes no Slurm REST interface" },
	{ "a web page as description", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", NULL, ERR_PROTO, "text/html" },
	{ "401 at once", SAYS("401 UNAUTHORIZED", "Authentication failure"), NULL, ERR_AUTH, "get a new token" },
	{ "404 at once", SAYS("404 NOT FOUND", "none"), NULL, ERR_NOTFOUND, "is [slurm] rest the address" },
};
/* clang-format on */

static void test_bad_servers(void **state)
{
	(void)state;
	assert_true(sizeof bads / sizeof *bads >= 20);
	for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
		const struct bad *b = &bads[i];
		struct slurm_rest *r = NULL;
		struct queue_job job;
		struct err e;
		openapi = b->openapi ? b->openapi : OPENAPI("41");
		answer = b->answer;
		release = b->answer || b->openapi;
		int rc = open_rest(url, "", &r, &e);
		if (!rc) {
			r->total_s = b->answer ? 0 : 0.3;
			rc = slurm_rest_show(r, "7", &job, &e);
		}
		if (!rc)
			fail_msg("%s: no error", b->name);
		expect_text(&e, b->code, b->text);
		slurm_rest_close(r);
		release = 1;
	}
}

static void test_no_server(void **state)
{
	(void)state;
	struct slurm_rest *r;
	struct err e;
	char other[160];
	snprintf(other, sizeof other, "%s.none", url);
	assert_int_equal(open_rest(other, "", &r, &e), -1);
	expect_text(&e, ERR_NOTFOUND, "is slurmrestd running on this host");
	snprintf(other, sizeof other, "unix:%s", folder);
	assert_int_equal(open_rest(other, "", &r, &e), -1);
	expect_text(&e, ERR_USAGE, "is not a socket");
	assert_int_equal(open_rest("http://127.0.0.1:1", "", &r, &e), -1);
	expect_text(&e, ERR_NET, "nobody listens there");
}

/* Needs root, to give the socket away. */
static void test_socket_of_another_user(void **state)
{
	(void)state;
	struct slurm_rest *r = NULL;
	struct err e;
	if (geteuid())
		skip();
	assert_int_equal(chown(path, 12345, 12345), 0);
	slurm_rest_close(open_well()); /* its folder is ours */
	assert_int_equal(chmod(folder, 01777), 0);
	assert_int_equal(open_rest(url, "", &r, &e), -1);
	expect_text(&e, ERR_AUTH, "belongs to another user");
	assert_int_equal(chmod(folder, 0700), 0);
}

/* --- Addresses and tokens --- */

static void test_addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *url; /* url NULL: refused */
	} cases[] = {
		{ "https://host:6820", "https://host:6820" },
		{ "https://host/slurm/", "https://host/slurm" },
		{ "http://localhost:6820/", "http://localhost:6820" },
		{ "http://127.0.0.1:1", "http://127.0.0.1:1" },
		{ "http://[::1]:1", "http://[::1]:1" },
		{ "unix:/run/s", "http://localhost" },
		{ "http://host:6820", NULL },
		{ "http://127.0.0.1.evil:1", NULL },
		{ "http://localhost.evil:1", NULL },
		{ "https://", NULL },
		{ "https://me:word@host", NULL },
		{ "https://host?a=b", NULL },
		{ "unix:run/s", NULL },
		{ "ftp://host", NULL },
		{ "host:6820", NULL },
		{ "https://ho\nst", NULL },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct slurm_rest r = { .version = 0 };
		struct err e = ERR_INIT;
		int rc = slurm_rest_locate(cases[i].text, &r, &e);
		if ((rc == 0) != (cases[i].url != NULL))
			fail_msg("%s: %d %s", cases[i].text, rc, e.text);
		if (!rc)
			assert_string_equal(r.url, cases[i].url);
		else
			assert_null(strstr(e.text, "me:word"));
	}
}

static void test_tokens(void **state)
{
	(void)state;
	char file[120];
	struct slurm_rest *r;
	struct err e;
	setenv("SLURM_JWT", EXPIRED, 1);
	assert_int_equal(open_rest(url, "", &r, &e), -1);
	expect_text(&e, ERR_AUTH, "expired");
	unsetenv("SLURM_JWT");
	assert_int_equal(open_rest(url, "", &r, &e), -1);
	expect_text(&e, ERR_AUTH, "needs a token");
	setenv("SLURM_JWT", "two words", 1);
	assert_int_equal(open_rest(url, "", &r, &e), -1);
	expect_text(&e, ERR_USAGE, "holds no token");
	snprintf(file, sizeof file, "%s/token", folder);
	assert_int_equal(open_rest(url, file, &r, &e), -1);
	expect_text(&e, ERR_NOTFOUND, "[slurm] rest_token_file");
	FILE *f = fopen(file, "w");
	fprintf(f, "SLURM_JWT=%s\n", TOKEN);
	fclose(f);
	chmod(file, 0640);
	assert_int_equal(open_rest(url, file, &r, &e), -1);
	expect_text(&e, ERR_DENIED, "chmod 600");
	chmod(file, 0600);
	assert_int_equal(open_rest(url, file, &r, &e), 0);
	assert_non_null(strstr(http_server_last(&server), "\r\nX-SLURM-USER-TOKEN: " TOKEN "\r\n"));
	assert_non_null(strstr(http_server_last(&server), "\r\nX-SLURM-USER-NAME: ana\r\n"));
	slurm_rest_close(r);
	setenv("SLURM_USER_NAME", "eve", 1);
	assert_int_equal(open_rest(url, file, &r, &e), -1);
	expect_text(&e, ERR_AUTH, "is user ana's");
	unlink(file);
}

/* --- Versions --- */

static void test_highest_known_version(void **state)
{
	(void)state;
	openapi = OK "{\"paths\": {\"/slurm/v0.0.39/job/submit\": {}, "
		     "\"/slurm/v0.0.41/job/submit\": {}, "
		     "\"/slurm/v0.0.42/ping\": {}, \"/slurmdb/v0.0.43/job/submit\": {}, "
		     "\"/slurm/v0.0.77/job/submit\": {}}}";
	struct slurm_rest *r = open_well();
	assert_int_equal(slurm_rest_version(r), 41);
	slurm_rest_close(r);
}

/* --- Jobs --- */

static void expect_job(const char *bytes)
{
	struct slurm_rest *r = open_well();
	struct queue_job job;
	struct err e = ERR_INIT;
	answer = bytes;
	if (slurm_rest_show(r, "7", &job, &e))
		fail_msg("%s", e.text);
	slurm_rest_close(r);
	assert_string_equal(job.state, "RUNNING");
	assert_string_equal(job.reason, "");
	assert_string_equal(job.name, "try");
	assert_string_equal(job.nodes, "n[1-2]");
	assert_string_equal(job.comment, "a b");
	assert_int_equal(job.n_nodes, 2);
	assert_int_equal(job.limit, 60);
	assert_int_equal(job.starts, 1795380000);
	assert_int_equal(job.restarts, 1);
}

static void test_jobs_of_each_form(void **state)
{
	(void)state;
	expect_job(OK "{\"errors\": [], \"jobs\": [{\"job_id\": 7, \"job_state\": \"RUNNING\", "
		      "\"name\": \"try\", "
		      "\"state_reason\": \"None\", \"nodes\": \"n[1-2]\", \"node_count\": 2, "
		      "\"time_limit\": 60, "
		      "\"start_time\": 1795380000, \"comment\": \"a b\", \"restart_cnt\": 1}]}");
	expect_job(OK
		   "{\"errors\": [], \"jobs\": [{\"job_id\": 6}, {\"job_id\": 7, \"job_state\": "
		   "[\"RUNNING\", "
		   "\"COMPLETING\"], \"name\": \"try\", \"state_reason\": \"None\", \"nodes\": "
		   "\"n[1-2]\", "
		   "\"node_count\": {\"set\": true, \"infinite\": false, \"number\": 2}, "
		   "\"time_limit\": {\"set\": true, \"infinite\": false, \"number\": 60}, "
		   "\"start_time\": {\"set\": true, \"infinite\": false, \"number\": 1795380000}, "
		   "\"comment\": \"a b\", \"restart_cnt\": 1}]}");
}

static void test_orders(void **state)
{
	(void)state;
	struct slurm_rest *r = open_well();
	struct err e = ERR_INIT;
	struct queue_change c = { .limit = 90, .comment = "a \"b\"", .nice = QUEUE_NICE_NONE };
	answer = OK "{\"errors\": []}";
	assert_int_equal(slurm_rest_update(r, "7", &c, &e), 0);
	assert_non_null(strstr(http_server_last(&server), "POST /slurm/v0.0.41/job/7 HTTP/1.1"));
	assert_non_null(strstr(http_server_last(&server), "\"comment\":\"a \\\"b\\\"\""));
	assert_non_null(strstr(http_server_last(&server),
			       "\"time_limit\":{\"set\":true,\"infinite\":false,\"number\":90}"));
	assert_null(strstr(http_server_last(&server), "nice"));
	assert_int_equal(slurm_rest_cancel(r, "7", 10, &e), 0);
	assert_non_null(strstr(http_server_last(&server),
			       "DELETE /slurm/v0.0.41/job/7?signal=10 HTTP/1.1"));
	assert_int_equal(slurm_rest_cancel(r, "7", 0, &e), 0);
	assert_non_null(strstr(http_server_last(&server), "DELETE /slurm/v0.0.41/job/7 HTTP/1.1"));
	answer = OK "{\"errors\": [], \"status\": [{\"error\": {\"code\": 0}}], \"results\": "
		    "[{\"error_code\": 0}]}";
	assert_int_equal(slurm_rest_cancel(r, "7", 0, &e), 0);
	answer = OK "{\"errors\": [], \"status\": [{\"error\": {\"code\": 2017, \"string\": "
		    "\"Invalid job id\"}}]}";
	assert_int_equal(slurm_rest_cancel(r, "7", 0, &e), -1);
	expect_text(&e, ERR_IO, "job 7: Slurm refuses the request: Invalid job id");
	answer = OK "{\"results\": [{\"error_code\": 2015, \"error\": \"Invalid qos\", \"why\": "
		    "\"no\"}]}";
	assert_int_equal(slurm_rest_update(r, "7", &c, &e), -1);
	expect_text(&e, ERR_IO, "Invalid qos: no; check [slurm] qos");
	assert_int_equal(slurm_rest_cancel(r, "7/../8", 0, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	slurm_rest_close(r);
}

/* --- Submission --- */

static const char script[] = "#!/bin/bash\n#SBATCH --nodes=2\ntrue\n";

static void submit(const char *bytes, double total_s, int expected, enum err_code code,
		   const char *text)
{
	struct slurm_rest *r = open_well();
	char id[LAUNCH_JOB_ID] = "";
	struct buf notes = BUF_INIT;
	struct err e = ERR_INIT;
	answer = bytes;
	r->total_s = total_s;
	assert_int_equal(slurm_rest_submit(r, script, NULL, id, &notes, &e), expected);
	if (expected) {
		expect_text(&e, code, text);
	} else {
		assert_string_equal(id, "77");
		assert_non_null(strstr(buf_str(&notes), text));
	}
	buf_fini(&notes);
	slurm_rest_close(r);
}

static void test_submissions(void **state)
{
	(void)state;
	submit(OK "{\"errors\": [], \"job_id\": 77}", 0, 0, ERR_NONE, "");
	assert_non_null(
		strstr(http_server_last(&server), "POST /slurm/v0.0.41/job/submit HTTP/1.1"));
	assert_null(strstr(strstr(http_server_last(&server), "\r\n\r\n"),
			   "c2VjcmV0")); /* the token is only a header */
	submit(OK "{\"errors\": [], \"result\": {\"job_id\": 77}}", 0, 0, ERR_NONE, "");
	submit(OK "{\"errors\": [{\"error\": \"it waits\"}], \"job_id\": 77}", 0, 0, ERR_NONE,
	       "it waits");
	submit(OK "{\"warnings\": [{\"description\": \"old field\"}], \"job_id\": 77}", 0, 0,
	       ERR_NONE, "old field");
	submit(OK "{\"errors\": [{\"error\": \"Invalid license\"}]}", 0, -1, ERR_PROTO,
	       "Invalid license; check [slurm] licenses");
	submit(OK "{\"errors\": [], \"job_id\": \"x\"}", 0, -1, ERR_PROTO, "has no job id");
	submit(OK "{\"errors\": [], \"job_id\": -5}", 0, -1, ERR_PROTO, "has no job id");
	submit("", 0, -1, ERR_NET, "look there before you submit again");
	submit(NULL, 0.3, -1, ERR_TIMEOUT, "look there before you submit again");
}

/* --- Connections that break --- */

static int show_job(struct slurm_rest *r, struct err *e)
{
	struct queue_job job;
	return slurm_rest_show(r, "7", &job, e);
}

static int cancel_job(struct slurm_rest *r, struct err *e)
{
	return slurm_rest_cancel(r, "7", 0, e);
}

static int submit_job(struct slurm_rest *r, struct err *e)
{
	char id[LAUNCH_JOB_ID] = "";
	struct buf notes = BUF_INIT;
	int rc = slurm_rest_submit(r, script, NULL, id, &notes, e);
	buf_fini(&notes);
	return rc;
}

/* clang-format off */
static const struct {
	const char *name;
	int (*call)(struct slurm_rest *r, struct err *e);
	const char *answer;
	int unread, rc, requests; /* connections closed at first; what the call returns; requests read */
} breaks[] = {
	{ "GET, unread once",      show_job,   OK "{\"jobs\": [{\"job_id\": 7, \"job_state\": \"RUNNING\"}]}", 1, 0, 1 },
	{ "GET, unread twice",     show_job,   OK "{\"jobs\": [{\"job_id\": 7, \"job_state\": \"RUNNING\"}]}", 2, 0, 1 },
	{ "GET, unread always",    show_job,   OK "{}", 3, -1, 0 },
	{ "GET, read",             show_job,   "", 0, -1, 3 },
	{ "POST, unread twice",    submit_job, OK "{\"job_id\": 77}", 2, 0, 1 },
	{ "POST, unread always",   submit_job, OK "{}", 3, -1, 0 },
	{ "POST, read",            submit_job, "", 0, -1, 1 },
	{ "POST, unread and read", submit_job, "", 1, -1, 1 },
	{ "POST, a cut answer",    submit_job, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{", 0, -1, 1 },
	{ "DELETE, unread once",   cancel_job, OK "{}", 1, 0, 1 },
	{ "DELETE, read",          cancel_job, "", 0, -1, 1 },
};
/* clang-format on */

static void test_broken_connections(void **state)
{
	(void)state;
	struct slurm_rest *r = open_well();
	for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
		struct err e = ERR_INIT;
		answer = breaks[i].answer;
		server.unread = breaks[i].unread;
		server.requests = 0;
		int rc = breaks[i].call(r, &e);
		if (rc != breaks[i].rc || server.requests != breaks[i].requests || server.unread)
			fail_msg("%s: %d after %d requests: %s", breaks[i].name, rc,
				 server.requests, e.text);
		if (rc)
			assert_int_equal(e.code, ERR_NET);
		/* It is only said of a job that may be in the queue. */
		if (rc && breaks[i].call == submit_job)
			assert_int_equal(strstr(e.text, "look there before you submit") != NULL,
					 breaks[i].requests > 0);
	}
	slurm_rest_close(r);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof path, "%s/s", folder);
	snprintf(url, sizeof url, "unix:%s", path);
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_SERVER(test_bad_servers),
		WITH_SERVER(test_no_server),
		WITH_SERVER(test_socket_of_another_user),
		cmocka_unit_test(test_addresses),
		WITH_SERVER(test_tokens),
		WITH_SERVER(test_highest_known_version),
		WITH_SERVER(test_jobs_of_each_form),
		WITH_SERVER(test_orders),
		WITH_SERVER(test_submissions),
		WITH_SERVER(test_broken_connections),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
