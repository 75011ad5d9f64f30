#include "base/http/http.h"

#include "base/http/transfer.h"
#include "base/version.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { URL_SHOWN = 200, HEADER_MAX = 8192, HEADERS_MAX = 1 << 16, BUFFER = 256 * 1024 };

bool http_header_valid(const char *value)
{
	for (; *value; value++)
		if ((unsigned char)*value < ' ' || (unsigned char)*value >= 127)
			return false;
	return true;
}

/* How much of the address an error may show: at most URL_SHOWN bytes. */
static int shown_length(const struct http_request *r)
{
	const char *host = strstr(r->url, "://");
	size_t n = strlen(r->url);
	if (r->secret_url && !r->socket)
		n = host ? (size_t)(host + 3 - r->url) + strcspn(host + 3, "/?#") : 0;
	return n < URL_SHOWN ? (int)n : URL_SHOWN;
}

static int check_request(const struct http_request *r, struct err *e)
{
	if (strncmp(r->url, "http://", 7) && strncmp(r->url, "https://", 8))
		return err_set(e, ERR_USAGE,
			       "%.*s: this is neither an http:// nor an https:// address; use one",
			       shown_length(r), r->url);
	for (size_t i = 0; i < r->n_headers; i++)
		if (!http_header_valid(r->headers[i].value) ||
		    strlen(r->headers[i].name) + strlen(r->headers[i].value) > HEADER_MAX - 8)
			return err_set(
				e, ERR_USAGE,
				"the value of the header %s is too long, or has a line break or "
				"an unprintable character; correct it",
				r->headers[i].name);
	return 0;
}

/* A new status line begins the headers again: an answer 100 may come before the real one. */
static size_t keep_header(char *data, size_t size, size_t n, void *arg)
{
	struct http_transfer *t = arg;
	size_t len = size * n;
	t->headers_end = len <= 2; /* the empty line behind them */
	if (len >= 5 && !memcmp(data, "HTTP/", 5))
		buf_clear(&t->answer.headers);
	else if (t->answer.headers.len + len <= HEADERS_MAX)
		buf_add(&t->answer.headers, data, len);
	return len;
}

static size_t keep_body(char *data, size_t size, size_t n, void *arg)
{
	struct http_transfer *t = arg;
	size_t len = size * n;
	t->too_long = len > t->r->most || t->answer.body.len > t->r->most - len;
	if (!t->too_long)
		buf_add(&t->answer.body, data, len);
	return t->too_long || buf_failed(&t->answer.body) ? 0 : len;
}

/* Copies the headers to libcurl's list. NULL: no memory. */
static struct curl_slist *list_headers(const struct curl_library *curl,
				       const struct http_request *r)
{
	struct curl_slist *list = NULL, *more;
	char line[HEADER_MAX];
	for (size_t i = 0; i < r->n_headers + 2; i++) {
		if (i < r->n_headers)
			snprintf(line, sizeof line, "%s: %s", r->headers[i].name,
				 r->headers[i].value);
		else if (i == r->n_headers && r->body)
			snprintf(line, sizeof line, "Content-Type: %s", r->content_type);
		else /* libcurl would ask first whether it may send a long body */
			snprintf(line, sizeof line, "Expect:");
		more = curl->append(list, line);
		if (!more)
			curl->free_all(list);
		list = more;
		if (!list)
			break;
	}
	explicit_bzero(line, sizeof line);
	return list;
}

static void free_headers(const struct curl_library *curl, struct curl_slist *list)
{
	for (struct curl_slist *at = list; at; at = at->next)
		explicit_bzero(at->data, strlen(at->data));
	curl->free_all(list);
}

static CURLcode set_limits(const struct curl_library *curl, CURL *c, const struct http_request *r)
{
	CURLcode rc = CURLE_OK;
#define SET(option, value) rc = rc ? rc : curl->setopt(c, option, value)
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(r->connect_s * 1000));
	SET(CURLOPT_TIMEOUT_MS, (long)(r->total_s * 1000));
	if (strcmp(r->method, "HEAD"))
		SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)r->most);
	if (r->stall_s > 0) {
		SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
		SET(CURLOPT_LOW_SPEED_TIME, (long)ceil(r->stall_s));
	}
	if (r->most > BUFFER)
		SET(CURLOPT_BUFFERSIZE, (long)BUFFER);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PROXY, "");
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_HTTP09_ALLOWED, 0L);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	return rc;
}

