/*
 * http — sends one HTTP request and reads its answer, through libcurl.
 *
 * This room alone wraps libcurl. It is for services that a person has named: Slurm's REST interface
 * (launcher/slurm/rest/rest.h) and object stores (base/s3/s3.h), which send several requests at once
 * (pump.h). What libcurl would do on its own is switched off:
 *   - no redirect is followed: it would carry a token to another host;
 *   - no proxy is used, also if the environment names one, and ~/.netrc is not read;
 *   - only http and https, and a server's certificate must be valid for its name;
 *   - no cookies, no compression; an answer of HTTP/0.9 is refused.
 *
 * A header marked as secret never appears in an error. Nothing here logs. The calls block; several
 * threads may call at the same time.
 */
#ifndef MUSTER_BASE_HTTP_HTTP_H
#define MUSTER_BASE_HTTP_HTTP_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct http_header {
	const char *name, *value; /* the value: printable text in one line */
	bool secret;              /* its value does not appear in errors */
};

struct http_request {
	const char *method; /* "GET", "HEAD", "POST", "PUT", "DELETE" */
	/* http:// or https://, without a user name. With `socket` the host is only a name. */
	const char *url;
	bool secret_url;    /* only its scheme and host appear in errors */
	const char *socket; /* path of a Unix socket to connect to; NULL: the URL's host */
	const char
		*ca_file; /* certificates to trust in place of the system's; NULL: the system's */
	const struct http_header *headers;
	size_t n_headers;
	const char *body;         /* NULL: none */
	size_t body_size;         /* 0: the body is text that a NUL ends */
	const char *content_type; /* of the body */
	double connect_s;         /* for the connection, TLS included */
	double total_s;           /* until the whole answer is here */
	double stall_s;           /* without a byte in either direction; 0: no such limit */
	size_t most;              /* bytes of an answer's body; a longer one is an error */
};

struct http_answer {
	int status;            /* 200, 404, … */
	char content_type[80]; /* "": none */
	struct buf headers;    /* the lines "Name: value\n" as they came */
	struct buf body;       /* any bytes, and a NUL behind them */
};

/* How far a request came. Only after HTTP_SENT may the server have acted on it. */
enum http_reach {
	HTTP_KEPT,   /* no byte of it has left this host */
	HTTP_UNREAD, /* the server closed the connection before it had read all of it */
	HTTP_SENT,
};

/*
 * Sends the request. 0: the server has answered, with any status; free the answer with
 * http_answer_free(). An error names the server and the cause:
 *
 *     ERR_USAGE     the request itself is invalid
 *     ERR_UNSUPPORTED  this host has no libcurl
 *     ERR_NET       no connection, or it broke before the whole answer was here
 *     ERR_DENIED    this user may not connect to the socket
 *     ERR_NOTFOUND  the socket does not exist, or the host's name is unknown
 *     ERR_TIMEOUT   one of the times has passed
 *     ERR_AUTH      the server's certificate is not valid for its name, or not trusted
 *     ERR_PROTO     the answer is not HTTP, or longer than `most`
 *
 * *reach, if not NULL, is how far the request came.
 */
int http_send(const struct http_request *r, struct http_answer *out, enum http_reach *reach,
	      struct err *e);
void http_answer_free(struct http_answer *a);
/* Copies the value of the header to `out` of n bytes. False and "": there is none, or it is longer.
 */
bool http_answer_header(const struct http_answer *a, const char *name, char *out, size_t n);

/* Whether a text may be the value of a header: one line of printable characters. */
bool http_header_valid(const char *value);

#endif
