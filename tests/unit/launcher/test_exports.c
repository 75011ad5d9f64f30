/* What other tools read of a run: the records of TensorBoard's files, and the texts of Prometheus
 * and OpenMetrics. */
#include "launcher/exports/crc32c.h"
#include "launcher/exports/gauges.h"
#include "launcher/exports/hparams.h"
#include "launcher/exports/protobuf.h"
#include "launcher/exports/tensorboard.h"
#include "launcher/exports/tfevents.h"
#include "launcher/exports/token.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* --- CRC-32C ---------------------------------------------------------------------------- */

/* RFC 3720, appendix B.4, and the check value of the catalogue of CRCs. */
static void crc32c_has_the_published_values(void **state)
{
	(void)state;
	unsigned char zeros[32] = { 0 }, ones[32], rising[32], falling[32];
	memset(ones, 0xff, sizeof ones);
	for (int i = 0; i < 32; i++) {
		rising[i] = (unsigned char)i;
		falling[i] = (unsigned char)(31 - i);
	}
	assert_int_equal(exports_crc32c(zeros, 32), 0x8a9136aa);
	assert_int_equal(exports_crc32c(ones, 32), 0x62a8ab43);
	assert_int_equal(exports_crc32c(rising, 32), 0x46dd794e);
	assert_int_equal(exports_crc32c(falling, 32), 0x113fdb5c);
	assert_int_equal(exports_crc32c("123456789", 9), 0xe3069283);
	assert_int_equal(exports_crc32c("", 0), 0);
}

/* rotr15(0xe3069283) + 0xa282ead8, by hand. */
static void a_masked_crc_is_rotated_and_shifted(void **state)
{
	(void)state;
	const uint32_t rotated = 0x2507c60d;
	assert_int_equal(exports_crc32c_masked("123456789", 9), (uint32_t)(rotated + 0xa282ead8u));
}

/* --- Records ---------------------------------------------------------------------------- */

