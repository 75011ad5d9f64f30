/* Tests the loader of optional libraries on libm, which every host has. */
#include "base/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct numbers {
	double (*floor)(double x);
	double (*newer)(double x);
} table;

static const struct library_symbol symbols[] = {
	LIBRARY_NEEDS(numbers, floor, "floor"),
	{ "not_in_libm", offsetof(struct numbers, newer), .optional = true },
};

static const struct library_symbol required[] = {
	LIBRARY_NEEDS(numbers, floor, "floor"),
	LIBRARY_NEEDS(numbers, newer, "not_in_libm"),
	LIBRARY_NEEDS(numbers, newer, "nor_this"),
};

static struct library describe(void)
{
	return (struct library){
		.name = "the library of numbers",
		.files = { "libm.so.6" },
		.code = ERR_NOTFOUND,
		.remedy = "install libc6",
		.symbols = symbols,
		.count = 2,
		.table = &table,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
}

static void functions_are_found_and_optional_ones_may_be_missing(void **state)
{
	(void)state;
	struct library l = describe();
	struct err e = ERR_INIT;
	memset(&table, 0xff, sizeof table);
	assert_int_equal(library_load(&l, &e), 0);
	assert_true(table.floor(2.5) == 2.0);
	assert_null(table.newer);
}

static void a_later_name_is_used_if_the_first_does_not_load(void **state)
{
	(void)state;
	struct library l = describe();
	struct err e = ERR_INIT;
	l.files[0] = "libnumbers.so.1";
	l.files[1] = "libm.so.6";
	assert_int_equal(library_load(&l, &e), 0);
	assert_true(table.floor(7.25) == 7.0);
}

static void an_error_names_library_cause_and_remedy(void **state)
{
	(void)state;
	struct library l = describe();
	struct err e = ERR_INIT;
	l.files[0] = "libnumbers.so.1";
	l.files[1] = "libnumbers.so.0";
	assert_int_equal(library_load(&l, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_string_equal(e.text, "the library of numbers cannot be loaded on this host "
				    "(libnumbers.so.1: cannot open shared object file: No such "
				    "file or directory); install libc6");
}

static void a_missing_function_is_an_error(void **state)
{
	(void)state;
	struct library l = describe();
	struct err e = ERR_INIT;
	l.symbols = required;
	l.count = 3;
	assert_int_equal(library_load(&l, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_string_equal(e.text, "the library of numbers cannot be used on this host (it has "
				    "no not_in_libm); install libc6");
}

static int starts;

static int start(struct err *e)
{
	starts++;
	return err_set(e, ERR_IO, "start %d: fails", starts);
}

static void a_start_runs_once_and_its_error_stays(void **state)
{
	(void)state;
	struct library l = describe();
	l.start = start;
	starts = 0;
	for (int i = 0; i < 2; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(library_load(&l, &e), -1);
		assert_int_equal(e.code, ERR_IO);
		assert_string_equal(e.text, "start 1: fails");
	}
	assert_int_equal(starts, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_found_and_optional_ones_may_be_missing),
		cmocka_unit_test(a_later_name_is_used_if_the_first_does_not_load),
		cmocka_unit_test(an_error_names_library_cause_and_remedy),
		cmocka_unit_test(a_missing_function_is_an_error),
		cmocka_unit_test(a_start_runs_once_and_its_error_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
