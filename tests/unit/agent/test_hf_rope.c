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

/* Checks one row of the golden file, and prints what is wrong with it. */
typedef bool row_check(const json_t *row);

static void print_row(const json_t *row, const char *what)
{
	print_error("%s, %s: %s\n", word(row, "name"), word(row, "family"), what);
}

/* Checks the rows that must be refused, or those that must be read. */
static void check_rows(bool refused, row_check *check, int at_least)
{
	size_t i;
	json_t *row;
	int wrong = 0, n = 0;
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		if ((word(row, "refused") != NULL) != refused)
			continue;
		wrong += !check(row);
		n++;
	}
	assert_int_equal(wrong, 0);
	assert_true(n >= at_least);
}

static bool has_frequencies(const json_t *row)
{
	struct err e = ERR_INIT;
	struct job job;
	bool good = !read_row(row, &job, &e) && same_frequencies(json_object_get(row, "5"), &job);
	if (!good)
		print_row(row, e.code ? e.text : "other frequencies");
	return good;
}

static void files_have_the_frequencies_of_transformers_5(void **state)
{
	(void)state;
	check_rows(false, has_frequencies, 30);
}

static bool is_refused(const json_t *row)
{
	struct err e = ERR_INIT;
	struct job job;
	bool good = read_row(row, &job, &e) == -1 &&
		    (e.code == ERR_UNSUPPORTED || e.code == ERR_CORRUPT) &&
		    !strncmp(e.text, "config.json: ", 13) && strstr(e.text, word(row, "refused"));
	if (!good)
		print_row(row, e.code ? e.text : "it was read");
	return good;
}

static void a_refusal_names_its_cause(void **state)
{
	(void)state;
	check_rows(true, is_refused, 25);
}

/* make_rope_cases.py compares the frequencies of `export` under both versions with the row's
 * own. */
static bool is_exported(const json_t *row)
{
	static const char *const keys[] = { "rope_theta", "rope_scaling", "rope_parameters",
					    "original_max_position_embeddings" };
	const json_t *export = json_object_get(row, "export");
	struct err e = ERR_INIT;
	struct job job;
	bool good = true;
	json_t *out = read_row(row, &job, &e) ? NULL : hf_config_write(&job, "float32", &e);
	assert_non_null(out);
	for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
		const json_t *got = json_object_get(out, keys[k]),
			     *want = json_object_get(export, keys[k]);
		if (got ? json_equal(got, want) : !want)
			continue;
		good = false;
		print_row(row, keys[k]);
	}
	json_decref(out);
	return good;
}

static void exports_are_what_transformers_reads_back(void **state)
{
	(void)state;
	check_rows(false, is_exported, 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_have_the_frequencies_of_transformers_5),
		cmocka_unit_test(a_refusal_names_its_cause),
		cmocka_unit_test(exports_are_what_transformers_reads_back),
	};
	return cmocka_run_group_tests_name("rotary positions of config.json", tests, open_golden,
					   close_golden);
}
