/* Requests to an object store: signatures, answers, retries, keys. */
#include "base/s3/credentials.h"
#include "base/s3/list.h"
#include "base/s3/retry.h"
#include "base/s3/sign.h"
#include "base/s3/xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* --- signatures ------------------------------------------------------------------ */

/* The examples of "Signature Calculations for the Authorization Header" in Amazon's S3 API
 * reference. */
static const struct {
	const char *method, *path, *payload, *signature;
	struct s3_field query[2], headers[5];
	size_t n_query, n_headers;
} vectors[] = {
	{ .method = "GET",
	  .path = "/test.txt",
	  .payload = EMPTY,
	  .signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
	  .headers = { { "x-amz-date", "20130524T000000Z" },
		       { "host", "examplebucket.s3.amazonaws.com" },
		       { "range", "bytes=0-9" },
		       { "x-amz-content-sha256", EMPTY } },
	  .n_headers = 4 },
	{ .method = "PUT",
	  .path = "/test%24file.text",
	  .payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
	  .signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
	  .headers = { { "date", "Fri, 24 May 2013 00:00:00 GMT" },
		       { "host", "examplebucket.s3.amazonaws.com" },
		       { "x-amz-content-sha256",
			 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072" },
		       { "x-amz-date", "20130524T000000Z" },
		       { "x-amz-storage-class", "REDUCED_REDUNDANCY" } },
	  .n_headers = 5 },
	{ .method = "GET",
	  .path = "/",
	  .payload = EMPTY,
	  .signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
	  .query = { { "lifecycle", "" } },
	  .n_query = 1,
	  .headers = { { "host", "examplebucket.s3.amazonaws.com" },
		       { "x-amz-content-sha256", EMPTY },
		       { "x-amz-date", "20130524T000000Z" } },
	  .n_headers = 3 },
	{ .method = "GET",
	  .path = "/",
	  .payload = EMPTY,
	  .signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
	  .query = { { "prefix", "J" }, { "max-keys", "2" } },
	  .n_query = 2,
	  .headers = { { "host", "examplebucket.s3.amazonaws.com" },
		       { "x-amz-content-sha256", EMPTY },
		       { "x-amz-date", "20130524T000000Z" } },
	  .n_headers = 3 },
};

static void requests_are_signed_as_in_amazons_examples(void **state)
{
	struct s3_keys keys = { .id = "AKIAIOSFODNN7EXAMPLE",
				.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" };
	(void)state;
	for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
		struct err e = ERR_INIT;
		struct buf out = BUF_INIT;
		char date[S3_DATE];
		s3_date(1369353600, date);
		struct s3_signing s = { .method = vectors[i].method,
					.path = vectors[i].path,
					.query = vectors[i].query,
					.n_query = vectors[i].n_query,
					.headers = vectors[i].headers,
					.n_headers = vectors[i].n_headers,
					.payload = vectors[i].payload,
					.date = date,
					.region = "us-east-1",
					.keys = &keys };
		assert_int_equal(s3_sign(&s, &out, &e), 0);
		const char *signature = strstr(buf_str(&out), "Signature=");
		assert_non_null(signature);
		assert_string_equal(signature + 10, vectors[i].signature);
		assert_non_null(strstr(buf_str(&out),
				       "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/"
				       "us-east-1/s3/aws4_request,SignedHeaders="));
		assert_null(strstr(buf_str(&out), "wJalr"));
		buf_fini(&out);
	}
}

static void texts_are_encoded_as_they_are_signed(void **state)
{
	struct buf b = BUF_INIT;
	(void)state;
	s3_encode(&b, "a/b c+d~é$", true);
	assert_string_equal(buf_str(&b), "a/b%20c%2Bd~%C3%A9%24");
	buf_clear(&b);
	s3_encode(&b, "a/b", false);
	assert_string_equal(buf_str(&b), "a%2Fb");
	buf_fini(&b);
}

/* --- answers --------------------------------------------------------------------- */

static int collect(void *arg, const char *path, const char *text, struct err *e)
{
	(void)e;
	buf_printf(arg, "%s=%s;", path, text ? text : "…");
	return 0;
}

static void answers_are_read_element_by_element(void **state)
{
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	static const char text[] = "<?xml version=\"1.0\"?>\n<R xmlns=\"http://x/\"><A>1 &lt; "
				   "2</A><B><C/></B><A>&quot;x&quot;</A></R>";
	(void)state;
	assert_int_equal(s3_xml_read(text, strlen(text), collect, &b, &e), 0);
	assert_string_equal(buf_str(&b), "R/A=1 < 2;R/B/C=;R/B=…;R/A=\"x\";R=…;");
	buf_fini(&b);
}

static void answers_that_are_not_right_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"<R>",
		"<R></S>",
		"no XML",
		"<R/><R/>",
		"<!DOCTYPE R [<!ENTITY a \"b\">]><R>&a;</R>",
		"<!DOCTYPE R SYSTEM \"file:///etc/passwd\"><R/>",
		"<R>&a;</R>",
		"<a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>",
	};
	struct buf b = BUF_INIT;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(s3_xml_read(bad[i], strlen(bad[i]), collect, &b, &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
	}
	buf_clear(&b);
	buf_puts(&b, "<R>");
	for (int i = 0; i <= S3_XML_TEXT; i++)
		buf_puts(&b, "x");
	buf_puts(&b, "</R>");
	struct buf out = BUF_INIT;
	assert_int_equal(s3_xml_read(b.data, b.len, collect, &out, NULL), -1);
	buf_fini(&b);
	buf_fini(&out);
}

