/* Large objects of a store, in parts and by ranges, while the store fails in every way. */
#include "tests/unit/agent/s3_double.h"

#include "base/philox.h"
#include "base/s3/download.h"
#include "base/s3/upload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BIG = 5 * S3_PART / 2 + 12345, CHUNK = 1 << 20 };

static struct s3_client *client;
static struct s3_client *hasty; /* it sends a request again that is not answered for a second */
static char *data;
static int number;

static struct s3_place new_place(void)
{
	struct s3_place at = { .bucket = "bucket" };
	snprintf(at.key, sizeof at.key, "big/%d", number++);
	return at;
}

static int upload(const struct s3_place *at, size_t n, struct err *e)
{
	struct s3_upload *u;
	assert_int_equal(s3_upload_open(client, at, &u, e), 0);
	for (size_t i = 0; i < n; i += CHUNK)
		if (s3_upload_write(u, data + i, n - i < CHUNK ? n - i : CHUNK, e)) {
			s3_upload_cut(u);
			return -1;
		}
	return s3_upload_finish(u, e);
}

static int download(const struct s3_place *at, int64_t size, size_t chunk, struct err *e)
{
	struct s3_download *d;
	char *to = malloc(chunk);
	int rc = 0;
	assert_non_null(to);
	assert_int_equal(s3_download_open(client, at, size, "", &d, e), 0);
	for (int64_t i = 0; i < size && !rc; i += (int64_t)chunk) {
		size_t n = size - i < (int64_t)chunk ? (size_t)(size - i) : chunk;
		rc = s3_download_read(d, i, to, n, e);
		if (!rc)
			assert_memory_equal(to, data + i, n);
	}
	s3_download_close(d);
	free(to);
	return rc;
}

static int count_uploads(void *arg, const struct s3_unfinished *u, struct err *e)
{
	(void)u, (void)e;
	++*(int *)arg;
	return 0;
}

static int unfinished(void)
{
	struct s3_place at = { .bucket = "bucket", .key = "big/" };
	struct err e = ERR_INIT;
	int n = 0;
	s3_double_plan("");
	assert_int_equal(s3_list_unfinished(client, &at, count_uploads, &n, &e), 0);
	return n;
}

static void objects_are_written_in_parts_and_read_ahead(void **state)
{
	static const size_t sizes[] = { 0,       1,           CHUNK,       S3_PART - 1,
					S3_PART, S3_PART + 1, 2 * S3_PART, BIG };
	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct s3_place at = new_place();
		struct s3_object o;
		struct err e = ERR_INIT;
		s3_double_plan("");
		if (upload(&at, sizes[i], &e) || s3_head(client, &at, &o, &e))
			fail_msg("%s", e.text);
		assert_int_equal(o.size, (int64_t)sizes[i]);
		assert_int_equal(s3_double_count("UploadPart"),
				 sizes[i] > S3_PART ? (int)((sizes[i] + S3_PART - 1) / S3_PART)
						    : 0);
		if (download(&at, o.size, CHUNK, &e) || download(&at, o.size, 3 * S3_RANGE, &e))
			fail_msg("%s", e.text);
	}
	assert_true(s3_double_count("GetObject") < 40);
}

static void small_reads_do_not_fetch_much_more(void **state)
{
	struct s3_place at = new_place();
	struct s3_download *d;
	struct err e = ERR_INIT;
	char to[100];
	(void)state;
	assert_int_equal(upload(&at, BIG, &e), 0);
	s3_double_plan("");
	assert_int_equal(s3_download_open(client, &at, BIG, "", &d, &e), 0);
	for (int i = 10; i > 0; i--) {
		assert_int_equal(s3_download_read(d, i * CHUNK, to, sizeof to, &e), 0);
		assert_memory_equal(to, data + i * CHUNK, sizeof to);
	}
	assert_int_equal(s3_double_count("GetObject"), 10);
	assert_int_equal(s3_download_read(d, BIG - 50, to, sizeof to, &e), -1);
	s3_download_close(d);
}

/* Each failure passes: the object is right in the end, and no upload stays behind. */
static void failures_on_the_way_are_mended(void **state)
{
	static const char *const plans[] = {
		"* * plain",
		"UploadPart 1-2 503",
		"UploadPart 2 cut",
		"UploadPart 2 lost",
		"UploadPart 3 half",
		"UploadPart 1 late 3",
		"CreateMultipartUpload 1 500",
		"CompleteMultipartUpload 1 500",
		"CompleteMultipartUpload 1 cut",
		"CompleteMultipartUpload 1 lost",
		"CompleteMultipartUpload 1 half",
		"HeadObject 1 503 0.01",
		"* every2 503",
		"* every3 lost",
		"GetObject 2 cut",
		"GetObject 1-3 half",
		"GetObject 2 late 3",
		"GetObject every2 500",
	};
	(void)state;
	for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
		struct s3_place at = new_place();
		struct err e = ERR_INIT;
		struct s3_client *other = client;
		s3_double_plan(plans[i]);
		if (strstr(plans[i], " late "))
			client = hasty;
		int rc = upload(&at, BIG, &e) || download(&at, BIG, CHUNK, &e);
		client = other;
		if (rc)
			fail_msg("%s: %s", plans[i], e.text);
	}
}

/* Each lie is found: the upload fails, and is aborted. */
static void lies_are_found(void **state)
{
	static const char *const plans[] = {
		"UploadPart 2 drop",
		"UploadPart 2 flip",
		"CompleteMultipartUpload 1 part",
		"CompleteMultipartUpload 1 drop",
		"HeadObject * plain\nUploadPart * plain\nCompleteMultipartUpload 1 part",
		"UploadPart 2-99 500",
		"CompleteMultipartUpload * 500",
		"CompleteMultipartUpload * cut",
		"CreateMultipartUpload * 503",
	};
	(void)state;
	for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
		struct s3_place at = new_place();
		struct err e = ERR_INIT;
		s3_double_plan(plans[i]);
		if (!upload(&at, BIG, &e))
			fail_msg("%s: was believed", plans[i]);
		assert_non_null(strstr(e.text, at.key));
		assert_int_equal(unfinished(), 0);
	}
}

