/*
 * Every op of every backend against reference64, the specification on doubles (op_check.h).
 */
#include "tests/conform/op_check.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Whether the first word of a test's name is the op's. */
static bool is_of(const struct op_test *t, const char *op)
{
	size_t len = strcspn(t->name, " ");
	return strlen(op) == len && !strncmp(t->name, op, len);
}

static bool is_tested(const char *op)
{
	for (const struct op_test *const *f = op_families; *f; f++)
		for (const struct op_test *t = *f; t->name; t++)
			if (is_of(t, op))
				return true;
	return false;
}

static bool is_an_op(const struct op_test *t)
{
	for (const struct op_traits *o = backend_op_traits; o->name; o++)
		if (is_of(t, o->name))
			return true;
	return false;
}

static void every_op_of_the_table_is_tested(void **state)
{
	(void)state;
	for (const struct op_traits *o = backend_op_traits; o->name; o++)
		if (!is_tested(o->name))
			fail_msg("the op %s has no row in tests/conform/op_*.c", o->name);
	for (const struct op_test *const *f = op_families; *f; f++)
		for (const struct op_test *t = *f; t->name; t++)
			if (!is_an_op(t))
				fail_msg("the row %s is of no op of kernels/ops_table.h", t->name);
}

/* state: the name of the backend. */
static void every_op_agrees_with_the_specification(void **state)
{
	static const struct op_draw draw = { .seed = 7 };
	struct op_checker *c;
	struct err e = ERR_INIT;
	char why[OP_CHECK_WHY];
	if (op_checker_open(*state, &c, &e) < 0) {
		print_message("%s\n", e.text);
		skip();
	}
	for (const struct op_test *const *f = op_families; *f; f++)
		for (const struct op_test *t = *f; t->name; t++)
			for (const struct dims *d = t->dims; d->n || d->s.batch; d++)
				if (!op_conforms(c, t, d, &draw, why))
					fail_msg("%s", why);
	op_checker_close(c);
}

/* clang-format off */
#define BACKEND(name) \
	{ name " agrees with the specification", every_op_agrees_with_the_specification, NULL, NULL, name }

/* cpu-v2 and so on with 2-byte storage are the same wrapper over ops that are tested here.
 * test_low_precision tests their conversions. */
static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_op_of_the_table_is_tested),
	BACKEND("reference"),
	BACKEND("cpu"),
	BACKEND("cpu-v2"),
	BACKEND("cpu-v3"),
	BACKEND("cpu-v4"),
	BACKEND("reference:bf16"),
	BACKEND("reference:fp16"),
	BACKEND("cpu:bf16"),
	BACKEND("cpu:fp16"),
};
/* clang-format on */

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
