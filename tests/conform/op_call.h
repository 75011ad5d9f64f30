/*
 * op_call — the arrays of one call of an op: of doubles for the specification, or as a backend
 * stores them, with guards around each. For comm_op_check.c.
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

/* Memory is the host's; there being none ends the program. shift: elements that arrays begin off
 * their alignment. */
void op_call_init(struct op_call *c, const struct op_test *t, const struct dims *d,
		  const struct storage *storage, int shift);
void op_call_fini(struct op_call *c);

/* Of argument i: how its numbers are stored, how far they may be off, its bytes; whether nothing
 * was written around it. */
const struct storage *op_call_storage(const struct op_call *c, int i);
double op_call_tolerance(const struct op_call *c, int i);
size_t op_call_bytes(const struct op_call *c, int i);
bool op_call_guarded(const struct op_call *c, int i);

/* Draws numbers; c is of doubles. */
void op_call_random(struct op_call *c, uint64_t seed);
/* Rounds c's doubles to what the arrays of `like` can hold. */
void op_call_round(struct op_call *c, const struct op_call *like);
/* Copies what the op reads from doubles; what it sets becomes NaN. */
void op_call_copy(struct op_call *to, const struct op_call *from);
/* The same arrays. */
void op_call_keep(struct op_call *to, const struct op_call *from);

/* Blocks of the backend's memory that hold c's: base[i] (NULL: no argument) the block, p[i] the
 * array in it. */
int op_call_lend(const struct op_call *c, struct backend *k, void *base[ARGS], void *p[ARGS],
		 struct err *e);
/* What they hold now. The first error of what was queued. */
int op_call_fetch(struct op_call *c, struct backend *k, void *const base[ARGS], struct err *e);
void op_call_return(struct backend *k, void *const base[ARGS]);

#endif
