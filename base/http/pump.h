/*
 * pump — several HTTP requests at the same time, from one thread, over connections that are kept.
 *
 * Requests progress only inside http_pump_next. A pump belongs to one thread at a time.
 */
#ifndef MUSTER_BASE_HTTP_PUMP_H
#define MUSTER_BASE_HTTP_PUMP_H

#include "base/http/http.h"

struct http_pump;

int http_pump_open(struct http_pump **out, struct err *e);
/* Cuts the requests that are under way. Takes NULL. */
void http_pump_close(struct http_pump *p);

/* Sends a request. It and all that it points to are borrowed until it has landed or is cut. */
int http_pump_start(struct http_pump *p, const struct http_request *r, void *tag, struct err *e);
/* Ends the request of this tag, if it is under way. */
void http_pump_cut(struct http_pump *p, const void *tag);

/* A request that is over. */
struct http_landed {
	void *tag;
	int rc; /* as http_send */
	struct err err;
	struct http_answer answer; /* after a success; the caller frees it */
};

/* Waits up to timeout_s for a request to land: true, otherwise false. */
bool http_pump_next(struct http_pump *p, double timeout_s, struct http_landed *out);

#endif