static uint64_t little(const unsigned char *at, size_t n)
{
	uint64_t value = 0;
	for (size_t i = 0; i < n; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

/* Checks the frame of the record at *at, and moves *at behind it. Returns its data. */
static const unsigned char *take_record(const struct buf *b, size_t *at, size_t *n)
{
	const unsigned char *begin = (const unsigned char *)b->data + *at;
	assert_true(b->len - *at >= 16);
	*n = little(begin, 8);
	assert_true(*n <= b->len - *at - 16);
	assert_int_equal(little(begin + 8, 4), exports_crc32c_masked(begin, 8));
	assert_int_equal(little(begin + 12 + *n, 4), exports_crc32c_masked(begin + 12, *n));
	*at += 16 + *n;
	return begin + 12;
}

/* The fields by their numbers in TensorFlow's event.proto. */
static void the_first_record_names_the_version(void **state)
{
	(void)state;
	static const unsigned char want[] = { 0x09, 0,   0,    0,   0,   0,   0,   0xf0, 0x3f,
					      0x10, 0,   0x1a, 13,  'b', 'r', 'a', 'i',  'n',
					      '.',  'E', 'v',  'e', 'n', 't', ':', '2' };
	struct buf out = BUF_INIT;
	size_t at = 0, n;
	exports_tf_version(&out, 1);
	const unsigned char *data = take_record(&out, &at, &n);
	assert_int_equal(n, sizeof want);
	assert_memory_equal(data, want, n);
	assert_int_equal(at, out.len);
	buf_fini(&out);
}

static void a_step_is_one_record_of_single_precision_numbers(void **state)
{
	(void)state;
	/* step 300: a varint of two bytes; summary of one value: tag "a", 0.5 */
	static const unsigned char want[] = { 0x09, 0,    0,    0,    0,    0,  0,    0xf0,
					      0x3f, 0x10, 0xac, 2,    0x2a, 10, 0x0a, 8,
					      0x0a, 1,    'a',  0x15, 0,    0,  0,    0x3f };
	const struct exports_scalar half = { "a", 0.5 };
	struct buf out = BUF_INIT;
	size_t at = 0, n;
	exports_tf_scalars(&out, 1, 300, &half, 1);
	const unsigned char *data = take_record(&out, &at, &n);
	assert_int_equal(n, sizeof want);
	assert_memory_equal(data, want, n);
	assert_int_equal(at, out.len);
	buf_fini(&out);
}

static void a_restart_is_the_start_of_a_session(void **state)
{
	(void)state;
	static const unsigned char want[] = { 0x10, 41, 0x3a, 2, 0x08, 1 };
	struct buf out = BUF_INIT;
	size_t at = 0, n;
	exports_tf_restart(&out, 1, 41);
	const unsigned char *data = take_record(&out, &at, &n);
	assert_int_equal(n, 9 + sizeof want);
	assert_memory_equal(data + 9, want, sizeof want);
	buf_fini(&out);
}

static void a_negative_varint_has_ten_bytes(void **state)
{
	(void)state;
	static const unsigned char want[] = { 0x08, 0xff, 0xff, 0xff, 0xff, 0xff,
					      0xff, 0xff, 0xff, 0xff, 0x01 };
	struct buf out = BUF_INIT;
	exports_pb_int(&out, 1, -1);
	assert_int_equal(out.len, sizeof want);
	assert_memory_equal(out.data, want, sizeof want);
	buf_fini(&out);
}

static void the_page_of_hyperparameters_names_no_path(void **state)
{
	(void)state;
	struct job job;
	struct err e = ERR_INIT;
	struct buf out = BUF_INIT;
	size_t at = 0, n;
	const char *words[] = { "data.path=/secret/place", "metrics.listen=127.0.0.1:0",
				"metrics.token_file=/secret/token", "optimizer.lr=0.125" };
	assert_int_equal(job_words(words, 4, &job, &e), 0);
	exports_hparams_start(&out, 1, &job);
	assert_null(memmem(out.data, out.len, "/secret", 7));
	assert_non_null(memmem(out.data, out.len, "optimizer.lr", 12));
	assert_non_null(memmem(out.data, out.len, EXPORTS_TAG_EVAL_LOSS, 9));
	take_record(&out, &at, &n);
	take_record(&out, &at, &n);
	assert_int_equal(at, out.len);
	buf_fini(&out);
}

/* --- Prometheus ------------------------------------------------------------------------- */

static bool has_line(const struct buf *b, const char *line)
{
	const char *at = strstr(b->data, line);
	return at && (at == b->data || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static void text_of(const struct export_gauges *g, enum export_format format, struct buf *out)
{
	struct buf ranks = BUF_INIT;
	buf_clear(out);
	exports_gauges_ranks(g, &ranks);
	exports_gauges_text(g, format, &ranks, out);
	buf_fini(&ranks);
	assert_false(buf_failed(out));
}

static void a_number_that_is_not_known_is_absent(void **state)
{
	(void)state;
	static struct export_gauges g;
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "demo", "n1");
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_null(strstr(out.data, "muster_loss"));
	assert_null(strstr(out.data, "muster_step_time_seconds_total"));
	exports_gauge_set(&g, GAUGE_LOSS, 2.5);
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(has_line(&out, "# TYPE muster_loss gauge"));
	assert_true(has_line(&out, "muster_loss{run=\"demo\",host=\"n1\"} 2.5"));
	buf_fini(&out);
}

static void numbers_are_spelled_as_the_formats_want(void **state)
{
	(void)state;
	static struct export_gauges g;
	static const struct {
		double value;
		const char *line;
	} cases[] = {
		{ 0, "muster_loss{run=\"r\",host=\"h\"} 0" },
		{ 1e12, "muster_loss{run=\"r\",host=\"h\"} 1000000000000" },
		{ 0.1, "muster_loss{run=\"r\",host=\"h\"} 0.1" },
		{ NAN, "muster_loss{run=\"r\",host=\"h\"} NaN" },
		{ INFINITY, "muster_loss{run=\"r\",host=\"h\"} +Inf" },
		{ -INFINITY, "muster_loss{run=\"r\",host=\"h\"} -Inf" },
		{ 1e300, "muster_loss{run=\"r\",host=\"h\"} 1e+300" },
		{ 0.1 + 0.2, "muster_loss{run=\"r\",host=\"h\"} 0.30000000000000004" },
	};
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "r", "h");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		exports_gauge_set(&g, GAUGE_LOSS, cases[i].value);
		text_of(&g, FORMAT_PROMETHEUS, &out);
		assert_true(has_line(&out, cases[i].line));
	}
	buf_fini(&out);
}

static void labels_are_escaped_and_never_cut(void **state)
{
	(void)state;
	static struct export_gauges g;
	char longest[2000];
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "a\"b\\c\nd", "h");
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(has_line(&out, "muster_run_info{run=\"a\\\"b\\\\c\\nd\",host=\"h\"} 1"));
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	exports_gauges_info(&g, "family", "gpt2");
	exports_gauges_info(&g, "long", longest);
	exports_gauges_info(&g, "last", "one");
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_non_null(strstr(out.data, ",family=\"gpt2\",last=\"one\"} 1\n"));
	buf_fini(&out);
}

