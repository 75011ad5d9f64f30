#include "base/s3/download.h"

#include "base/numbers.h"
#include "base/s3/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A range that is here, or on its way. */
struct range {
	struct s3_call call;
	int64_t at;
	size_t n;
	char text[64];
};

struct s3_download {
	struct s3_client *client;
	struct s3_line *line; /* NULL: parked */
	struct s3_place place;
	char etag[S3_ETAG];
	int64_t size;
	struct range *ranges[S3_AHEAD]; /* one after the other, the first at the reader */
	int n;
	int64_t expected; /* where a read continues the one before */
	size_t next;      /* length of the next range */
};

int s3_download_open(struct s3_client *c, const struct s3_place *at, int64_t size, const char *etag,
		     struct s3_download **out, struct err *e)
{
	struct s3_download *d = calloc(1, sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory to read it", at->bucket,
			       at->key);
	d->client = c;
	d->place = *at;
	d->size = size;
	d->expected = -1;
	snprintf(d->etag, sizeof d->etag, "%s", etag);
	*out = d;
	return 0;
}

static void drop_first(struct s3_download *d)
{
	s3_call_end(d->line, &d->ranges[0]->call);
	free(d->ranges[0]);
	memmove(d->ranges, d->ranges + 1, (size_t)--d->n * sizeof *d->ranges);
}

void s3_download_park(struct s3_download *d)
{
	while (d->n)
		drop_first(d);
	s3_line_give(d->line);
	d->line = NULL;
	d->expected = -1;
}

void s3_download_close(struct s3_download *d)
{
	if (!d)
		return;
	s3_download_park(d);
	free(d);
}

static int fetch(struct s3_download *d, int64_t at, size_t n, struct err *e)
{
	struct range *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory to read it", d->place.bucket,
			       d->place.key);
	r->at = at;
	r->n = n;
	r->call.r = (struct s3_request){ .method = "GET", .at = &d->place, .most = n };
	snprintf(r->text, sizeof r->text, "bytes=%" PRId64 "-%" PRId64, at, at + (int64_t)n - 1);
	s3_add_header(&r->call.r, "range", r->text);
	if (d->etag[0])
		s3_add_header(&r->call.r, "if-match", d->etag);
	d->ranges[d->n++] = r;
	s3_line_start(d->line, &r->call);
	return 0;
}

/* The end of what is here or on its way; `at` if that is nothing. */
static int64_t end_of(const struct s3_download *d, int64_t at)
{
	const struct range *last = d->n ? d->ranges[d->n - 1] : NULL;
	return last ? last->at + (int64_t)last->n : at;
}

static int read_ahead(struct s3_download *d, int64_t at, struct err *e)
{
	for (int64_t from = end_of(d, at); d->n < S3_AHEAD && from < d->size;
	     from = end_of(d, at)) {
		size_t n = (size_t)min_int64((int64_t)d->next, d->size - from);
		if (fetch(d, from, n, e))
			return -1;
		d->next = (size_t)min_int64((int64_t)d->next * 2, S3_RANGE);
	}
	return 0;
}

/* The answer must be the range that was asked for. */
static int check_range(const struct s3_download *d, const struct range *r, struct err *e)
{
	char is[96], want[96];
	http_answer_header(&r->call.answer, "Content-Range", is, sizeof is);
	snprintf(want, sizeof want, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, r->at,
		 r->at + (int64_t)r->n - 1, d->size);
	if (r->call.answer.body.len == r->n &&
	    (r->call.status == 206 ? !strcmp(is, want) : r->at == 0 && (int64_t)r->n == d->size))
		return 0;
	return err_set(
		e, ERR_CORRUPT,
		"s3://%s/%s: the store answered %zu bytes, %s, in place of %s; have the store "
		"checked",
		d->place.bucket, d->place.key, r->call.answer.body.len, is[0] ? is : "of no range",
		want);
}

/* Copies from the first range, once it is here. */
static int take(struct s3_download *d, int64_t at, char *to, size_t n, size_t *taken, struct err *e)
{
	struct range *r = d->ranges[0];
	if (s3_line_wait(d->line, &r->call, e) || check_range(d, r, e))
		return -1;
	size_t skip = (size_t)(at - r->at);
	*taken = n < r->n - skip ? n : r->n - skip;
	memcpy(to, r->call.answer.body.data + skip, *taken);
	if (skip + *taken == r->n)
		drop_first(d);
	return 0;
}

static bool is_here(const struct s3_download *d, int64_t at)
{
	return d->n && at >= d->ranges[0]->at && at < end_of(d, at);
}

/* Makes the first range hold the byte at `at`. */
static int aim(struct s3_download *d, int64_t at, size_t n, bool on, struct err *e)
{
	while (d->n && at >= d->ranges[0]->at + (int64_t)d->ranges[0]->n)
		drop_first(d);
	if (d->n == 0) {
		size_t least = n < S3_RANGE ? n : S3_RANGE;
		d->next = d->next > least ? d->next : least;
		if (fetch(d, at, (size_t)min_int64((int64_t)d->next, d->size - at), e))
			return -1;
		d->next = (size_t)min_int64((int64_t)d->next * 2, S3_RANGE);
	}
	return on || n > S3_RANGE ? read_ahead(d, at, e) : 0;
}

int s3_download_read(struct s3_download *d, int64_t at, void *data, size_t n, struct err *e)
{
	char *to = data;
	if (at < 0 || at > d->size || (int64_t)n > d->size - at)
		return err_set(e, ERR_IO, "s3://%s/%s: has %" PRId64 " bytes; cannot read beyond",
			       d->place.bucket, d->place.key, d->size);
	if (!d->line && s3_line_take(d->client, &d->line, e))
		return -1;
	s3_line_poll(d->line);
	bool on = at == d->expected;
	while (d->n && !is_here(d, at))
		drop_first(d);
	if (!on)
		d->next = 0;
	d->expected = at + (int64_t)n;
	while (n > 0) {
		size_t taken;
		if (aim(d, at, n, on, e) || take(d, at, to, n, &taken, e)) {
			s3_download_park(d);
			return -1;
		}
		at += (int64_t)taken;
		to += taken;
		n -= taken;
	}
	return 0;
}
