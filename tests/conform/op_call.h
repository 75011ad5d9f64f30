/*
 * op_call — the arrays of one call of an op, with guards around each. They hold doubles for the
 * specification, or a backend's storage type. op_check.c uses it.
 */
#ifndef MUSTER_TESTS_OP_CALL_H
#define MUSTER_TESTS_OP_CALL_H

#include "base/err.h"
#include "tests/conform/op_test.h"
#include "tests/conform/storage.h"

#include <stdbool.h>
#include <stddef.h>

struct op_call {
	struct arg args[ARGS];
	void *p[ARGS];              /* where each array begins */
	unsigned char *block[ARGS]; /* guard, array, guard */
	size_t lead[ARGS];          /* bytes of the block before the array */
	const struct storage *storage;
};

/* Allocates host memory; if there is none, the program ends. shift: the number of elements by which
 * arrays begin off their alignment. */
void op_call_init(struct op_call *c, const struct op_test *t, const struct dims *d,
		  const struct storage *storage, int shift);
void op_call_fini(struct op_call *c);

/* Properties of argument i: the storage type of its numbers, their largest error, its bytes, and
 * whether nothing was written around it. tensor_cores: the sums of products of 8 bits are shortened. */
const struct storage *op_call_storage(const struct op_call *c, int i);
double op_call_tolerance(const struct op_call *c, int i, bool tensor_cores);
size_t op_call_bytes(const struct op_call *c, int i);
bool op_call_guarded(const struct op_call *c, int i);

/* Fills c, whose arrays hold doubles, with random numbers. */
void op_call_random(struct op_call *c, uint64_t seed);
/* Rounds c's doubles to numbers that the arrays of `like` can hold. */
void op_call_round(struct op_call *c, const struct op_call *like);
/* Converts what the op reads from doubles, and sets its outputs to NaN. */
void op_call_convert(struct op_call *to, const struct op_call *from);
/* Copies the arrays. */
void op_call_copy_bits(struct op_call *to, const struct op_call *from);

/* Copies c's blocks to the backend's memory. base[i] is the block (NULL: no such argument), p[i]
 * the array in it. */
int op_call_lend(const struct op_call *c, struct backend *k, void *base[ARGS], void *p[ARGS],
		 struct err *e);
/* Copies the blocks back. Returns the first error of what was queued. */
int op_call_fetch(struct op_call *c, struct backend *k, void *const base[ARGS], struct err *e);
void op_call_return(struct backend *k, void *const base[ARGS]);

#endif
