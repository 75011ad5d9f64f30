#include "base/s3/list.h"

#include "base/s3/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- one page -------------------------------------------------------------------- */

struct page_reader {
	struct s3_page *page;
	s3_list_visit *visit;
	s3_unfinished_visit *visit_unfinished;
	void *arg;
	struct s3_listed o;
	double begun;
	char key[S3_KEY], id[1024];
};

static int keep_text(char *to, size_t n, const char *text, const char *what, struct err *e)
{
	if (strlen(text) >= n)
		return err_set(e, ERR_PROTO, "a %s in the store's list is too long", what);
	strcpy(to, text);
	return 0;
}

/* "2013-05-24T00:00:00.000Z" */
static double time_of(const char *text)
{
	struct tm t = { 0 };
	return strptime(text, "%Y-%m-%dT%H:%M:%S", &t) ? (double)timegm(&t) : 0;
}

static int size_of(const char *text, int64_t *out, struct err *e)
{
	size_t n = strspn(text, "0123456789");
	if (n == 0 || n > 18 || text[n])
		return err_set(e, ERR_PROTO, "the store's list has an object of a wrong size");
	*out = strtoll(text, NULL, 10);
	return 0;
}

static int take_object(struct page_reader *r, const char *key, bool folder, struct err *e)
{
	r->o.key = key;
	r->o.folder = folder;
	int rc = r->visit(r->arg, &r->o, e);
	r->o = (struct s3_listed){ 0 };
	r->key[0] = '\0';
	return rc;
}

static int take_listed(void *arg, const char *path, const char *text, struct err *e)
{
	struct page_reader *r = arg;
	const char *at = strncmp(path, "ListBucketResult/", 17) ? "" : path + 17;
	if (!strcmp(at, "Contents"))
		return r->key[0] ? take_object(r, r->key, false, e)
				 : err_set(e, ERR_PROTO, "the store's list has no key");
	if (!text)
		return 0;
	if (!strcmp(at, "Contents/Key"))
		return keep_text(r->key, sizeof r->key, text, "key", e);
	if (!strcmp(at, "Contents/Size"))
		return size_of(text, &r->o.size, e);
	if (!strcmp(at, "Contents/ETag"))
		return keep_text(r->o.etag, sizeof r->o.etag, text, "tag", e);
	if (!strcmp(at, "Contents/LastModified"))
		r->o.written = time_of(text);
	if (!strcmp(at, "CommonPrefixes/Prefix"))
		return take_object(r, text, true, e);
	if (!strcmp(at, "IsTruncated"))
		r->page->more = !strcmp(text, "true");
	if (!strcmp(at, "NextContinuationToken"))
		return keep_text(r->page->next, sizeof r->page->next, text, "token", e);
	return 0;
}

int s3_list_page(const char *text, size_t n, s3_list_visit *visit, void *arg, struct s3_page *out,
		 struct err *e)
{
	struct page_reader r = { .page = out, .visit = visit, .arg = arg };
	*out = (struct s3_page){ 0 };
	if (s3_xml_read(text, n, take_listed, &r, e))
		return -1;
	if (out->more && !out->next[0])
		return err_set(e, ERR_PROTO, "the store's list ends without its end");
	return 0;
}

static int take_unfinished(void *arg, const char *path, const char *text, struct err *e)
{
	struct page_reader *r = arg;
	const char *at = strncmp(path, "ListMultipartUploadsResult/", 27) ? "" : path + 27;
	if (!strcmp(at, "Upload")) {
		struct s3_unfinished u = { r->key, r->id, r->begun };
		if (!r->key[0] || !r->id[0])
			return err_set(e, ERR_PROTO, "the store's list has no key");
		int rc = r->visit_unfinished(r->arg, &u, e);
		r->key[0] = r->id[0] = '\0';
		r->begun = 0;
		return rc;
	}
	if (!text)
		return 0;
	if (!strcmp(at, "Upload/Key"))
		return keep_text(r->key, sizeof r->key, text, "key", e);
	if (!strcmp(at, "Upload/UploadId"))
		return keep_text(r->id, sizeof r->id, text, "upload", e);
	if (!strcmp(at, "Upload/Initiated"))
		r->begun = time_of(text);
	if (!strcmp(at, "IsTruncated"))
		r->page->more = !strcmp(text, "true");
	if (!strcmp(at, "NextKeyMarker"))
		return keep_text(r->page->next, sizeof r->page->next, text, "marker", e);
	if (!strcmp(at, "NextUploadIdMarker"))
		return keep_text(r->page->next_id, sizeof r->page->next_id, text, "marker", e);
	return 0;
}

