/* Tests the container. A written file reads back, and a violation of any rule of the format is
 * refused with a message of its own. */
#include "agent/engine/ckpt/format/safetensors.h"

#include <endian.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Builds a file from this header text and `buffer` zero bytes. */
static void build(const char *header, size_t length, size_t buffer, struct buf *out)
{
	static const char zeros[64];
	uint64_t le = htole64(length);
	buf_clear(out);
	buf_add(out, &le, sizeof le);
	buf_add(out, header, length);
	buf_add(out, zeros, buffer);
}

static void refuse(const void *data, size_t n, const char *says)
{
	struct err e = ERR_INIT;
	struct st_header h;
	if (ckpt_safetensors_parse(data, n, (int64_t)n, "f", &h, &e) == 0)
		fail_msg("accepted, but it should say: %s", says);
	if (e.code != ERR_CORRUPT || !strstr(e.text, says))
		fail_msg("should say: %s; says: %s: %s", says, err_word(e.code), e.text);
}

#define T(dtype, shape, offsets) \
	"{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32_2 T("\"F32\"", "[2]", "[0,8]")

/* clang-format off */
static const struct {
	const char *header;
	size_t buffer;
	const char *says;
} bad[] = {
	{ "", 0, "does not start with {" },
	{ " {}", 0, "does not start with {" },
	{ "[]", 0, "does not start with {" },
	{ "{", 0, "is not JSON" },
	{ "{} x", 0, "is not JSON" },
	{ "{\"a\xff\":" F32_2 "}", 8, "is not JSON" },
	{ "{\"a\\u0000b\":" F32_2 "}", 8, "is not JSON" },
	{ "{\"a\":" F32_2 ",\"a\":" F32_2 "}", 8, "is not JSON: duplicate object key" },
	{ "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "duplicate object key" },
	{ "{\"a\":7}", 0, "tensor a: is not an object" },
	{ "{\"a\":" T("\"F33\"", "[2]", "[0,8]") "}", 8, "dtype is missing or none" },
	{ "{\"a\":" T("\"f32\"", "[2]", "[0,8]") "}", 8, "dtype is missing or none" },
	{ "{\"a\":" T("4", "[2]", "[0,8]") "}", 8, "dtype is missing or none" },
	{ "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is missing" },
	{ "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape is missing" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets is missing" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":0}}", 8, "has fields besides" },
	{ "{\"a\":" T("\"F32\"", "2", "[0,8]") "}", 8, "no array" },
	{ "{\"a\":" T("\"F32\"", "[-2]", "[0,8]") "}", 8, "shape has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[2.0]", "[0,8]") "}", 8, "shape has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[2e0]", "[0,8]") "}", 8, "shape has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[\"2\"]", "[0,8]") "}", 8, "shape has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[18446744073709551616]", "[0,8]") "}", 8, "is not JSON: too big integer" },
	{ "{\"a\":" T("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, "more than 8 dimensions" },
	{ "{\"a\":" T("\"F32\"", "[2]", "[0]") "}", 8, "not two numbers" },
	{ "{\"a\":" T("\"F32\"", "[2]", "[0,8,8]") "}", 8, "not two numbers" },
	{ "{\"a\":" T("\"F32\"", "[2]", "[0,8.5]") "}", 8, "data_offsets has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[2]", "[-8,0]") "}", 8, "data_offsets has a value that is not" },
	{ "{\"a\":" T("\"F32\"", "[2]", "[8,0]") "}", 8, "end before they begin" },
	{ "{\"a\":" T("\"F32\"", "[4611686018427387904,4]", "[0,8]") "}", 8, "product of its shape overflows" },
	{ "{\"a\":" T("\"F32\"", "[9223372036854775807]", "[0,8]") "}", 8, "product of its shape overflows" },
	{ "{\"a\":" T("\"F32\"", "[3]", "[0,8]") "}", 8, "needs 12 bytes, its data_offsets hold 8" },
	{ "{\"a\":" T("\"F32\"", "[]", "[0,8]") "}", 8, "needs 4 bytes" },
	{ "{\"a\":" T("\"F32\"", "[1]", "[4,8]") "}", 8, "begins at byte 4, leaving a hole behind 0" },
	{ "{\"a\":" T("\"F32\"", "[1]", "[0,4]") ",\"b\":" T("\"F32\"", "[1]", "[8,12]") "}", 12, "leaving a hole behind 4" },
	{ "{\"a\":" F32_2 ",\"b\":" T("\"F32\"", "[1]", "[4,8]") "}", 8, "overlapping the one that ends at 8" },
	{ "{\"a\":" F32_2 "}", 7, "its tensors end at byte 8, its buffer at 7" },
	{ "{\"a\":" F32_2 "}", 9, "its tensors end at byte 8, its buffer at 9" },
	{ "{}", 1, "its tensors end at byte 0, its buffer at 1" },
	{ "{\"__metadata__\":[]}", 0, "__metadata__ is not an object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: a is not a string" },
};
/* clang-format on */

static void every_rule_refuses(void **state)
{
	struct buf file = BUF_INIT;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		build(bad[i].header, strlen(bad[i].header), bad[i].buffer, &file);
		refuse(file.data, file.len, bad[i].says);
	}
	buf_fini(&file);
}

