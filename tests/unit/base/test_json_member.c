/* Tests that a member is read only if it is an integer of the range, and that the error names
 * it. */
#include "base/json_member.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static json_t *parse(const char *text)
{
	json_t *object = json_loads(text, 0, NULL);
	assert_non_null(object);
	return object;
}

static void integers_within_the_range_are_read(void **state)
{
	json_t *object = parse("{\"low\": -9223372036854775808, \"high\": 9223372036854775807, "
			       "\"rank\": 7}");
	int64_t value = 0;
	int rank = 0;
	(void)state;
	assert_int_equal(json_member_int64(object, "low", INT64_MIN, 0, &value, NULL), 0);
	assert_true(value == INT64_MIN);
	assert_int_equal(json_member_int64(object, "high", 0, INT64_MAX, &value, NULL), 0);
	assert_true(value == INT64_MAX);
	assert_int_equal(json_member_int(object, "rank", 7, 7, &rank, NULL), 0);
	assert_int_equal(rank, 7);
	json_decref(object);
}

static void other_members_are_refused_by_name_and_leave_the_result_alone(void **state)
{
	static const struct {
		const char *text, *error;
	} rows[] = {
		{ "{}", "\"rank\" is missing or is not an integer" },
		{ "[]", "\"rank\" is missing or is not an integer" },
		{ "{\"rank\": null}", "\"rank\" is missing or is not an integer" },
		{ "{\"rank\": \"3\"}", "\"rank\" is missing or is not an integer" },
		{ "{\"rank\": 3.0}", "\"rank\" is missing or is not an integer" },
		{ "{\"rank\": -1}", "\"rank\" is -1; it must be at least 0" },
		{ "{\"rank\": 8}", "\"rank\" is 8; it must be at most 7" },
		{ "{\"rank\": 4294967296}", "\"rank\" is 4294967296; it must be at most 7" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		json_t *object = parse(rows[i].text);
		int rank = 5;
		assert_int_equal(json_member_int(object, "rank", 0, 7, &rank, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_string_equal(e.text, rows[i].error);
		assert_int_equal(rank, 5);
		json_decref(object);
	}
}

static void a_null_is_not_given(void **state)
{
	json_t *o = json_pack("{s:n, s:b}", "null", "flag", 0);
	(void)state;
	assert_false(json_member_given(NULL));
	assert_false(json_member_given(json_object_get(o, "null")));
	assert_true(json_member_given(json_object_get(o, "flag")));
	json_decref(o);
}

static void objects_are_read_and_other_texts_are_refused(void **state)
{
	static const struct {
		const char *text, *error;
	} rows[] = {
		{ "", "not JSON: " },
		{ "{", "not JSON: " },
		{ "{\"a\": 1} x", "not JSON: " },
		{ "{\"a\": 1, \"a\": 2}", "not JSON: duplicate" },
		{ "[1]", "not a JSON object" },
		{ "[[[[[[[[[[[[[[[[[[[[[[[[[", "nested deeper than 24 levels" },
	};
	json_t *object = NULL, *old;
	(void)state;
	const char text[] = "{\"a\": \"[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"}trailing";
	assert_int_equal(json_member_object(text, sizeof text - 9, &object, NULL), 0);
	assert_int_equal(json_object_size(object), 1);
	old = object;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(
			json_member_object(rows[i].text, strlen(rows[i].text), &object, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_ptr_equal(strstr(e.text, rows[i].error), e.text);
	}
	assert_int_equal(json_member_object("{}\0", 3, &object, NULL), -1);
	assert_ptr_equal(object, old);
	json_decref(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_within_the_range_are_read),
		cmocka_unit_test(other_members_are_refused_by_name_and_leave_the_result_alone),
		cmocka_unit_test(a_null_is_not_given),
		cmocka_unit_test(objects_are_read_and_other_texts_are_refused),
	};
	return cmocka_run_group_tests_name("members of JSON objects", tests, NULL, NULL);
}
