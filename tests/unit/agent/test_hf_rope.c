/*
 * Tests the rotary positions of a config.json. For each file of tests/golden/rope_cases.json, the
 * test compares muster's result with the results of transformers 4 and 5. make_rope_cases.py wrote
 * that file and describes its rows.
 */
#include "agent/engine/hf/config.h"
#include "base/file.h"
#include "plan/spec/model/model.h"
#include "tests/unit/agent/golden_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* transformers computes its frequencies in float32. */
static const double tolerance = 5e-7;

static json_t *golden;

static int open_golden(void **state)
{
	(void)state;
	golden = golden_json("tests/golden/rope_cases.json");
	return golden ? 0 : -1;
}

static int close_golden(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

static const char *word(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

/* Returns the row's config.json. */
static char *file_of(const json_t *row)
{
	json_t *file = json_deep_copy(json_object_get(golden, "base"));
	json_object_update(file, json_object_get(row, "config"));
	json_object_set_new(file, "model_type", json_string(word(row, "family")));
	char *text = json_dumps(file, 0);
	json_decref(file);
	return text;
}

static int read_row(const json_t *row, struct job *job, struct err *e)
{
	char *text = file_of(row);
	int rc = hf_config_read(text, strlen(text), "config.json", 0, job, e);
	free(text);
	return rc;
}

static bool same_frequencies(const json_t *want, const struct job *job)
{
	struct model_shape m;
	shape_of_job(job, &m);
	if (json_array_size(want) != (size_t)m.head_dim / 2)
		return false;
	for (size_t i = 0; i < json_array_size(want); i++) {
		double w = json_number_value(json_array_get(want, i)),
		       got = shape_rope_turn(&m, (int64_t)i);
		if (!(fabs(got - w) <= tolerance * w))
			return false;
	}
	return true;
}

static int count(bool refused)
{
	size_t i;
	json_t *row;
	int n = 0;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
		n += (word(row, "refused") != NULL) == refused;
	return n;
}

static void files_have_the_frequencies_of_transformers_5(void **state)
{
	size_t i;
	json_t *row;
	int wrong = 0;
	(void)state;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		struct err e = ERR_INIT;
		struct job job;
		if (word(row, "refused"))
			continue;
		bool good = !read_row(row, &job, &e) &&
			    same_frequencies(json_object_get(row, "5"), &job);
		if (!good)
			print_error("%s, %s: %s\n", word(row, "name"), word(row, "family"),
				    e.code ? e.text : "other frequencies");
		wrong += !good;
	}
	assert_int_equal(wrong, 0);
	assert_true(count(false) >= 30);
}

static void what_is_refused_is_named(void **state)
{
	size_t i;
	json_t *row;
	int wrong = 0;
	(void)state;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		const char *words = word(row, "refused");
		struct err e = ERR_INIT;
		struct job job;
		if (!words)
			continue;
		bool good = read_row(row, &job, &e) == -1 &&
			    (e.code == ERR_UNSUPPORTED || e.code == ERR_CORRUPT) &&
			    !strncmp(e.text, "config.json: ", 13) && strstr(e.text, words);
		if (!good)
			print_error("%s, %s: %s\n", word(row, "name"), word(row, "family"),
				    e.code ? e.text : "is read");
		wrong += !good;
	}
	assert_int_equal(wrong, 0);
	assert_true(count(true) >= 25);
}

/* make_rope_cases.py compares the frequencies of `export` under both versions with the row's
 * own. */
static void exports_are_what_transformers_reads_back(void **state)
{
	static const char *const keys[] = { "rope_theta", "rope_scaling", "rope_parameters",
					    "original_max_position_embeddings" };
	size_t i;
	json_t *row;
	int wrong = 0;
	(void)state;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		struct err e = ERR_INIT;
		struct job job;
		if (word(row, "refused") || read_row(row, &job, &e))
			continue;
		json_t *out = hf_config_write(&job, "float32", &e);
		assert_non_null(out);
		for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
			const json_t *got = json_object_get(out, keys[k]),
				     *want = json_object_get(json_object_get(row, "export"),
							     keys[k]);
			bool same = got ? json_equal(got, want) : !want;
			if (!same)
				print_error("%s, %s: %s is exported in another way\n",
					    word(row, "name"), word(row, "family"), keys[k]);
			wrong += !same;
		}
		json_decref(out);
	}
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_have_the_frequencies_of_transformers_5),
		cmocka_unit_test(what_is_refused_is_named),
		cmocka_unit_test(exports_are_what_transformers_reads_back),
	};
	return cmocka_run_group_tests_name("rotary positions of config.json", tests, open_golden,
					   close_golden);
}
