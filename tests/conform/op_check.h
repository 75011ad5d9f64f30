/*
 * comm_op_check — one op of one backend against reference64, the specification on doubles, at one
 * choice of sizes.
 *
 * A struct op_test declares an op's arguments and calls it; the rest is the same for all: the
 * reference reads what the backend reads, rounded to its storage; "sets" outputs are NaN before,
 * "adds" outputs hold known values, inputs must stay as they were, nothing may be written before or
 * behind an array, the error is |out - ref| / |ref| <= 1e-5 (more where the result is stored in 2
 * bytes), two runs give the same bits, and so do 1, 2 and 3 threads where the op promises it, and,
 * where the backend records, a graph of it. All arrays lie in the backend's memory, a device's too.
 *
 * No test framework: tests/conform/test_ops.c, the tests over the emulator and make check-gpu are
 * mains over it.
 */
#ifndef MUSTER_TESTS_OP_CHECK_H
#define MUSTER_TESTS_OP_CHECK_H

#include "base/err.h"
#include "tests/conform/op_test.h"

#include <stdbool.h>

/* A backend as the checks have it open: with 1, 2 and 3 threads, or once where threads do not
 * count. */
struct op_checker;

enum { OP_CHECK_WHY = 400 };

/* Fails where the backend cannot work here. */
int op_checker_open(const char *backend_name, struct op_checker **out, struct err *e);
void op_checker_close(struct op_checker *c);

/* Elements (0 or more) by which the begin of each array is moved off its alignment, and the seed
 * of the numbers. */
struct op_draw {
	int shift;
	uint64_t seed;
};

/* Whether the op agrees; else why says what is wrong. */
bool op_conforms(struct op_checker *c, const struct op_test *t, const struct dims *d,
		 const struct op_draw *draw, char why[OP_CHECK_WHY]);

/* All families, one behind the other, NULL at the end. */
extern const struct op_test *const op_families[];

#endif