static void lengths_that_lie_are_refused(void **state)
{
	struct buf file = BUF_INIT;
	static const struct {
		uint64_t n;
		const char *says;
	} lies[] = {
		{ 3, "goes beyond its end" },           { 100000000, "goes beyond its end" },
		{ 100000001, "100000000 is the most" }, { UINT64_MAX, "is the most" },
		{ UINT64_MAX - 7, "is the most" },      { 1ull << 63, "is the most" },
	};
	(void)state;
	for (size_t n = 0; n < 8; n++)
		refuse("\2\0\0\0\0\0\0\0", n, "too few");
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		uint64_t le = htole64(lies[i].n);
		build("{}", 2, 0, &file);
		memcpy(file.data, &le, sizeof le);
		refuse(file.data, file.len, lies[i].says);
	}
	buf_fini(&file);
}

static void deep_nesting_is_refused(void **state)
{
	struct buf text = BUF_INIT, file = BUF_INIT;
	(void)state;
	buf_puts(&text, "{\"a\":");
	for (int i = 0; i < 200000; i++)
		buf_puts(&text, "[");
	build(text.data, text.len, 0, &file);
	refuse(file.data, file.len, "is not JSON");
	buf_fini(&text);
	buf_fini(&file);
}

static void legal_files_are_read(void **state)
{
	/* clang-format off */
	static const struct {
		const char *header;
		size_t buffer;
		int64_t tensors;
	} good[] = {
		{ "{}", 0, 0 },
		{ "{}      ", 0, 0 },
		{ "{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0 },
		{ "{\"s\":" T("\"F64\"", "[]", "[0,8]") "}", 8, 1 },
		{ "{\"z\":" T("\"I64\"", "[0,5]", "[0,0]") ",\"a\":" F32_2 "}", 8, 2 },
		{ "{\"b\":" T("\"BF16\"", "[2,1]", "[8,12]") ",\"a\":" F32_2 "}", 12, 2 },
		{ "{\"a\":" T("\"F8_E4M3\"", "[3]", "[0,3]") ",\"b\":" T("\"BOOL\"", "[1]", "[3,4]") "}", 4, 2 },
	};
	/* clang-format on */
	struct buf file = BUF_INIT;
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct err e = ERR_INIT;
		struct st_header h;
		build(good[i].header, strlen(good[i].header), good[i].buffer, &file);
		if (ckpt_safetensors_parse(file.data, file.len, (int64_t)file.len, "f", &h, &e))
			fail_msg("%s: %s", good[i].header, e.text);
		assert_int_equal(h.n, good[i].tensors);
		ckpt_safetensors_header_fini(&h);
	}
	buf_fini(&file);
}

static void what_is_written_reads_back(void **state)
{
	struct err e = ERR_INIT;
	struct st_header h;
	struct buf file = BUF_INIT;
	const struct st_tensor list[] = {
		{ .name = "z[0:2,0:3]",
		  .dtype = "F32",
		  .dims = 2,
		  .shape = { 2, 3 },
		  .begin = 0,
		  .end = 24 },
		{ .name = "a", .dtype = "F32", .dims = 1, .shape = { 1 }, .begin = 24, .end = 28 },
	};
	json_t *metadata = json_pack("{s:s}", "format", "pt");
	(void)state;
	assert_int_equal(ckpt_safetensors_write_header(list, 2, metadata, &file, &e), 0);
	json_decref(metadata);
	assert_int_equal(file.len % 8, 0);
	buf_add(&file, "0123456789012345678901234567", 28);
	assert_int_equal(
		ckpt_safetensors_parse(file.data, file.len, (int64_t)file.len, "f", &h, &e), 0);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.data_at, file.len - 28);
	assert_string_equal(json_string_value(json_object_get(h.metadata, "format")), "pt");
	for (int i = 0; i < 2; i++) {
		assert_string_equal(h.tensors[i].name, list[i].name);
		assert_string_equal(h.tensors[i].dtype, list[i].dtype);
		assert_int_equal(h.tensors[i].dims, list[i].dims);
		assert_int_equal(h.tensors[i].shape[0], list[i].shape[0]);
		assert_int_equal(h.tensors[i].begin, list[i].begin);
		assert_int_equal(h.tensors[i].end, list[i].end);
	}
	ckpt_safetensors_header_fini(&h);
	buf_fini(&file);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
	struct buf file = BUF_INIT;
	int fd = memfd_create("f", MFD_CLOEXEC);
	(void)state;
	assert_true(fd >= 0);
	build("{\"a\":" F32_2 "}", strlen("{\"a\":" F32_2 "}"), 8, &file);
	for (size_t n = 0; n <= file.len; n++) {
		struct err e = ERR_INIT;
		struct st_header h;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, file.data, n, 0), n);
		int rc = ckpt_safetensors_read(fd, "f", &h, &e);
		assert_int_equal(rc, n == file.len ? 0 : -1);
		if (rc)
			assert_int_equal(e.code, ERR_CORRUPT);
		else
			ckpt_safetensors_header_fini(&h);
	}
	close(fd);
	buf_fini(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_refuses),
		cmocka_unit_test(lengths_that_lie_are_refused),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(legal_files_are_read),
		cmocka_unit_test(what_is_written_reads_back),
		cmocka_unit_test(a_file_cut_anywhere_is_refused),
	};
	return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
