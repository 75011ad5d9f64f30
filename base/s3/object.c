#include "base/s3/object.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A lie, or a lost object, is worth a second try. */
enum { PUT_TRIES = 3 };

static void read_object(const struct http_answer *a, struct s3_object *out)
{
	char size[32];
	http_answer_header(a, "Content-Length", size, sizeof size);
	out->size = strtoll(size, NULL, 10);
	http_answer_header(a, "ETag", out->etag, sizeof out->etag);
	http_answer_header(a, "x-amz-checksum-sha256", out->sha256, sizeof out->sha256);
}

int s3_head(struct s3_client *c, const struct s3_place *at, struct s3_object *out, struct err *e)
{
	struct s3_call call = { .r = { .method = "HEAD", .at = at } };
	s3_add_header(&call.r, "x-amz-checksum-mode", "ENABLED");
	int rc = s3_do(c, &call, e);
	if (!rc)
		read_object(&call.answer, out);
	s3_call_free(&call);
	return rc;
}

int s3_get(struct s3_client *c, const struct s3_place *at, size_t most, struct buf *out,
	   char etag[S3_ETAG], struct err *e)
{
	struct s3_call call = { .r = { .method = "GET", .at = at, .most = most } };
	int rc = s3_do(c, &call, e);
	if (!rc && call.answer.body.len > most)
		rc = err_set(e, ERR_CORRUPT, "s3://%s/%s: is longer than %zu bytes", at->bucket,
			     at->key, most);
	if (!rc) {
		buf_add(out, call.answer.body.data ? call.answer.body.data : "",
			call.answer.body.len);
		if (etag)
			http_answer_header(&call.answer, "ETag", etag, S3_ETAG);
		if (buf_failed(out))
			rc = err_set(e, ERR_NOMEM, "s3://%s/%s: no memory for %zu bytes",
				     at->bucket, at->key, call.answer.body.len);
	}
	s3_call_free(&call);
	return rc;
}

/* Whether the object has these bytes: 1, 0, or -1. Compares by the store's checksum if it keeps one,
 * otherwise by reading. A missing object has other bytes. */
static int has_bytes(struct s3_client *c, const struct s3_place *at, const void *data, size_t n,
		     const char *sha256, struct err *e)
{
	struct s3_object o;
	struct buf b = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = s3_head(c, at, &o, &why);
	if (!rc && o.size != (int64_t)n)
		return 0;
	if (!rc && o.sha256[0] && n > 0)
		return !strcmp(o.sha256, sha256);
	if (!rc)
		rc = s3_get(c, at, n, &b, NULL, &why);
	int same = !rc ? b.len == n && (!n || !memcmp(b.data, data, n)) : 0;
	buf_fini(&b);
	if (!rc || why.code == ERR_NOTFOUND || why.code == ERR_CORRUPT)
		return same;
	return err_set(e, why.code, "%s", why.text);
}

/* *taken: the store said that it has the bytes. */
static int put_once(struct s3_client *c, const struct s3_place *at, const void *data, size_t n,
		    enum s3_if when, const char *etag, bool *taken, struct err *e)
{
	struct s3_call call = {
		.r = { .method = "PUT", .at = at, .body = n ? data : "", .size = n }
	};
	char kept[96];
	struct err why = ERR_INIT;
	if (when == S3_IF_NONE)
		s3_add_header(&call.r, "if-none-match", "*");
	if (when == S3_IF_SAME)
		s3_add_header(&call.r, "if-match", etag);
	int rc = s3_do(c, &call, &why);
	bool answered = call.status > 0;
	*taken = !rc;
	http_answer_header(&call.answer, "x-amz-checksum-sha256", kept, sizeof kept);
	/* another attempt, whose answer was lost, may be the one that was first */
	int same = !rc || call.status == 412 || !answered
			   ? has_bytes(c, at, data, n, call.base64, rc ? NULL : e)
			   : 0;
	if (rc && same != 1)
		rc = err_set(e, why.code, "%s", why.text);
	else if (same < 0)
		rc = -1;
	else if (!same || (!rc && kept[0] && n && strcmp(kept, call.base64)))
		rc = err_set(
			e, ERR_CORRUPT,
			"s3://%s/%s: the store said that it keeps these bytes, but it does not "
			"have them; have the store checked",
			at->bucket, at->key);
	else
		rc = 0;
	s3_call_free(&call);
	return rc;
}

int s3_put(struct s3_client *c, const struct s3_place *at, const void *data, size_t n,
	   enum s3_if when, const char *etag, struct err *e)
{
	struct err why = ERR_INIT;
	bool taken;
	int rc = -1;
	for (int i = 0; i < PUT_TRIES && rc; i++) {
		rc = put_once(c, at, data, n, when, etag, &taken, &why);
		if (rc && why.code != ERR_CORRUPT)
			break;
		if (taken) /* so the object that is there is a damaged one of ours */
			when = S3_ALWAYS;
	}
	return rc ? err_set(e, why.code, "%s", why.text) : 0;
}

int s3_delete(struct s3_client *c, const struct s3_place *at, struct err *e)
{
	struct s3_call call = { .r = { .method = "DELETE", .at = at } };
	struct err why = ERR_INIT;
	int rc = s3_do(c, &call, &why);
	if (rc && call.status == 404 && strcmp(call.code, "NoSuchBucket"))
		rc = 0;
	s3_call_free(&call);
	return rc ? err_set(e, why.code, "%s", why.text) : 0;
}

int s3_abort_upload(struct s3_client *c, const struct s3_place *at, const char *id, struct err *e)
{
	struct s3_call call = { .r = { .method = "DELETE", .at = at } };
	struct err why = ERR_INIT;
	s3_add_query(&call.r, "uploadId", id);
	int rc = s3_do(c, &call, &why);
	if (rc && call.status == 404)
		rc = 0;
	s3_call_free(&call);
	return rc ? err_set(e, why.code, "%s", why.text) : 0;
}
