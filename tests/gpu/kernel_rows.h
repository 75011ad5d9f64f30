/*
 * kernel_rows — the ops that `kernels` measures, at the sizes of GPT-2 124M and LLaMA 1B (models.h).
 *
 * To measure an op, add its row to visit_gpt2 or visit_llama. tests/conform/op_*.c has its arguments
 * and its call. If these allow only small sizes, write them for this table and set `op`.
 */
#ifndef MUSTER_TESTS_GPU_KERNEL_ROWS_H
#define MUSTER_TESTS_GPU_KERNEL_ROWS_H

#include "tests/conform/op_test.h"

#include <stdbool.h>

struct kernel_row {
	const char *model;
	const char *name, *what;  /* the op's name (NULL: that of `op`); which use of it */
	const struct op_test *op; /* NULL: the op of that name in tests/conform */
	struct dims d;
	double flops;
	/* How often a token's row of the INOUT argument is moved: of a table, which may have more rows
	 * than tokens. 0: the argument is moved whole. */
	int table;
};

/* Calls fn for each row until the last, and returns how many calls returned nonzero. toy: sizes of
 * some dozens. */
typedef int kernel_row_fn(void *arg, const struct kernel_row *r);
int kernel_rows_visit(bool toy, kernel_row_fn *fn, void *arg);

#endif