static CURLcode set_request(CURL *c, struct http_transfer *t, struct curl_slist *headers)
{
	const struct http_request *r = t->r;
	const struct curl_library *curl = t->curl;
	CURLcode rc = set_limits(curl, c, r);
	SET(CURLOPT_URL, r->url);
	SET(CURLOPT_HTTPHEADER, headers);
	SET(CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
	SET(CURLOPT_ERRORBUFFER, t->said);
	SET(CURLOPT_WRITEFUNCTION, keep_body);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_HEADERFUNCTION, keep_header);
	SET(CURLOPT_HEADERDATA, t);
	if (!strcmp(r->method, "HEAD"))
		SET(CURLOPT_NOBODY, 1L);
	if (r->socket)
		SET(CURLOPT_UNIX_SOCKET_PATH, r->socket);
	if (r->ca_file) {
		SET(CURLOPT_CAINFO, r->ca_file);
		SET(CURLOPT_CAPATH, NULL);
	}
	if (r->body) {
		SET(CURLOPT_POSTFIELDSIZE_LARGE,
		    (curl_off_t)(r->body_size ? r->body_size : strlen(r->body)));
		SET(CURLOPT_POSTFIELDS, r->body);
	}
	SET(CURLOPT_CUSTOMREQUEST, r->method);
	return rc;
#undef SET
}

/* clang-format off */
static const struct {
	CURLcode curl;
	enum err_code code;
	const char *text;
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, ERR_NOTFOUND, "the name of the host is unknown; check the address" },
	{ CURLE_COULDNT_CONNECT,      ERR_NET,      "nobody listens there; is the service running?" },
	{ CURLE_OPERATION_TIMEDOUT,   ERR_TIMEOUT,  NULL },
	{ CURLE_GOT_NOTHING,          ERR_NET,      "the server closed the connection without an answer; see its log" },
	{ CURLE_PARTIAL_FILE,         ERR_NET,      "the connection broke before the whole answer was here; try again" },
	{ CURLE_RECV_ERROR,           ERR_NET,      "the connection broke before the whole answer was here; try again" },
	{ CURLE_SEND_ERROR,           ERR_NET,      "the connection broke while the request was sent; try again" },
	{ CURLE_PEER_FAILED_VERIFICATION, ERR_AUTH, "the certificate of the server is not trusted, or is for another name" },
	{ CURLE_SSL_CACERT_BADFILE,   ERR_NOTFOUND, "the file of trusted certificates cannot be read" },
	{ CURLE_SSL_CONNECT_ERROR,    ERR_NET,      "there is no TLS there; check the address and its port" },
	{ CURLE_UNSUPPORTED_PROTOCOL, ERR_PROTO,    "the answer is not HTTP; check the address and its port" },
	{ CURLE_WEIRD_SERVER_REPLY,   ERR_PROTO,    "the answer is not HTTP; check the address and its port" },
	{ CURLE_FILESIZE_EXCEEDED,    ERR_PROTO,    NULL },
	{ CURLE_URL_MALFORMAT,        ERR_USAGE,    "this is not an address of a server; check it" },
	{ CURLE_LOGIN_DENIED,         ERR_USAGE,    "the address must not contain a user name or a password" },
	{ CURLE_OUT_OF_MEMORY,        ERR_NOMEM,    "no memory for the request" },
};
/* clang-format on */

/* connect() on a Unix socket fails for reasons of the file, which libcurl does not tell apart. */
static int fail_socket(const struct http_request *r, int error, struct err *e)
{
	errno = error;
	if (error == ENOENT || error == ENOTDIR)
		return err_set(
			e, ERR_NOTFOUND,
			"%.200s: there is no such socket; is the service running on this host?",
			r->socket);
	if (error == EACCES || error == EPERM)
		return err_set(
			e, ERR_DENIED,
			"%.200s: you may not connect to this socket; ask its owner for access",
			r->socket);
	return err_set(e, ERR_NET, "%.200s: nobody listens there; is the service running?",
		       r->socket);
}

/* Whether bytes of the request have left this host. */
static bool was_sent(const struct curl_library *curl, CURL *c)
{
	long bytes = 0;
	curl->getinfo(c, CURLINFO_REQUEST_SIZE, &bytes);
	return bytes > 0;
}

/*
 * A Unix socket tells more than TCP. Linux gives ECONNRESET only if the other side closed it with
 * bytes unread, and a send fails only with bytes that nobody will read. Either way the end of the
 * request is missing over there.
 */
static bool is_unread(const struct http_transfer *t, CURLcode code)
{
	long error = 0, status = 0;
	t->curl->getinfo(t->easy, CURLINFO_OS_ERRNO, &error);
	t->curl->getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	return t->r->socket && !status &&
	       (code == CURLE_SEND_ERROR || (code == CURLE_RECV_ERROR && error == ECONNRESET));
}

static enum http_reach reach_of(const struct http_transfer *t, CURLcode code)
{
	if (is_unread(t, code))
		return HTTP_UNREAD;
	return was_sent(t->curl, t->easy) ? HTTP_SENT : HTTP_KEPT;
}