int s3_unfinished_page(const char *text, size_t n, s3_unfinished_visit *visit, void *arg,
		       struct s3_page *out, struct err *e)
{
	struct page_reader r = { .page = out, .visit_unfinished = visit, .arg = arg };
	*out = (struct s3_page){ 0 };
	if (s3_xml_read(text, n, take_unfinished, &r, e))
		return -1;
	if (out->more && !out->next[0])
		return err_set(e, ERR_PROTO, "the store's list ends without its end");
	return 0;
}

/* --- all pages ------------------------------------------------------------------- */

static struct s3_place bucket_of(const struct s3_place *at)
{
	struct s3_place p = { 0 };
	strcpy(p.bucket, at->bucket);
	return p;
}

static int fail_list(const struct s3_place *at, const struct err *why, struct err *e)
{
	return err_set(e, why->code, "s3://%s/%s: %s", at->bucket, at->key, why->text);
}

/* Whether the next page begins where this one did: the list would never end. */
static bool is_same_page(const struct s3_page *now, const struct s3_page *next)
{
	return now->more && next->more && !strcmp(now->next, next->next) &&
	       !strcmp(now->next_id, next->next_id);
}

static int fail_endless(const struct s3_place *at, struct err *e)
{
	return err_set(e, ERR_PROTO,
		       "s3://%s/%s: the store's list names the same next page again; have the "
		       "store checked",
		       at->bucket, at->key);
}

int s3_list(struct s3_client *c, const struct s3_place *at, bool deep, int64_t most,
	    s3_list_visit *visit, void *arg, struct err *e)
{
	struct s3_place bucket = bucket_of(at);
	struct s3_page *page = calloc(2, sizeof *page);
	char prefix[S3_KEY + 1], count[32];
	int rc = page ? 0 : err_set(e, ERR_NOMEM, "no memory for a list");
	snprintf(prefix, sizeof prefix, "%s%s", at->key, at->key[0] ? "/" : "");
	snprintf(count, sizeof count, "%lld", (long long)(most > 0 && most < 1000 ? most : 1000));
	for (bool more = !rc; more && !rc;) {
		struct s3_call call = { .r = { .method = "GET", .at = &bucket } };
		struct err why = ERR_INIT;
		s3_add_query(&call.r, "list-type", "2");
		s3_add_query(&call.r, "prefix", prefix);
		s3_add_query(&call.r, "max-keys", count);
		if (!deep)
			s3_add_query(&call.r, "delimiter", "/");
		if (page[0].more)
			s3_add_query(&call.r, "continuation-token", page[0].next);
		rc = s3_do(c, &call, e);
		if (!rc && s3_list_page(buf_str(&call.answer.body), call.answer.body.len, visit,
					arg, &page[1], &why))
			rc = fail_list(at, &why, e);
		if (!rc && is_same_page(&page[0], &page[1]))
			rc = fail_endless(at, e);
		page[0] = page[1];
		more = page[0].more && most == 0;
		s3_call_free(&call);
	}
	free(page);
	return rc;
}

