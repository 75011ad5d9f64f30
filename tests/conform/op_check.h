/*
 * op_check — tests one op of one backend against reference64, the specification on doubles, at one
 * choice of sizes.
 *
 * A struct op_test declares an op's arguments and calls it. The rest is the same for all ops:
 *
 *   - The reference reads what the backend reads, rounded to the storage type.
 *   - "sets" outputs are NaN before, and "adds" outputs hold known values.
 *   - Inputs must stay unchanged, and nothing may be written before or after an array.
 *   - The error |out - ref| / |ref| is at most 1e-5. For results stored in 2 bytes, and for
 *     products of 8 bits on a device, it may be larger (op_call.c).
 *   - Two runs give the same bits. So do 1, 2 and 3 threads if the op promises it, and a graph of the
 *     op if the backend records graphs.
 *
 * All arrays are in the backend's memory, also on a device. No test framework is needed here:
 * tests/conform/test_ops.c, the tests over the emulator and make check-gpu are programs that use it.
 */
#ifndef MUSTER_TESTS_OP_CHECK_H
#define MUSTER_TESTS_OP_CHECK_H

#include "base/err.h"
#include "tests/conform/op_test.h"

#include <stdbool.h>

/* A backend that is open with 1, 2 and 3 threads, or only once if it ignores threads. */
struct op_checker;

enum { OP_CHECK_WHY = 400 };

/* Fails if the backend cannot work here. */
int op_checker_open(const char *backend_name, struct op_checker **out, struct err *e);
void op_checker_close(struct op_checker *c);

/* Elements (0 or more) by which each array begins off its alignment, and the seed of the random
 * numbers. */
struct op_draw {
	int shift;
	uint64_t seed;
};

/* Whether the op conforms. If not, why describes the error. */
bool op_conforms(struct op_checker *c, const struct op_test *t, const struct dims *d,
		 const struct op_draw *draw, char why[OP_CHECK_WHY]);

/* All families, with a NULL at the end. To add one, add its table here and its file to
 * tests/gpu/sources.mk. */
extern const struct op_test *const op_families[];

#endif
