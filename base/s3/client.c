#include "base/s3/client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *first_set(const char *a, const char *b)
{
	const char *v = getenv(a);
	if ((!v || !*v) && b)
		v = getenv(b);
	return v ? v : "";
}

/* Reads a number above 0 from the environment. */
static int number_of(const char *name, double most, double *out, struct err *e)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return 0;
	double v = strtod(text, &end);
	if (end == text || *end || !(v > 0) || v > most)
		return err_set(e, ERR_USAGE, "%s: %.64s is no number above 0 and up to %g", name,
			       text, most);
	*out = v;
	return 0;
}

static int read_endpoint(struct s3_client *c, struct err *e)
{
	const char *url = first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
	size_t n = strlen(url), scheme = !strncmp(url, "https://", 8) ? 8 : 7;
	bool named = (scheme == 8 || !strncmp(url, "http://", 7)) && url[scheme] &&
		     !strchr("/:", url[scheme]);
	if (n && (!named || n >= sizeof c->endpoint || strpbrk(url, "@?# ")))
		return err_set(e, ERR_USAGE,
			       "AWS_ENDPOINT_URL: this is no address of an object store; set it to "
			       "https://HOST or http://HOST:PORT");
	while (n && url[n - 1] == '/')
		n--;
	memcpy(c->endpoint, url, n);
	return 0;
}

static int read_settings(struct s3_client *c, struct err *e)
{
	double attempts = 8;
	const char *region = first_set("AWS_REGION", "AWS_DEFAULT_REGION");
	c->patience = (struct s3_patience){ .total_s = 300, .base_s = 0.1, .most_s = 20 };
	c->stall_s = 20;
	if (read_endpoint(c, e) || number_of("AWS_MAX_ATTEMPTS", 100, &attempts, e) ||
	    number_of("MUSTER_S3_STALL_S", 86400, &c->stall_s, e) ||
	    number_of("MUSTER_S3_TOTAL_S", 86400, &c->patience.total_s, e))
		return -1;
	c->patience.attempts = (int)ceil(attempts);
	if (!*region)
		region = "us-east-1";
	if (strlen(region) >= sizeof c->region ||
	    region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")])
		return err_set(e, ERR_USAGE, "AWS_REGION: %.64s is no region", region);
	strcpy(c->region, region);
	snprintf(c->ca_file, sizeof c->ca_file, "%s", first_set("AWS_CA_BUNDLE", NULL));
	return 0;
}

int s3_client_open(struct s3_client **out, struct err *e)
{
	struct s3_client *c = calloc(1, sizeof *c);
	if (!c || !(c->credentials = s3_credentials_open())) {
		free(c);
		return err_set(e, ERR_NOMEM, "no memory for an object store");
	}
	pthread_mutex_init(&c->lock, NULL);
	if (read_settings(c, e)) {
		s3_client_close(c);
		return -1;
	}
	*out = c;
	return 0;
}

void s3_client_close(struct s3_client *c)
{
	if (!c)
		return;
	while (c->spare) {
		struct s3_line *l = c->spare;
		c->spare = l->next;
		http_pump_close(l->pump);
		free(l);
	}
	s3_credentials_close(c->credentials);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int s3_line_take(struct s3_client *c, struct s3_line **out, struct err *e)
{
	pthread_mutex_lock(&c->lock);
	struct s3_line *l = c->spare;
	if (l)
		c->spare = l->next;
	pthread_mutex_unlock(&c->lock);
	if (!l) {
		l = calloc(1, sizeof *l);
		if (!l)
			return err_set(e, ERR_NOMEM, "no memory for an object store");
		if (http_pump_open(&l->pump, e)) {
			free(l);
			return -1;
		}
		l->client = c;
	}
	*out = l;
	return 0;
}

void s3_line_give(struct s3_line *l)
{
	if (!l)
		return;
	struct s3_client *c = l->client;
	while (l->calls)
		s3_call_end(l, l->calls);
	pthread_mutex_lock(&c->lock);
	l->next = c->spare;
	c->spare = l;
	pthread_mutex_unlock(&c->lock);
}

/* Copies a key without slashes at its ends, and without two in a row. */
static bool copy_key(char to[S3_KEY], const char *key)
{
	size_t n = 0;
	for (; *key; key++) {
		if (*key == '/' && (n == 0 || to[n - 1] == '/'))
			continue;
		if (n == S3_KEY - 1)
			return false;
		to[n++] = *key;
	}
	if (n && to[n - 1] == '/')
		n--;
	to[n] = '\0';
	return true;
}

int s3_place_parse(const char *path, struct s3_place *out, struct err *e)
{
	struct s3_place p = { 0 };
	const char *bucket = strncmp(path, "s3://", 5) ? NULL : path + 5;
	size_t n = bucket ? strcspn(bucket, "/") : 0;
	if (n < 3 || n >= sizeof p.bucket ||
	    strspn(bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") < n)
		return err_set(e, ERR_USAGE,
			       "%.200s: this is no address of an object store; write "
			       "s3://BUCKET/PREFIX",
			       path);
	memcpy(p.bucket, bucket, n);
	const char *key = bucket + n + (bucket[n] == '/');
	if (!copy_key(p.key, key) || !http_header_valid(p.key))
		return err_set(e, ERR_USAGE,
			       "%.200s: a key has at most 1024 printable characters of ASCII",
			       path);
	*out = p;
	return 0;
}