int s3_list_unfinished(struct s3_client *c, const struct s3_place *at, s3_unfinished_visit *visit,
		       void *arg, struct err *e)
{
	struct s3_place bucket = bucket_of(at);
	struct s3_page *page = calloc(2, sizeof *page);
	int rc = page ? 0 : err_set(e, ERR_NOMEM, "no memory for a list");
	for (bool more = !rc; more && !rc; more = page[0].more) {
		struct s3_call call = { .r = { .method = "GET", .at = &bucket } };
		struct err why = ERR_INIT;
		s3_add_query(&call.r, "uploads", "");
		s3_add_query(&call.r, "prefix", at->key);
		if (page[0].more) {
			s3_add_query(&call.r, "key-marker", page[0].next);
			s3_add_query(&call.r, "upload-id-marker", page[0].next_id);
		}
		rc = s3_do(c, &call, e);
		if (!rc && s3_unfinished_page(buf_str(&call.answer.body), call.answer.body.len,
					      visit, arg, &page[1], &why))
			rc = fail_list(at, &why, e);
		if (!rc && is_same_page(&page[0], &page[1]))
			rc = fail_endless(at, e);
		page[0] = page[1];
		s3_call_free(&call);
	}
	free(page);
	return rc;
}

/* --- removing what is listed ----------------------------------------------------- */

struct doomed {
	struct buf xml;
	int n;
};

static void add_escaped(struct buf *b, const char *text)
{
	for (; *text; text++)
		if (*text == '&')
			buf_puts(b, "&amp;");
		else if (*text == '<')
			buf_puts(b, "&lt;");
		else if (*text == '>')
			buf_puts(b, "&gt;");
		else
			buf_add(b, text, 1);
}

static int doom(void *arg, const struct s3_listed *o, struct err *e)
{
	struct doomed *d = arg;
	(void)e;
	buf_puts(&d->xml, "<Object><Key>");
	add_escaped(&d->xml, o->key);
	buf_puts(&d->xml, "</Key></Object>");
	d->n++;
	return 0;
}

static int take_refusal(void *arg, const char *path, const char *text, struct err *e)
{
	(void)arg;
	if (!strcmp(path, "DeleteResult/Error/Code"))
		return err_set(e, ERR_IO, "the store does not remove it: %.60s", text ? text : "");
	return 0;
}

static int delete_batch(struct s3_client *c, const struct s3_place *at, struct doomed *d,
			struct err *e)
{
	struct s3_place bucket = bucket_of(at);
	struct buf body = BUF_INIT;
	struct err why = ERR_INIT;
	buf_puts(&body, "<Delete><Quiet>true</Quiet>");
	buf_add(&body, d->xml.data, d->xml.len);
	buf_puts(&body, "</Delete>");
	struct s3_call call = {
		.r = { .method = "POST", .at = &bucket, .body = body.data, .size = body.len }
	};
	s3_add_query(&call.r, "delete", "");
	int rc = buf_failed(&body) ? err_set(e, ERR_NOMEM, "no memory to remove %d objects", d->n)
				   : s3_do(c, &call, e);
	if (!rc && call.answer.body.len &&
	    s3_xml_read(call.answer.body.data, call.answer.body.len, take_refusal, NULL, &why))
		rc = fail_list(at, &why, e);
	s3_call_free(&call);
	buf_fini(&body);
	return rc;
}

int s3_delete_below(struct s3_client *c, const struct s3_place *at, struct err *e)
{
	/* the list begins again after each batch; one that does not shrink it is an error */
	for (int last = 0;;) {
		struct doomed d = { .xml = BUF_INIT };
		int rc = s3_list(c, at, true, 1000, doom, &d, e);
		if (!rc && d.n > 0)
			rc = delete_batch(c, at, &d, e);
		if (!rc && d.n > 0 && d.n < 1000 && ++last > 3)
			rc = err_set(e, ERR_IO,
				     "s3://%s/%s: the store says that it removed the objects, but "
				     "lists them; have the store checked",
				     at->bucket, at->key);
		buf_fini(&d.xml);
		if (rc || d.n == 0)
			return rc;
	}
}
