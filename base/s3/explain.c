/* The words for a store's refusals. */
#include "base/s3/client.h"

#include "base/clock.h"
#include "base/s3/xml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct said {
	char code[S3_CODE], text[200];
};

static int take_said(void *arg, const char *path, const char *text, struct err *e)
{
	struct said *s = arg;
	const char *last = strrchr(path, '/');
	(void)e;
	if (!text || strncmp(path, "Error/", 6) || last != path + 5)
		return 0;
	if (!strcmp(last, "/Code"))
		snprintf(s->code, sizeof s->code, "%s", text);
	if (!strcmp(last, "/Message"))
		snprintf(s->text, sizeof s->text, "%s", text);
	return 0;
}

void s3_read_code(struct s3_call *call, char *said, size_t n)
{
	struct said s = { 0 };
	struct buf *b = &call->answer.body;
	call->code[0] = '\0';
	if (b->len && !s3_xml_read(b->data, b->len, take_said, &s, NULL))
		strcpy(call->code, s.code);
	if (said)
		snprintf(said, n, "%s", s.text);
}

/* Seconds by which this host's clock is ahead of the store's. */
static double skew_of(const struct s3_call *call)
{
	char date[64];
	struct tm t = { 0 };
	http_answer_header(&call->answer, "Date", date, sizeof date);
	const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S", &t);
	return end ? clock_wall_s() - (double)timegm(&t) : 0;
}

/* clang-format off */
static const struct {
	const char *code; /* NULL: any */
	int status;       /* 0: any */
	enum err_code as;
	const char *text;
} refusals[] = {
	{ "NoSuchBucket",          0,   ERR_USAGE,    "there is no such bucket; create it, or correct its name" },
	{ "InvalidAccessKeyId",    0,   ERR_AUTH,     "the store does not know the access key; correct AWS_ACCESS_KEY_ID or AWS_PROFILE" },
	{ "SignatureDoesNotMatch", 0,   ERR_AUTH,     "the store refuses the signature; correct the secret key, or AWS_REGION" },
	{ "ExpiredToken",          0,   ERR_AUTH,     "the temporary keys have expired; set new ones" },
	{ "InvalidToken",          0,   ERR_AUTH,     "the store refuses AWS_SESSION_TOKEN; set it again" },
	{ "BadDigest",             0,   ERR_CORRUPT,  "the bytes changed on their way to the store; try again" },
	{ "XAmzContentSHA256Mismatch", 0, ERR_CORRUPT, "the bytes changed on their way to the store; try again" },
	{ "QuotaExceeded",         0,   ERR_FULL,     "the quota of the store is used up" },
	{ NULL,                    301, ERR_USAGE,    "the bucket is in another region; set AWS_REGION" },
	{ NULL,                    307, ERR_USAGE,    "the bucket is in another region; set AWS_REGION" },
	{ NULL,                    401, ERR_AUTH,     "the store does not accept the keys" },
	{ NULL,                    403, ERR_DENIED,   "the store does not allow this; ask its owner for access" },
	{ NULL,                    404, ERR_NOTFOUND, "there is no such object" },
	{ NULL,                    412, ERR_STALE,    "another writer changed the object first" },
	{ NULL,                    416, ERR_IO,       "the object is shorter than what was to be read" },
	{ NULL,                    501, ERR_UNSUPPORTED, "the store cannot do this" },
	{ NULL,                    507, ERR_FULL,     "the store is full" },
};
/* clang-format on */

static void name_object(const struct s3_call *call, char *out, size_t n)
{
	snprintf(out, n, "s3://%s%s%.300s", call->r.at->bucket, call->r.at->key[0] ? "/" : "",
		 call->r.at->key);
}

void s3_explain(struct s3_call *call)
{
	char said[200], what[S3_BUCKET + 320], region[64];
	s3_read_code(call, said, sizeof said);
	name_object(call, what, sizeof what);
	if (!strcmp(call->code, "RequestTimeTooSkewed")) {
		double skew = skew_of(call);
		err_set(&call->err, ERR_AUTH,
			"%s: the clock of this host is %.0f seconds %s the store's, which refuses "
			"such requests; set the clock (chronyd, ntpd)",
			what, fabs(skew), skew < 0 ? "behind" : "ahead of");
		return;
	}
	if (call->status == 404 && !call->r.at->key[0] && strcmp(call->code, "NoSuchBucket")) {
		err_set(&call->err, ERR_USAGE,
			"%s: nothing is known of this bucket there (404 %s); correct "
			"AWS_ENDPOINT_URL or the bucket's name",
			what, call->code);
		return;
	}
	http_answer_header(&call->answer, "x-amz-bucket-region", region, sizeof region);
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		if (refusals[i].code ? strcmp(refusals[i].code, call->code)
				     : refusals[i].status != call->status)
			continue;
		err_set(&call->err, refusals[i].as, "%s: %s%s%s (%d%s%s%s%s)", what,
			refusals[i].text, *region && call->status < 400 ? " to " : "",
			call->status < 400 ? region : "", call->status, call->code[0] ? " " : "",
			call->code, *said ? ": " : "", said);
		return;
	}
	err_set(&call->err, ERR_IO, "%s: the store answered %d %s%s%s%s", what, call->status,
		call->code, *said ? " (" : "", said, *said ? ")" : "");
}