static int print_listed(void *arg, const struct s3_listed *o, struct err *e)
{
	(void)e;
	buf_printf(arg, "%s %s %lld %s %.0f;", o->folder ? "folder" : "object", o->key,
		   (long long)o->size, o->etag, o->written);
	return 0;
}

static int print_unfinished(void *arg, const struct s3_unfinished *u, struct err *e)
{
	(void)e;
	buf_printf(arg, "%s %s %.0f;", u->key, u->id, u->begun);
	return 0;
}

static void pages_of_lists_are_read(void **state)
{
	struct err e = ERR_INIT;
	struct s3_page page;
	struct buf b = BUF_INIT;
	static const char objects[] =
		"<ListBucketResult><IsTruncated>true</IsTruncated>"
		"<NextContinuationToken>t/+=</NextContinuationToken><Contents><Key>a/b</Key>"
		"<LastModified>2013-05-24T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag>"
		"<Size>5000000000</Size></Contents><CommonPrefixes><Prefix>a/c/</Prefix>"
		"</CommonPrefixes></ListBucketResult>";
	static const char uploads[] =
		"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
		"<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker>"
		"<Upload><Key>a</Key><UploadId>u</UploadId>"
		"<Initiated>2013-05-24T00:00:00.000Z</Initiated></Upload>"
		"</ListMultipartUploadsResult>";
	(void)state;
	assert_int_equal(s3_list_page(objects, strlen(objects), print_listed, &b, &page, &e), 0);
	assert_string_equal(buf_str(&b),
			    "object a/b 5000000000 \"1\" 1369353600;folder a/c/ 0  0;");
	assert_true(page.more);
	assert_string_equal(page.next, "t/+=");
	buf_clear(&b);
	assert_int_equal(
		s3_unfinished_page(uploads, strlen(uploads), print_unfinished, &b, &page, &e), 0);
	assert_string_equal(buf_str(&b), "a u 1369353600;");
	assert_string_equal(page.next_id, "i");
	static const char *const bad[] = {
		"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
		"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>"
		"</ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key><Size>9999999999999999999</Size>"
		"</Contents></ListBucketResult>",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(
			s3_list_page(bad[i], strlen(bad[i]), print_listed, &b, &page, NULL), -1);
	buf_fini(&b);
}

/* --- retries --------------------------------------------------------------------- */

static void pauses_double_are_random_and_end(void **state)
{
	struct s3_patience p = { .attempts = 8, .total_s = 60, .base_s = 0.5, .most_s = 4 };
	(void)state;
	assert_true(s3_pause(&p, 1, 0, 0, 0.5) == 0.25);
	assert_true(s3_pause(&p, 2, 0, 0, 0.5) == 0.5);
	assert_true(s3_pause(&p, 3, 0, 0, 0.5) == 1);
	assert_true(s3_pause(&p, 7, 0, 0, 0.5) == 2); /* the bound of any */
	assert_true(s3_pause(&p, 5, 0, 0, 0) == 0);
	assert_true(s3_pause(&p, 1, 0, 7, 0.5) == 7); /* what the store asked for */
	assert_true(s3_pause(&p, 8, 0, 0, 0) < 0);
	assert_true(s3_pause(&p, 1, 60, 0, 0) < 0);
	assert_true(s3_pause(&p, 1, 55, 5, 0) < 0);
}

static void what_may_pass_is_known(void **state)
{
	(void)state;
	assert_true(s3_answer_may_pass(500, "InternalError"));
	assert_true(s3_answer_may_pass(503, "SlowDown"));
	assert_true(s3_answer_may_pass(429, ""));
	assert_true(s3_answer_may_pass(409, "ConditionalRequestConflict"));
	assert_true(s3_answer_may_pass(200, "InternalError"));
	assert_false(s3_answer_may_pass(409, "BucketNotEmpty"));
	assert_false(s3_answer_may_pass(403, "AccessDenied"));
	assert_false(s3_answer_may_pass(404, "NoSuchKey"));
	assert_false(s3_answer_may_pass(412, "PreconditionFailed"));
	assert_true(s3_may_pass(ERR_NET) && s3_may_pass(ERR_TIMEOUT));
	assert_false(s3_may_pass(ERR_AUTH) || s3_may_pass(ERR_USAGE));
}

static void retry_after_is_seconds_or_a_date(void **state)
{
	(void)state;
	assert_true(s3_retry_after("3", 0) == 3);
	assert_true(s3_retry_after("Fri, 24 May 2013 00:00:07 GMT", 1369353600) == 7);
	assert_true(s3_retry_after("Fri, 24 May 2013 00:00:07 GMT", 1369353700) == 0);
	assert_true(s3_retry_after("", 0) == 0);
	assert_true(s3_retry_after("-3", 0) == 0);
	assert_true(s3_retry_after("nan", 0) == 0);
	assert_true(s3_retry_after("soon", 0) == 0);
}

/* --- keys ------------------------------------------------------------------------ */

static void a_profile_is_found_in_a_file(void **state)
{
	static const char text[] =
		"# mine\n[default]\naws_access_key_id=A\naws_secret_access_key=S\n"
		"\n[ two ]\r\n aws_access_key_id = B\r\n"
		"aws_secret_access_key = S/=+\r\naws_session_token = T\r\n"
		"region = x\n[half]\naws_access_key_id = C\n";
	struct s3_keys k = { 0 };
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(s3_profile_parse(text, "two", "f", &k, &e), 1);
	assert_string_equal(k.id, "B");
	assert_string_equal(k.secret, "S/=+");
	assert_string_equal(k.token, "T");
	assert_int_equal(s3_profile_parse(text, "default", "f", &k, &e), 1);
	assert_string_equal(k.id, "A");
	assert_string_equal(k.token, "");
	assert_int_equal(s3_profile_parse(text, "none", "f", &k, &e), 0);
	assert_int_equal(s3_profile_parse(text, "half", "f", &k, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_null(strstr(e.text, "S/=+"));
}

static void a_roles_keys_are_read(void **state)
{
	static const char good[] =
		"{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Token\": "
		"\"T\", \"Expiration\": \"2013-05-24T00:00:00Z\"}";
	static const char *const bad[] = { "", "{}", "[]", "{\"AccessKeyId\": \"A\"}",
					   "{\"AccessKeyId\": \"A\\n\", \"SecretAccessKey\": "
					   "\"S\"}" };
	struct s3_keys k = { 0 };
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(s3_role_parse(good, strlen(good), "x", &k, &e), 0);
	assert_string_equal(k.secret, "S");
	assert_true(k.expires == 1369353600);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(s3_role_parse(bad[i], strlen(bad[i]), "x", &k, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_signed_as_in_amazons_examples),
		cmocka_unit_test(texts_are_encoded_as_they_are_signed),
		cmocka_unit_test(answers_are_read_element_by_element),
		cmocka_unit_test(answers_that_are_not_right_are_refused),
		cmocka_unit_test(pages_of_lists_are_read),
		cmocka_unit_test(pauses_double_are_random_and_end),
		cmocka_unit_test(what_may_pass_is_known),
		cmocka_unit_test(retry_after_is_seconds_or_a_date),
		cmocka_unit_test(a_profile_is_found_in_a_file),
		cmocka_unit_test(a_roles_keys_are_read),
	};
	return cmocka_run_group_tests_name("object stores", tests, NULL, NULL);
}
