#include "base/s3/upload.h"

#include "base/s3/client.h"
#include "base/s3/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 10000, PARTS_OF_A_SIZE = 2000, ID = 1024 };

/* A part that the store has. */
struct part {
	char etag[S3_ETAG];
	unsigned char sha256[S3_SHA256];
};

/* A part on its way. */
struct slot {
	struct s3_call call;
	bool used;
	int number;
	char number_text[16];
	char *data;
	size_t size, cap;
};

struct s3_upload {
	struct s3_client *client;
	struct s3_line *line;
	struct s3_place at;
	char id[ID]; /* of the upload; "": not begun */
	struct slot slots[S3_PARTS];
	int filling;        /* the slot that takes the next bytes */
	struct part *parts; /* those that were begun, in order */
	int n_parts, cap_parts;
	int64_t total;
};

int s3_upload_open(struct s3_client *c, const struct s3_place *at, struct s3_upload **out,
		   struct err *e)
{
	struct s3_upload *u = calloc(1, sizeof *u);
	if (!u)
		return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory to write it", at->bucket,
			       at->key);
	u->client = c;
	u->at = *at;
	if (s3_line_take(c, &u->line, e)) {
		free(u);
		return -1;
	}
	*out = u;
	return 0;
}

static void free_upload(struct s3_upload *u)
{
	for (int i = 0; i < S3_PARTS; i++) {
		if (u->slots[i].used)
			s3_call_end(u->line, &u->slots[i].call);
		free(u->slots[i].data);
	}
	s3_line_give(u->line);
	free(u->parts);
	free(u);
}

void s3_upload_cut(struct s3_upload *u)
{
	for (int i = 0; i < S3_PARTS; i++)
		if (u->slots[i].used) {
			s3_call_end(u->line, &u->slots[i].call);
			u->slots[i].used = false;
		}
	if (u->id[0])
		s3_abort_upload(u->client, &u->at, u->id, NULL);
	free_upload(u);
}

/* --- beginning ------------------------------------------------------------------- */

static int take_id(void *arg, const char *path, const char *text, struct err *e)
{
	struct s3_upload *u = arg;
	if (strcmp(path, "InitiateMultipartUploadResult/UploadId") || !text)
		return 0;
	if (strlen(text) >= sizeof u->id)
		return err_set(e, ERR_PROTO, "the name of the upload is too long");
	strcpy(u->id, text);
	return 0;
}

static int begin(struct s3_upload *u, struct err *e)
{
	struct s3_call call = { .r = { .method = "POST", .at = &u->at, .body = "" } };
	struct err why = ERR_INIT;
	s3_add_query(&call.r, "uploads", "");
	s3_add_header(&call.r, "x-amz-checksum-algorithm", "SHA256");
	int rc = s3_do(u->client, &call, e);
	if (!rc && s3_xml_read(buf_str(&call.answer.body), call.answer.body.len, take_id, u, &why))
		rc = err_set(e, why.code, "s3://%s/%s: %s", u->at.bucket, u->at.key, why.text);
	s3_call_free(&call);
	if (!rc && !u->id[0])
		rc = err_set(e, ERR_PROTO, "s3://%s/%s: the store began an upload without a name",
			     u->at.bucket, u->at.key);
	return rc;
}

/* --- parts ----------------------------------------------------------------------- */

/* Parts after the first 2000 are twice as large, after 4000 four times, and so on. */
static size_t part_size(int number)
{
	return (size_t)S3_PART << (number / PARTS_OF_A_SIZE);
}