static int fail(const struct http_transfer *t, CURL *c, CURLcode rc, struct err *e)
{
	const struct http_request *r = t->r;
	const struct curl_library *curl = t->curl;
	const char *where = r->socket ? r->socket : r->url;
	int shown = r->socket ? URL_SHOWN : shown_length(r);
	long error = 0;
	curl->getinfo(c, CURLINFO_OS_ERRNO, &error);
	if (t->too_long || rc == CURLE_FILESIZE_EXCEEDED)
		return err_set(
			e, ERR_PROTO,
			"%.*s: the answer is longer than %zu bytes; is this the right service?",
			shown, where, r->most);
	if (buf_failed(&t->answer.body))
		return err_set(e, ERR_NOMEM, "%.*s: no memory for the answer", shown, where);
	if (r->socket && rc == CURLE_COULDNT_CONNECT)
		return fail_socket(r, (int)error, e);
	if (rc == CURLE_OPERATION_TIMEDOUT)
		return was_sent(curl, c)
			       ? err_set(e, ERR_TIMEOUT,
					 "%.*s: no complete answer within %g seconds; is the "
					 "service overloaded, or the network down?",
					 shown, where, r->total_s)
			       : err_set(e, ERR_TIMEOUT,
					 "%.*s: no connection within %g seconds; is the service "
					 "running, and the address right?",
					 shown, where, fmin(r->connect_s, r->total_s));
	for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
		if (failures[i].curl == rc && failures[i].text)
			return err_set(e, failures[i].code, "%.*s: %s (%.200s)", shown, where,
				       failures[i].text, t->said[0] ? t->said : curl->strerror(rc));
	return err_set(e, ERR_NET, "%.*s: the request failed; try again (%.200s)", shown, where,
		       t->said[0] ? t->said : curl->strerror(rc));
}

static void take_status(const struct curl_library *curl, CURL *c, struct http_answer *a)
{
	long status = 0;
	char *type = NULL;
	curl->getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	curl->getinfo(c, CURLINFO_CONTENT_TYPE, &type);
	a->status = (int)status;
	snprintf(a->content_type, sizeof a->content_type, "%s", type ? type : "");
	(void)buf_str(&a->body); /* puts the NUL behind it */
}

int http_transfer_open(struct http_transfer *t, const struct http_request *r, struct err *e)
{
	const struct curl_library *curl = http_curl(e);
	*t = (struct http_transfer){ .curl = curl, .r = r };
	if (!curl || check_request(r, e))
		return -1;
	t->easy = curl->init();
	t->headers = t->easy ? list_headers(curl, r) : NULL;
	if (!t->headers) {
		http_transfer_close(t);
		return err_set(e, ERR_NOMEM, "no memory for a request");
	}
	CURLcode code = set_request(t->easy, t, t->headers);
	if (code) {
		fail(t, t->easy, code, e);
		http_transfer_close(t);
		return -1;
	}
	return 0;
}

int http_transfer_end(struct http_transfer *t, CURLcode code, struct http_answer *out,
		      enum http_reach *reach, struct err *e)
{
	if (reach)
		*reach = reach_of(t, code);
	if (code || !t->headers_end)
		return fail(t, t->easy, code ? code : CURLE_PARTIAL_FILE, e);
	take_status(t->curl, t->easy, &t->answer);
	*out = t->answer;
	t->answer = (struct http_answer){ 0 };
	return 0;
}

void http_transfer_close(struct http_transfer *t)
{
	if (t->headers)
		free_headers(t->curl, t->headers);
	if (t->easy)
		t->curl->cleanup(t->easy);
	http_answer_free(&t->answer);
}

int http_send(const struct http_request *r, struct http_answer *out, enum http_reach *reach,
	      struct err *e)
{
	struct http_transfer t;
	if (reach)
		*reach = HTTP_KEPT;
	if (http_transfer_open(&t, r, e))
		return -1;
	int rc = http_transfer_end(&t, t.curl->perform(t.easy), out, reach, e);
	http_transfer_close(&t);
	return rc;
}

bool http_answer_header(const struct http_answer *a, const char *name, char *out, size_t n)
{
	size_t len = strlen(name);
	const char *at = a->headers.data, *end = at ? at + a->headers.len : at;
	for (const char *line; at < end; at = line + 1) {
		line = memchr(at, '\n', (size_t)(end - at));
		if (!line)
			break;
		if ((size_t)(line - at) <= len || strncasecmp(at, name, len) || at[len] != ':')
			continue;
		const char *from = at + len + 1, *to = line;
		while (from < to && (*from == ' ' || *from == '\t'))
			from++;
		while (to > from && (to[-1] == '\r' || to[-1] == ' ' || to[-1] == '\t'))
			to--;
		if ((size_t)(to - from) >= n)
			break;
		memcpy(out, from, (size_t)(to - from));
		out[to - from] = '\0';
		return true;
	}
	out[0] = '\0';
	return false;
}

void http_answer_free(struct http_answer *a)
{
	buf_fini(&a->body);
	buf_fini(&a->headers);
	*a = (struct http_answer){ .body = BUF_INIT };
}