static void open_metrics_names_counters_without_total_and_ends(void **state)
{
	(void)state;
	static struct export_gauges g;
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "r", "h");
	exports_gauge_add(&g, GAUGE_TOKENS, 3);
	exports_gauge_add(&g, GAUGE_TOKENS, 4);
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(has_line(&out, "# TYPE muster_tokens_total counter"));
	assert_true(has_line(&out, "muster_tokens_total{run=\"r\",host=\"h\"} 7"));
	assert_null(strstr(out.data, "# EOF"));
	text_of(&g, FORMAT_OPEN_METRICS, &out);
	assert_true(has_line(&out, "# TYPE muster_tokens counter"));
	assert_true(has_line(&out, "muster_tokens_total{run=\"r\",host=\"h\"} 7"));
	assert_string_equal(out.data + out.len - 6, "# EOF\n");
	buf_fini(&out);
}

static void one_state_is_1_and_the_others_are_0(void **state)
{
	(void)state;
	static struct export_gauges g;
	struct buf out = BUF_INIT;
	int ones = 0, all = 0;
	exports_gauges_init(&g, "r", "h");
	g.state = RUNDIR_STATE_GAVE_UP;
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(has_line(&out, "muster_state{run=\"r\",host=\"h\",state=\"gave-up\"} 1"));
	for (const char *at = out.data; (at = strstr(at, "\nmuster_state{")); at++) {
		all++;
		ones += *(strchr(at + 1, '\n') - 1) == '1';
	}
	assert_int_equal(ones, 1);
	assert_int_equal(all, 10);
	buf_fini(&out);
}

static void the_time_of_all_ranks_is_split_into_its_parts(void **state)
{
	(void)state;
	static struct export_gauges g;
	int64_t time[TIME_PART_COUNT] = { [TIME_COMPUTE] = 1500000, [TIME_RESTART] = 250000 };
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "r", "h");
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_null(strstr(out.data, "muster_time_seconds"));
	g.time = time;
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(
		has_line(&out, "muster_time_seconds{run=\"r\",host=\"h\",part=\"compute\"} 1.5"));
	assert_true(
		has_line(&out, "muster_time_seconds{run=\"r\",host=\"h\",part=\"restart\"} 0.25"));
	assert_true(has_line(&out, "muster_time_seconds{run=\"r\",host=\"h\",part=\"idle\"} 0"));
	buf_fini(&out);
}

static bool two_ranks(void *arg, int rank, struct export_rank *out)
{
	(void)arg;
	*out = (struct export_rank){ .node = rank ? "n2" : "n1", .step = 7 + rank, .still_s = 0.5 };
	return rank < 2;
}

