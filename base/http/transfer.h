/* transfer — one request in libcurl's hands. For http.c and pump.c only. */
#ifndef MUSTER_BASE_HTTP_TRANSFER_H
#define MUSTER_BASE_HTTP_TRANSFER_H

#include "base/http/curl.h"
#include "base/http/http.h"

struct http_transfer {
	const struct curl_library *curl;
	const struct http_request *r; /* borrowed until the end */
	CURL *easy;
	struct curl_slist *headers;
	struct http_answer answer;
	bool too_long;
	bool headers_end; /* libcurl takes an answer that is cut within its headers for a whole one */
	char said[CURL_ERROR_SIZE];
};

/* libcurl keeps pointers into *t, which must not move until it is closed. */
int http_transfer_open(struct http_transfer *t, const struct http_request *r, struct err *e);
/* Turns libcurl's result into ours, as http_send. */
int http_transfer_end(struct http_transfer *t, CURLcode code, struct http_answer *out,
		      enum http_reach *reach, struct err *e);
void http_transfer_close(struct http_transfer *t);

#endif