/* Waits for the part of this slot and keeps what the store says of it. */
static int land_part(struct s3_upload *u, struct slot *s, struct err *e)
{
	char kept[96];
	if (!s->used)
		return 0;
	int rc = s3_line_wait(u->line, &s->call, e);
	struct part *p = &u->parts[s->number - 1];
	if (!rc) {
		memcpy(p->sha256, s->call.sha256, sizeof p->sha256);
		http_answer_header(&s->call.answer, "ETag", p->etag, sizeof p->etag);
		http_answer_header(&s->call.answer, "x-amz-checksum-sha256", kept, sizeof kept);
		if (!p->etag[0] || (kept[0] && strcmp(kept, s->call.base64)))
			rc = err_set(
				e, ERR_CORRUPT,
				"s3://%s/%s: the store has other bytes than part %d; try again",
				u->at.bucket, u->at.key, s->number);
	}
	s3_call_free(&s->call);
	s->used = false;
	s->size = 0;
	return rc;
}

static int add_part(struct s3_upload *u, struct err *e)
{
	if (u->n_parts == MOST_PARTS)
		return err_set(e, ERR_FULL, "s3://%s/%s: is too large for an object store",
			       u->at.bucket, u->at.key);
	if (u->n_parts == u->cap_parts) {
		int cap = u->cap_parts ? 2 * u->cap_parts : 64;
		struct part *more = realloc(u->parts, (size_t)cap * sizeof *more);
		if (!more)
			return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory for its parts",
				       u->at.bucket, u->at.key);
		u->parts = more;
		u->cap_parts = cap;
	}
	memset(&u->parts[u->n_parts++], 0, sizeof *u->parts);
	return 0;
}

/* Sends the slot that is full, and makes the next one free. */
static int send_part(struct s3_upload *u, struct err *e)
{
	struct slot *s = &u->slots[u->filling];
	if ((!u->id[0] && begin(u, e)) || add_part(u, e))
		return -1;
	s->number = u->n_parts;
	snprintf(s->number_text, sizeof s->number_text, "%d", s->number);
	s->call = (struct s3_call){
		.r = { .method = "PUT", .at = &u->at, .body = s->data, .size = s->size }
	};
	s3_add_query(&s->call.r, "partNumber", s->number_text);
	s3_add_query(&s->call.r, "uploadId", u->id);
	s->used = true;
	s3_line_start(u->line, &s->call);
	u->filling = (u->filling + 1) % S3_PARTS;
	return land_part(u, &u->slots[u->filling], e);
}

static int make_room(struct s3_upload *u, struct slot *s, size_t most, size_t n, struct err *e)
{
	size_t want = s->size + n < most ? s->size + n : most, cap = s->cap ? s->cap : 1 << 16;
	while (cap < want)
		cap *= 2;
	if (cap == s->cap)
		return 0;
	char *more = realloc(s->data, cap);
	if (!more)
		return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory for a part of %zu bytes",
			       u->at.bucket, u->at.key, cap);
	s->data = more;
	s->cap = cap;
	return 0;
}

int s3_upload_write(struct s3_upload *u, const void *data, size_t n, struct err *e)
{
	const char *from = data;
	s3_line_poll(u->line);
	while (n > 0) {
		struct slot *s = &u->slots[u->filling];
		size_t most = part_size(u->n_parts);
		if (s->size == most) {
			if (send_part(u, e))
				return -1;
			continue;
		}
		if (make_room(u, s, most, n, e))
			return -1;
		size_t now = n < most - s->size ? n : most - s->size;
		memcpy(s->data + s->size, from, now);
		s->size += now;
		u->total += (int64_t)now;
		from += now;
		n -= now;
	}
	return 0;
}

/* --- the end --------------------------------------------------------------------- */

/* The store's checksum of the whole: that of the checksums of the parts, and their number. */
static void whole_checksum(const struct s3_upload *u, struct buf *all, char out[96])
{
	unsigned char hash[S3_SHA256];
	char base64[S3_SHA256_BASE64];
	for (int i = 0; i < u->n_parts; i++)
		buf_add(all, u->parts[i].sha256, S3_SHA256);
	s3_sha256(all->data, all->len, hash);
	s3_base64(hash, base64);
	snprintf(out, 96, "%s-%d", base64, u->n_parts);
}

