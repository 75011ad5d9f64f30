/*
 * s3 — requests to an object store that speaks Amazon S3's protocol.
 *
 * A client knows the store: its address, region, keys and patience, all from the environment:
 *
 *     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL   the store's address; "": Amazon's. http:// is used only
 *                                             if it is written there
 *     AWS_REGION, AWS_DEFAULT_REGION          us-east-1 if neither is set
 *     AWS_CA_BUNDLE                           certificates to trust in place of the system's
 *     AWS_MAX_ATTEMPTS                        of one request; 8
 *     MUSTER_S3_STALL_S, MUSTER_S3_TOTAL_S    a request without a byte for this long is sent again;
 *                                             one is given up after this long; 20 and 300 seconds
 *     and the keys (credentials.h)
 *
 * Buckets of Amazon are part of the host's name, those of another store part of the path.
 *
 * A line sends requests, several at a time, over connections that are kept (base/http/pump.h); it
 * belongs to one thread at a time, and clients keep those that are not in use. A call is one
 * request with all its attempts (retry.h). Each attempt is signed anew (sign.h). Every body that is
 * sent carries its SHA-256, both signed and as a checksum that the store verifies and keeps.
 *
 * Errors name the object as "s3://bucket/key", the cause, and the store's own words; no key, no
 * token and no signature is ever in them.
 */
#ifndef MUSTER_BASE_S3_S3_H
#define MUSTER_BASE_S3_S3_H

#include "base/http/http.h"
#include "base/s3/retry.h"
#include "base/s3/sign.h"

#include <stdbool.h>
#include <stdint.h>

struct s3_client; /* used by several threads */
struct s3_line;

int s3_client_open(struct s3_client **out, struct err *e);
void s3_client_close(struct s3_client *c); /* takes NULL; all its lines are given back */

/* A line of the client, given back with s3_line_give. */
int s3_line_take(struct s3_client *c, struct s3_line **out, struct err *e);
void s3_line_give(struct s3_line *l);

enum { S3_FIELDS = 8, S3_BUCKET = 64, S3_KEY = 1025, S3_CODE = 64, S3_ETAG = 128, S3_HOST = 384 };

/* "s3://bucket/a/key" */
struct s3_place {
	char bucket[S3_BUCKET], key[S3_KEY]; /* the key has no empty parts */
};
/* ERR_USAGE: it is no such address. The key may be "". */
int s3_place_parse(const char *path, struct s3_place *out, struct err *e);

struct s3_request {
	const char *method;
	const struct s3_place *at;                            /* borrowed */
	struct s3_field query[S3_FIELDS], headers[S3_FIELDS]; /* borrowed texts */
	int n_query, n_headers;
	const void *body; /* NULL: none; borrowed */
	size_t size;
	size_t most; /* bytes of the answer; 0: enough for any answer of XML */
};

enum s3_state { S3_WAITING, S3_FLYING, S3_DONE };

/* One request with all its attempts. The caller sets `r`, zeroes the rest, and keeps the call where
 * it is until it is done or cut. */
struct s3_call {
	struct s3_request r;
	/* the result: */
	enum s3_state state;
	int rc;             /* 0: the answer is 2xx */
	int status;         /* of the last answer; 0: there was none */
	char code[S3_CODE]; /* of an error answer: "NoSuchKey" */
	bool repeated;      /* an earlier attempt may have reached the store */
	struct err err;
	struct http_answer answer;
	/* private: */
	int attempt;
	double began, next; /* clock_s() */
	unsigned char sha256[S3_SHA256];
	struct buf url, authorization;
	char date[S3_DATE], hex[S3_SHA256_HEX], base64[S3_SHA256_BASE64];
	char host[S3_HOST];
	struct http_header sent[S3_FIELDS + 6];
	struct http_request http;
	struct s3_keys *keys;
	bool renewed; /* the keys were fetched again for it */
	struct s3_call *link;
};

/* Begins a call. It progresses inside s3_line_wait. */
void s3_line_start(struct s3_line *l, struct s3_call *call);
/* Waits until the call is done; returns its result, and its error. */
int s3_line_wait(struct s3_line *l, struct s3_call *call, struct err *e);
/* Lets the calls progress without waiting. */
void s3_line_poll(struct s3_line *l);
/* Ends a call if it is under way, and frees its answer. */
void s3_call_end(struct s3_line *l, struct s3_call *call);

/* Both at once, on a line of the client. The caller ends the call with s3_call_free. */
int s3_do(struct s3_client *c, struct s3_call *call, struct err *e);
void s3_call_free(struct s3_call *call);

void s3_add_query(struct s3_request *r, const char *name, const char *value);
void s3_add_header(struct s3_request *r, const char *name, const char *value);

#endif
