/*
 * op_vary — sizes of an op at random, ragged ones above all, within what its row in a family's
 * table can be.
 */
#ifndef MUSTER_TESTS_OP_VARY_H
#define MUSTER_TESTS_OP_VARY_H

#include "tests/conform/op_test.h"

#include <stdbool.h>

/* The same sizes for the same number. false: this op's sizes are those of its row alone. */
bool op_vary(const struct op_test *t, uint64_t number, struct dims *out);

#endif
