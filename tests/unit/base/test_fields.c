/* Tests objects whose fields a table lists: how they are written and read, and what is refused. */
#include "base/fields.h"
#include "base/messages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* clang-format off */
#define THING_FIELDS(F) \
	F(small,  INT,    REQUIRED, "an int") \
	F(step,   INT64,  REQUIRED, "may be negative") \
	F(bytes,  COUNT,  REQUIRED, "a size") \
	F(loss,   NUMBER, REQUIRED, "a loss") \
	F(on,     FLAG,   REQUIRED, "a switch") \
	F(name,   TEXT,   REQUIRED, "a name") \
	F(parts,  JSON,   REQUIRED, "its parts") \
	F(group,  TEXT,   NULLABLE, "a group, if there is one") \
	F(signal, INT,    OPTIONAL, "a signal, if there was one")

struct thing { THING_FIELDS(FIELDS_MEMBER) };
/* clang-format on */

static const struct fields_row *rows(void)
{
	typedef struct thing fields_struct;
	static const struct fields_row table[] = { THING_FIELDS(FIELDS_ROW) FIELDS_END };
	return table;
}

static const char whole[] =
	"{\"small\":-3,\"step\":-1,\"bytes\":5000000000,\"loss\":0.5,\"on\":true,"
	"\"name\":\"n\",\"parts\":[1],\"group\":\"dp\",\"signal\":9}";

static void what_is_written_is_read_in_the_order_of_the_table(void **state)
{
	(void)state;
	struct thing t;
	json_t *o = json_loads(whole, 0, NULL);
	assert_int_equal(fields_read(rows(), o, "thing", &t, NULL), 0);
	assert_int_equal(t.bytes, 5000000000);
	assert_true(t.has_group && t.has_signal && t.signal == 9);
	json_t *again = fields_json(rows(), &t);
	char *text = json_dumps(again, JSON_COMPACT);
	assert_string_equal(text, whole);
	free(text);
	json_decref(again);
	json_decref(o);
}

static void fields_that_are_not_there_are_null_or_absent(void **state)
{
	(void)state;
	json_t *parts = json_object();
	const struct thing t = { .name = "n", .parts = parts, .loss = NAN };
	struct thing read;
	json_t *o = fields_json(rows(), &t);
	assert_true(json_is_null(json_object_get(o, "group")));
	assert_null(json_object_get(o, "signal"));
	assert_true(json_is_null(json_object_get(o, "loss")));
	assert_int_equal(fields_read(rows(), o, "thing", &read, NULL), 0);
	assert_true(isnan(read.loss) && !read.has_group && !read.has_signal);
	json_decref(o);
	json_decref(parts);
}

static void a_wrong_field_is_named_and_the_others_are_read(void **state)
{
	static const struct {
		const char *key, *value, *says;
	} cases[] = {
		{ "small", "3000000000",
		  "field \"small\" is invalid; it must be an integer of 32" },
		{ "small", "1.5", "field \"small\" is invalid" },
		{ "bytes", "-1", "must be an integer of at least 0 (a size)" },
		{ "loss", "\"much\"", "field \"loss\" is invalid; it must be a number" },
		{ "on", "1", "must be true or false" },
		{ "name", "null", "field \"name\" is invalid; it must be a string" },
		{ "parts", "7", "must be an object or an array" },
		{ "group", "7", "field \"group\" is invalid" },
		{ "signal", "null", "field \"signal\" is invalid" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct thing t;
		struct err e = ERR_INIT;
		json_t *o = json_loads(whole, 0, NULL);
		json_object_set_new(o, cases[i].key,
				    json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
		assert_int_equal(fields_read(rows(), o, "thing", &t, &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
		assert_non_null(strstr(e.text, cases[i].says));
		assert_int_equal(t.step, -1);
		json_decref(o);
	}
}

static void a_missing_field_is_named(void **state)
{
	(void)state;
	static const char *const required[] = { "small", "step", "bytes", "loss",
						"on",    "name", "parts", "group" };
	for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
		struct thing t;
		struct err e = ERR_INIT;
		char says[64];
		json_t *o = json_loads(whole, 0, NULL);
		json_object_del(o, required[i]);
		assert_int_equal(fields_read(rows(), o, "thing", &t, &e), -1);
		snprintf(says, sizeof says, "thing: field \"%s\" is missing", required[i]);
		assert_non_null(strstr(e.text, says));
		json_decref(o);
	}
}

static void a_line_that_is_not_utf8_is_still_sent(void **state)
{
	(void)state;
	struct msg_log m;
	json_t *o = msg_log_json(&(struct msg_log){ .level = "warn", .text = "caf\xe9: gone" });
	assert_int_equal(msg_log_read(o, &m, NULL), 0);
	assert_string_equal(m.text, "caf?: gone");
	json_decref(o);
}

/* The keys and their order are the wire format. A change needs a new MSG_VERSION. */
static void the_keys_of_metrics_are_those_of_the_wire(void **state)
{
	(void)state;
	json_t *o = msg_metrics_json(&(struct msg_metrics){ .step = 1, .has_loss_scale = true });
	char *text = json_dumps(o, JSON_COMPACT);
	assert_string_equal(text,
			    "{\"step\":1,\"samples\":0,\"tokens\":0,\"peak_bytes\":0,\"loss\":0.0,"
			    "\"grad_norm\":0.0,\"lr\":0.0,\"step_s\":0.0,\"data_s\":0.0,"
			    "\"compute_s\":0.0,\"recompute_s\":0.0,\"tp_s\":0.0,\"cp_s\":0.0,"
			    "\"ep_s\":0.0,\"pp_s\":0.0,\"dp_s\":0.0,\"optimizer_s\":0.0,"
			    "\"checkpoint_s\":0.0,\"other_s\":0.0,\"loss_scale\":0.0}");
	free(text);
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_in_the_order_of_the_table),
		cmocka_unit_test(fields_that_are_not_there_are_null_or_absent),
		cmocka_unit_test(a_wrong_field_is_named_and_the_others_are_read),
		cmocka_unit_test(a_missing_field_is_named),
		cmocka_unit_test(a_line_that_is_not_utf8_is_still_sent),
		cmocka_unit_test(the_keys_of_metrics_are_those_of_the_wire),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