static void wrong_ranges_are_found(void **state)
{
	struct s3_place at = new_place();
	struct err e = ERR_INIT;
	(void)state;
	s3_double_plan("");
	assert_int_equal(upload(&at, BIG, &e), 0);
	s3_double_plan("GetObject 3 short");
	assert_int_equal(download(&at, BIG, CHUNK, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	/* The store may still count requests that the download before has given up. */
	s3_double_plan("GetObject 3-99 shift");
	assert_int_equal(download(&at, BIG, CHUNK, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	s3_double_plan("");
	assert_int_equal(download(&at, BIG + 1, CHUNK, &e), -1);
}

static void conditional_writes_name_the_first_writer_only(void **state)
{
	struct s3_place at = new_place();
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	char etag[S3_ETAG];
	(void)state;
	s3_double_plan("PutObject 1 lost");
	assert_int_equal(s3_put(client, &at, "one", 3, S3_IF_NONE, NULL, &e), 0);
	assert_true(s3_double_count("PutObject") == 2);
	s3_double_plan("");
	assert_int_equal(s3_put(client, &at, "one", 3, S3_IF_NONE, NULL, &e), 0);
	assert_int_equal(s3_put(client, &at, "two", 3, S3_IF_NONE, NULL, &e), -1);
	assert_int_equal(e.code, ERR_STALE);
	assert_int_equal(s3_get(client, &at, 10, &b, etag, &e), 0);
	assert_string_equal(buf_str(&b), "one");
	assert_int_equal(s3_put(client, &at, "two", 3, S3_IF_SAME, etag, &e), 0);
	assert_int_equal(s3_put(client, &at, "six", 3, S3_IF_SAME, etag, &e), -1);
	assert_int_equal(e.code, ERR_STALE);
	s3_double_plan("PutObject 1 drop");
	assert_int_equal(s3_put(client, &at, "six", 3, S3_ALWAYS, NULL, &e), 0);
	buf_clear(&b);
	assert_int_equal(s3_get(client, &at, 10, &b, NULL, &e), 0);
	assert_string_equal(buf_str(&b), "six");
	buf_fini(&b);
}

static int count_objects(void *arg, const struct s3_listed *o, struct err *e)
{
	(void)o, (void)e;
	++*(int *)arg;
	return 0;
}

static void lists_have_pages_and_what_they_name_is_removed(void **state)
{
	struct s3_place at = { .bucket = "bucket", .key = "many" }, one = at;
	struct err e = ERR_INIT;
	int n = 0;
	(void)state;
	s3_double_plan("");
	for (int i = 0; i < 25; i++) {
		snprintf(one.key, sizeof one.key, "many/a%d&<é", i);
		assert_int_equal(s3_put(client, &one, "x", 1, S3_ALWAYS, NULL, &e), 0);
	}
	s3_double_plan("ListObjectsV2 2 503");
	assert_int_equal(s3_list(client, &at, true, 0, count_objects, &n, &e), 0);
	assert_int_equal(n, 25);
	assert_int_equal(s3_double_count("ListObjectsV2"), 4);
	s3_double_plan("ListObjectsV2 * again"); /* a list without an end */
	assert_int_equal(s3_list(client, &at, true, 0, count_objects, &n, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_int_equal(s3_double_count("ListObjectsV2"), 2);
	s3_double_plan("");
	assert_int_equal(s3_delete_below(client, &at, &e), 0);
	n = 0;
	assert_int_equal(s3_list(client, &at, true, 0, count_objects, &n, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(s3_put(client, &one, "x", 1, S3_ALWAYS, NULL, &e), 0);
	s3_double_plan("DeleteObjects * drop");
	assert_int_equal(s3_delete_below(client, &at, &e), -1);
}

int main(void)
{
	struct err e = ERR_INIT;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_written_in_parts_and_read_ahead),
		cmocka_unit_test(small_reads_do_not_fetch_much_more),
		cmocka_unit_test(failures_on_the_way_are_mended),
		cmocka_unit_test(lies_are_found),
		cmocka_unit_test(wrong_ranges_are_found),
		cmocka_unit_test(conditional_writes_name_the_first_writer_only),
		cmocka_unit_test(lists_have_pages_and_what_they_name_is_removed),
	};
	setenv("S3_DOUBLE_PAGE", "10", 1);
	/* Requests are counted, so none may be sent again because it is slow. */
	setenv("MUSTER_S3_STALL_S", "300", 1);
	setenv("AWS_MAX_ATTEMPTS", "5", 1);
	if (!s3_double_start()) {
		printf("skipped: there is no python3\n");
		return 0;
	}
	data = malloc(BIG + 1);
	if (!data || s3_client_open(&client, &e))
		return 1;
	setenv("MUSTER_S3_STALL_S", "1", 1);
	if (s3_client_open(&hasty, &e))
		return 1;
	for (int i = 0; i < BIG; i += 16) {
		uint32_t r[4];
		philox4(philox_key(1, PHILOX_TEST, 1), (uint64_t)i, r);
		memcpy(data + i, r, (size_t)(BIG + 1 - i < 16 ? BIG + 1 - i : 16));
	}
	int rc = cmocka_run_group_tests_name("objects of a store", tests, NULL, NULL);
	s3_client_close(client);
	s3_client_close(hasty);
	free(data);
	s3_double_stop();
	return rc;
}
