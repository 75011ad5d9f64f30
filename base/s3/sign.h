/*
 * sign — AWS Signature Version 4, which proves to an object store who sends a request.
 *
 * The signature covers the method, the path, the query, the headers given here and the SHA-256 of
 * the body. All functions are pure. Keys are wiped from the memory that was used for them.
 */
#ifndef MUSTER_BASE_S3_SIGN_H
#define MUSTER_BASE_S3_SIGN_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <time.h>

enum { S3_SHA256 = 32, S3_SHA256_HEX = 65, S3_SHA256_BASE64 = 45, S3_DATE = 17 };

/* A pair of keys and, if they are temporary, their token ("": none). */
struct s3_keys {
	char id[129], secret[257], token[4097];
	double expires; /* clock_wall_s(); 0: never */
};

struct s3_field {
	const char *name, *value; /* of a header, the name in lower case */
};

struct s3_signing {
	const char *method, *path; /* the path as it is sent, percent-encoded */
	/* not encoded, in any order; parameters of the query, and all headers, host included */
	const struct s3_field *query, *headers;
	size_t n_query, n_headers;
	const char *payload; /* hex SHA-256 of the body */
	const char *date;    /* s3_date() */
	const char *region;
	const struct s3_keys *keys;
};

/* "20130524T000000Z" */
void s3_date(time_t at, char out[S3_DATE]);
/* Appends the value of the header Authorization. ERR_NOMEM. */
int s3_sign(const struct s3_signing *s, struct buf *out, struct err *e);

/* Appends the text percent-encoded; keep_slash: "/" stays. */
void s3_encode(struct buf *out, const char *text, bool keep_slash);
/* Appends "a=b&c=d", encoded and in the order in which it is signed. */
int s3_query(struct buf *out, const struct s3_field *query, size_t n, struct err *e);

void s3_sha256(const void *data, size_t n, unsigned char out[S3_SHA256]);
void s3_hex(const unsigned char *hash, char out[S3_SHA256_HEX]);
void s3_base64(const unsigned char hash[S3_SHA256], char out[S3_SHA256_BASE64]);

#endif
