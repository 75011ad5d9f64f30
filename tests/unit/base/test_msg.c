/* Tests which control messages are valid, and which are refused. */
#include "base/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { GENERATION = 7 };

static struct buf packed(enum msg_type type, uint32_t generation, json_t *body)
{
	struct buf b = BUF_INIT;
	assert_int_equal(msg_pack(type, generation, body, &b, NULL), 0);
	json_decref(body);
	return b;
}

static void every_type_survives_the_way(void **state)
{
	(void)state;
	for (int type = MSG_NONE + 1; type < MSG_COUNT; type++) {
		struct buf b = packed((enum msg_type)type, GENERATION,
				      json_pack("{s:i, s:s}", "step", 12, "text", "sk\xc3\xa5l"));
		struct msg m;
		assert_int_equal(msg_unpack(b.data, b.len, GENERATION, &m, NULL), 0);
		assert_int_equal(m.type, type);
		assert_int_equal(m.generation, GENERATION);
		assert_int_equal(json_integer_value(json_object_get(m.body, "step")), 12);
		assert_string_equal(json_string_value(json_object_get(m.body, "text")),
				    "sk\xc3\xa5l");
		msg_fini(&m);
		buf_fini(&b);
	}
}

static void no_body_is_an_empty_object(void **state)
{
	(void)state;
	struct buf b = packed(MSG_ABORT, GENERATION, NULL);
	struct msg m;
	assert_int_equal(msg_unpack(b.data, b.len, GENERATION, &m, NULL), 0);
	assert_int_equal(json_object_size(m.body), 0);
	msg_fini(&m);
	buf_fini(&b);
}

static void another_generation_is_stale_and_still_readable(void **state)
{
	(void)state;
	struct buf b = packed(MSG_STOP, GENERATION - 1, json_pack("{s:b}", "checkpoint", 1));
	struct msg m;
	struct err e = ERR_INIT;
	assert_int_equal(msg_unpack(b.data, b.len, GENERATION, &m, &e), -1);
	assert_int_equal(e.code, ERR_STALE);
	assert_int_equal(m.generation, GENERATION - 1);
	assert_true(json_is_true(json_object_get(m.body, "checkpoint")));
	msg_fini(&m);
	buf_fini(&b);
}

static void refuse(const void *data, size_t len)
{
	/* The copy on the heap has the exact size, so that a sanitizer detects a read past the
	 * end. */
	char *exact = malloc(len + !len);
	memcpy(exact, data, len);
	struct msg m;
	struct err e = ERR_INIT;
	assert_int_equal(msg_unpack(exact, len, 1, &m, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_true(strlen(e.text) > 0);
	free(exact);
}

#define HEAD "\x01\0\0\0\1\0\0\0"

static void malformed_bodies_are_refused(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *data;
		size_t len;
	} bad[] = {
#define BAD(s) { s, sizeof s - 1 }
		BAD(""), BAD("\x01\0\0"), BAD("\x01\0\0\0\1\0\0"), /* incomplete header */
		BAD(HEAD), BAD(HEAD "{"), BAD(HEAD "[]"), BAD(HEAD "1"), BAD(HEAD "\"x\""),
		BAD(HEAD "{} {}"), BAD(HEAD "{}x"), BAD(HEAD "{}\0"),
		BAD(HEAD "{\"a\":1,\"a\":2}"),    /* repeated key */
		BAD(HEAD "{\"a\":\"\\u0000\"}"), BAD(HEAD "{\"a\":\"\0\"}"), /* NUL */
		BAD(HEAD "{\"a\":\"\xff\"}"),     /* not UTF-8 */
		BAD(HEAD "{\"a\":1e999}"),
		BAD("\0\0\0\0\1\0\0\0{}"), BAD("\x7f\0\0\0\1\0\0\0{}"), BAD("\xff\xff\0\0\1\0\0\0{}"), /* types */
		BAD("\x01\0\1\0\1\0\0\0{}"),      /* reserved bytes */
#undef BAD
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refuse(bad[i].data, bad[i].len);
}

static int nested(int depth, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_add(&b, HEAD, 8);
	for (int i = 0; i < depth; i++)
		buf_puts(&b, "{\"\\\"[\":");
	buf_puts(&b, "0");
	for (int i = 0; i < depth; i++)
		buf_puts(&b, "}");
	struct msg m = { 0 };
	int rc = msg_unpack(b.data, b.len, 1, &m, e);
	msg_fini(&m);
	buf_fini(&b);
	return rc;
}

static void nesting_has_an_end(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	assert_int_equal(nested(24, &e), 0);
	assert_int_equal(nested(25, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_non_null(strstr(e.text, "nested"));
	assert_int_equal(nested(100000, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_survives_the_way),
		cmocka_unit_test(no_body_is_an_empty_object),
		cmocka_unit_test(another_generation_is_stale_and_still_readable),
		cmocka_unit_test(malformed_bodies_are_refused),
		cmocka_unit_test(nesting_has_an_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
