/*
 * Every op of every backend against plain64, the specification on doubles (comm_op_check.h).
 */
#include "tests/conform/op_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* cmocka hands over the backend's name. */
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

#define BACKEND(name) \
	{ \
		name " agrees with the specification", every_op_agrees_with_the_specification, \
			NULL, NULL, name \
	}

int main(void)
{
	const struct CMUnitTest backends[] = {
		BACKEND("plain"),      BACKEND("cpu"),      BACKEND("cpu-v2"),
		BACKEND("cpu-v3"),     BACKEND("cpu-v4"),   BACKEND("plain:bf16"),
		BACKEND("plain:fp16"), BACKEND("cpu:bf16"), BACKEND("cpu:fp16"),
		/* The levels' 2-byte forms are the same wrapper over ops that are held above;
		 * test_narrow has their conversions. */
	};
	return cmocka_run_group_tests(backends, NULL, NULL);
}
