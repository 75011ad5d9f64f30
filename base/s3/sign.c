#include "base/s3/sign.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

void s3_date(time_t at, char out[S3_DATE])
{
	struct tm t;
	gmtime_r(&at, &t);
	strftime(out, S3_DATE, "%Y%m%dT%H%M%SZ", &t);
}

void s3_sha256(const void *data, size_t n, unsigned char out[S3_SHA256])
{
	crypto_hash_sha256(out, n ? data : "", n);
}

void s3_hex(const unsigned char *hash, char out[S3_SHA256_HEX])
{
	sodium_bin2hex(out, S3_SHA256_HEX, hash, S3_SHA256);
}

void s3_base64(const unsigned char hash[S3_SHA256], char out[S3_SHA256_BASE64])
{
	sodium_bin2base64(out, S3_SHA256_BASE64, hash, S3_SHA256, sodium_base64_VARIANT_ORIGINAL);
}

void s3_encode(struct buf *out, const char *text, bool keep_slash)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-_.~";
	for (; *text; text++)
		if (strchr(plain, *text) || (keep_slash && *text == '/'))
			buf_add(out, text, 1);
		else
			buf_printf(out, "%%%02X", (unsigned char)*text);
}

/* In the order of their names, and of their values where names are equal. */
static int compare_fields(const void *a, const void *b)
{
	const struct s3_field *x = a, *y = b;
	int order = strcmp(x->name, y->name);
	return order ? order : strcmp(x->value, y->value);
}

static struct s3_field *sort_fields(const struct s3_field *fields, size_t n, struct err *e)
{
	struct s3_field *sorted = calloc(n + 1, sizeof *sorted);
	if (!sorted) {
		err_set(e, ERR_NOMEM, "no memory for a request to an object store");
		return NULL;
	}
	if (n) {
		memcpy(sorted, fields, n * sizeof *sorted);
		qsort(sorted, n, sizeof *sorted, compare_fields);
	}
	return sorted;
}

int s3_query(struct buf *out, const struct s3_field *query, size_t n, struct err *e)
{
	struct s3_field *sorted = sort_fields(query, n, e);
	if (!sorted)
		return -1;
	for (size_t i = 0; i < n; i++) {
		buf_puts(out, i ? "&" : "");
		s3_encode(out, sorted[i].name, false);
		buf_puts(out, "=");
		s3_encode(out, sorted[i].value, false);
	}
	free(sorted);
	return 0;
}

/* "host;range;x-amz-date" */
static void list_names(struct buf *out, const struct s3_field *headers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "%s%s", i ? ";" : "", headers[i].name);
}

/* The request in the form that is signed, with the names of its headers in `names`. */
static int canonical(const struct s3_signing *s, struct buf *out, struct buf *names, struct err *e)
{
	struct s3_field *headers = sort_fields(s->headers, s->n_headers, e);
	if (!headers)
		return -1;
	list_names(names, headers, s->n_headers);
	buf_printf(out, "%s\n%s\n", s->method, s->path);
	int rc = s3_query(out, s->query, s->n_query, e);
	buf_puts(out, "\n");
	for (size_t i = 0; i < s->n_headers; i++)
		buf_printf(out, "%s:%s\n", headers[i].name, headers[i].value);
	buf_printf(out, "\n%s\n%s", buf_str(names), s->payload);
	free(headers);
	return rc;
}

static void hmac(unsigned char out[S3_SHA256], const void *key, size_t n, const char *text)
{
	crypto_auth_hmacsha256_state h;
	crypto_auth_hmacsha256_init(&h, key, n);
	crypto_auth_hmacsha256_update(&h, (const unsigned char *)text, strlen(text));
	crypto_auth_hmacsha256_final(&h, out);
	sodium_memzero(&h, sizeof h);
}

/* The key of a day, a region and a service is derived from the secret one. */
static void sign_text(const struct s3_signing *s, const char *text, char out[S3_SHA256_HEX])
{
	unsigned char key[S3_SHA256];
	char first[4 + sizeof s->keys->secret] = "AWS4", day[9] = "";
	memcpy(day, s->date, 8);
	strcat(first, s->keys->secret);
	hmac(key, first, strlen(first), day);
	hmac(key, key, sizeof key, s->region);
	hmac(key, key, sizeof key, "s3");
	hmac(key, key, sizeof key, "aws4_request");
	hmac(key, key, sizeof key, text);
	s3_hex(key, out);
	sodium_memzero(first, sizeof first);
	sodium_memzero(key, sizeof key);
}

int s3_sign(const struct s3_signing *s, struct buf *out, struct err *e)
{
	struct buf request = BUF_INIT, names = BUF_INIT, text = BUF_INIT;
	unsigned char hash[S3_SHA256];
	char hex[S3_SHA256_HEX];
	int rc = canonical(s, &request, &names, e);
	if (!rc) {
		s3_sha256(request.data, request.len, hash);
		s3_hex(hash, hex);
		buf_printf(&text, ALGORITHM "\n%s\n%.8s/%s/s3/aws4_request\n%s", s->date, s->date,
			   s->region, hex);
		sign_text(s, buf_str(&text), hex);
		buf_printf(out,
			   ALGORITHM " Credential=%s/%.8s/%s/s3/aws4_request,SignedHeaders=%s,"
				     "Signature=%s",
			   s->keys->id, s->date, s->region, buf_str(&names), hex);
		if (buf_failed(&request) || buf_failed(&names) || buf_failed(&text) ||
		    buf_failed(out))
			rc = err_set(e, ERR_NOMEM, "no memory to sign a request");
	}
	if (request.data) /* it holds a session's token */
		sodium_memzero(request.data, request.len);
	buf_fini(&request);
	buf_fini(&names);
	buf_fini(&text);
	return rc;
}