/* The parts that the object is made of. Stores put quotes around tags; they are XML's too. */
static void list_parts(const struct s3_upload *u, struct buf *xml)
{
	char base64[S3_SHA256_BASE64];
	buf_puts(xml, "<CompleteMultipartUpload>");
	for (int i = 0; i < u->n_parts; i++) {
		s3_base64(u->parts[i].sha256, base64);
		buf_puts(xml, "<Part><ETag>");
		for (const char *t = u->parts[i].etag; *t; t++)
			if (*t == '"')
				buf_puts(xml, "&quot;");
			else if (*t != '<' && *t != '&')
				buf_add(xml, t, 1);
		buf_printf(xml,
			   "</ETag><ChecksumSHA256>%s</ChecksumSHA256><PartNumber>%d</PartNumber>"
			   "</Part>",
			   base64, i + 1);
	}
	buf_puts(xml, "</CompleteMultipartUpload>");
}

/* Compares the object with what was sent. */
static int check_object(struct s3_upload *u, const char *checksum, struct err *e)
{
	struct s3_object o;
	if (s3_head(u->client, &u->at, &o, e))
		return -1;
	if (o.size != u->total)
		return err_set(
			e, ERR_CORRUPT,
			"s3://%s/%s: the store has %lld bytes of the %lld that it took; have "
			"the store checked",
			u->at.bucket, u->at.key, (long long)o.size, (long long)u->total);
	if (o.sha256[0] && strchr(o.sha256, '-') && strcmp(o.sha256, checksum))
		return err_set(
			e, ERR_CORRUPT,
			"s3://%s/%s: the store has other bytes than those that it took; have "
			"the store checked",
			u->at.bucket, u->at.key);
	return 0;
}

static int complete(struct s3_upload *u, struct err *e)
{
	struct buf xml = BUF_INIT, all = BUF_INIT;
	struct err why = ERR_INIT;
	char checksum[96];
	list_parts(u, &xml);
	whole_checksum(u, &all, checksum);
	if (buf_failed(&xml) || buf_failed(&all)) {
		buf_fini(&xml);
		buf_fini(&all);
		return err_set(e, ERR_NOMEM, "s3://%s/%s: no memory for its parts", u->at.bucket,
			       u->at.key);
	}
	struct s3_call call = {
		.r = { .method = "POST", .at = &u->at, .body = xml.data, .size = xml.len }
	};
	s3_add_query(&call.r, "uploadId", u->id);
	s3_add_header(&call.r, "if-none-match", "*");
	int rc = s3_do(u->client, &call, &why);
	/* libcurl also sends a request again on its own, when a connection that it kept was cut */
	bool unsure = rc && (call.repeated || call.status == 412 || call.status == 404);
	s3_call_free(&call);
	if (!rc || unsure) {
		/* the answer of an attempt that succeeded may have been lost */
		struct err look = ERR_INIT;
		rc = check_object(u, checksum, &look);
		if (!rc)
			u->id[0] = '\0';
		else if (!unsure)
			why = look;
	}
	buf_fini(&xml);
	buf_fini(&all);
	return rc ? err_set(e, why.code, "%s", why.text) : 0;
}

int s3_upload_finish(struct s3_upload *u, struct err *e)
{
	struct slot *s = &u->slots[u->filling];
	int rc = 0;
	if (!u->id[0]) {
		rc = s3_put(u->client, &u->at, s->data, s->size, S3_IF_NONE, NULL, e);
		free_upload(u);
		return rc;
	}
	if (s->size)
		rc = send_part(u, e);
	for (int i = 0; i < S3_PARTS && !rc; i++)
		rc = land_part(u, &u->slots[i], e);
	if (!rc)
		rc = complete(u, e);
	if (rc)
		s3_upload_cut(u);
	else
		free_upload(u);
	return rc;
}
