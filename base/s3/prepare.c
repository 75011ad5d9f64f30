/* Makes a request ready to be sent: its address, headers and signature. */
#include "base/s3/client.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double connect_s = 10;
enum { XML_MOST = 1 << 24 };

void s3_add_query(struct s3_request *r, const char *name, const char *value)
{
	if (r->n_query < S3_FIELDS)
		r->query[r->n_query++] = (struct s3_field){ name, value };
}

void s3_add_header(struct s3_request *r, const char *name, const char *value)
{
	if (r->n_headers < S3_FIELDS)
		r->headers[r->n_headers++] = (struct s3_field){ name, value };
}

/* The certificate of Amazon's hosts does not cover a bucket's name with dots. */
static bool bucket_in_path(const struct s3_client *c, const char *bucket)
{
	return c->endpoint[0] || strchr(bucket, '.') || strchr(bucket, '_');
}

struct address {
	char host[S3_HOST];
	const char *scheme;
	struct buf path;
};

static void set_address(const struct s3_client *c, const struct s3_place *at, struct address *a)
{
	bool in_path = bucket_in_path(c, at->bucket);
	a->scheme = strncmp(c->endpoint, "http://", 7) ? "https://" : "http://";
	if (c->endpoint[0])
		snprintf(a->host, sizeof a->host, "%s", c->endpoint + strlen(a->scheme));
	else
		snprintf(a->host, sizeof a->host, "%s%ss3.%s.amazonaws.com%s",
			 in_path ? "" : at->bucket, in_path ? "" : ".", c->region,
			 strncmp(c->region, "cn-", 3) ? "" : ".cn");
	char *rest = strchr(a->host, '/'); /* an endpoint may have a path */
	if (rest) {
		s3_encode(&a->path, rest, true);
		*rest = '\0';
	}
	if (in_path) {
		buf_puts(&a->path, "/");
		s3_encode(&a->path, at->bucket, false);
	}
	if (at->key[0] || !in_path)
		buf_puts(&a->path, "/");
	s3_encode(&a->path, at->key, true);
}

/* The headers that are signed; their order is that in which they are sent. */
static size_t set_headers(struct s3_call *call, const char *host, struct s3_field *out)
{
	size_t n = 0;
	out[n++] = (struct s3_field){ "host", host };
	out[n++] = (struct s3_field){ "x-amz-content-sha256", call->hex };
	out[n++] = (struct s3_field){ "x-amz-date", call->date };
	if (call->keys->token[0])
		out[n++] = (struct s3_field){ "x-amz-security-token", call->keys->token };
	if (call->r.body && call->r.size)
		out[n++] = (struct s3_field){ "x-amz-checksum-sha256", call->base64 };
	for (int i = 0; i < call->r.n_headers; i++)
		out[n++] = call->r.headers[i];
	return n;
}

static void set_request(struct s3_client *c, struct s3_call *call, const struct s3_field *fields,
			size_t n)
{
	for (size_t i = 0; i < n; i++)
		call->sent[i] =
			(struct http_header){ fields[i].name, fields[i].value,
					      !strcmp(fields[i].name, "x-amz-security-token") };
	call->sent[n++] = (struct http_header){ "Authorization", buf_str(&call->authorization),
						true };
	call->http = (struct http_request){ .method = call->r.method,
					    .url = buf_str(&call->url),
					    .ca_file = c->ca_file[0] ? c->ca_file : NULL,
					    .headers = call->sent,
					    .n_headers = n,
					    .body = call->r.body,
					    .body_size = call->r.size,
					    .content_type = "application/octet-stream",
					    .connect_s = connect_s,
					    .stall_s = c->stall_s,
					    .total_s = c->patience.total_s,
					    .most = call->r.most > XML_MOST ? call->r.most
									    : XML_MOST };
}

int s3_prepare(struct s3_client *c, struct s3_call *call, struct err *e)
{
	struct s3_field fields[S3_FIELDS + 5];
	struct address a = { .path = BUF_INIT };
	s3_unprepare(call);
	call->keys = malloc(sizeof *call->keys);
	if (!call->keys)
		return err_set(e, ERR_NOMEM, "no memory for a request");
	memset(call->keys, 0, sizeof *call->keys);
	if (s3_credentials_get(c->credentials, call->keys, e))
		return -1;
	set_address(c, call->r.at, &a);
	snprintf(call->host, sizeof call->host, "%s", a.host);
	s3_date((time_t)clock_wall_s(), call->date);
	s3_hex(call->sha256, call->hex);
	s3_base64(call->sha256, call->base64);
	size_t n = set_headers(call, call->host, fields);
	struct s3_signing s = { .method = call->r.method,
				.path = buf_str(&a.path),
				.query = call->r.query,
				.n_query = (size_t)call->r.n_query,
				.headers = fields,
				.n_headers = n,
				.payload = call->hex,
				.date = call->date,
				.region = c->region,
				.keys = call->keys };
	buf_printf(&call->url, "%s%s%s%s", a.scheme, call->host, buf_str(&a.path),
		   call->r.n_query ? "?" : "");
	int rc = s3_query(&call->url, call->r.query, (size_t)call->r.n_query, e) ||
		 s3_sign(&s, &call->authorization, e);
	if (!rc && buf_failed(&call->url))
		rc = err_set(e, ERR_NOMEM, "no memory for a request");
	set_request(c, call, fields, n);
	buf_fini(&a.path);
	return rc ? -1 : 0;
}

void s3_unprepare(struct s3_call *call)
{
	if (call->authorization.data)
		explicit_bzero(call->authorization.data, call->authorization.len);
	buf_fini(&call->authorization);
	buf_fini(&call->url);
	if (call->keys)
		s3_keys_wipe(call->keys);
	free(call->keys);
	call->keys = NULL;
}