static void series_of_ranks_come_only_if_they_are_asked_for(void **state)
{
	(void)state;
	static struct export_gauges g;
	struct buf out = BUF_INIT;
	exports_gauges_init(&g, "r", "h");
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_null(strstr(out.data, "muster_rank_"));
	g.rank = two_ranks;
	text_of(&g, FORMAT_PROMETHEUS, &out);
	assert_true(
		has_line(&out, "muster_rank_step{run=\"r\",host=\"h\",rank=\"1\",node=\"n2\"} 8"));
	assert_true(has_line(
		&out,
		"muster_rank_still_seconds{run=\"r\",host=\"h\",rank=\"0\",node=\"n1\"} 0.500"));
	buf_fini(&out);
}

/* --- The token ---------------------------------------------------------------------------- */

static void only_the_whole_token_matches(void **state)
{
	(void)state;
	static const char token[] = "0123456789abcdef";
	assert_true(exports_token_matches(token, "Bearer 0123456789abcdef"));
	assert_true(exports_token_matches(token, "bearer 0123456789abcdef"));
	assert_false(exports_token_matches(token, NULL));
	assert_false(exports_token_matches(token, ""));
	assert_false(exports_token_matches(token, "Bearer "));
	assert_false(exports_token_matches(token, "Bearer 0123456789abcde"));
	assert_false(exports_token_matches(token, "Bearer 0123456789abcdeg"));
	assert_false(exports_token_matches(token, "Bearer 0123456789abcdef0123456789abcdef"));
	assert_false(exports_token_matches(token, "Basic 0123456789abcdef"));
}

static void write_token(const char *path, const char *text, mode_t mode)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_int_equal(chmod(path, mode), 0);
}

static void a_token_is_private_and_long_enough(void **state)
{
	(void)state;
	char dir[256], path[300], token[EXPORTS_TOKEN];
	struct err e = ERR_INIT;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(path, sizeof path, "%s/token", dir);
	unsetenv(EXPORTS_TOKEN_VARIABLE);
	assert_int_equal(exports_token_read("", token, &e), 0);
	assert_string_equal(token, "");
	assert_int_equal(exports_token_read(path, token, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	write_token(path, " 0123456789abcdef\n", 0640);
	assert_int_equal(exports_token_read(path, token, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	write_token(path, " 0123456789abcdef\n", 0600);
	assert_int_equal(exports_token_read(path, token, &e), 0);
	assert_string_equal(token, "0123456789abcdef");
	write_token(path, "short\n", 0600);
	assert_int_equal(exports_token_read(path, token, &e), -1);
	write_token(path, "0123456789abcdef 0123456789abcdef\n", 0600);
	assert_int_equal(exports_token_read(path, token, &e), -1);
	setenv(EXPORTS_TOKEN_VARIABLE, "fedcba9876543210", 1);
	assert_int_equal(exports_token_read("", token, &e), 0);
	assert_string_equal(token, "fedcba9876543210");
	unsetenv(EXPORTS_TOKEN_VARIABLE);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc32c_has_the_published_values),
		cmocka_unit_test(a_masked_crc_is_rotated_and_shifted),
		cmocka_unit_test(the_first_record_names_the_version),
		cmocka_unit_test(a_step_is_one_record_of_single_precision_numbers),
		cmocka_unit_test(a_restart_is_the_start_of_a_session),
		cmocka_unit_test(a_negative_varint_has_ten_bytes),
		cmocka_unit_test(the_page_of_hyperparameters_names_no_path),
		cmocka_unit_test(a_number_that_is_not_known_is_absent),
		cmocka_unit_test(numbers_are_spelled_as_the_formats_want),
		cmocka_unit_test(labels_are_escaped_and_never_cut),
		cmocka_unit_test(open_metrics_names_counters_without_total_and_ends),
		cmocka_unit_test(one_state_is_1_and_the_others_are_0),
		cmocka_unit_test(the_time_of_all_ranks_is_split_into_its_parts),
		cmocka_unit_test(series_of_ranks_come_only_if_they_are_asked_for),
		cmocka_unit_test(only_the_whole_token_matches),
		cmocka_unit_test(a_token_is_private_and_long_enough),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
