/*
 * op_test — describes to op_check.c how to test an op: its arguments, its call, and its sizes.
 *
 * To test an op, write its arguments, its call and its sizes in the file of its family, and add a
 * row to the table at that file's end. A row's name is the op's name. The text after a blank
 * distinguishes rows of one op. test_ops.c fails if an op of kernels/ops_table.h has no row.
 */
#ifndef MUSTER_TESTS_OP_TEST_H
#define MUSTER_TESTS_OP_TEST_H

#include "kernels/ops.h"

/*
 * IN       numbers that the op only reads
 * SET      numbers that the op overwrites; NaN before the call
 * ADD      numbers that the op adds to
 * INOUT    numbers that the op changes in place
 * TOKENS   int32 input
 * ROWS     int64 input
 * CHOICES  int32 that the op sets or changes; -1 before the call
 * PLACES   int64 that the op sets or changes; -1 before the call
 */
enum kind { NONE, IN, SET, ADD, INOUT, TOKENS, ROWS, CHOICES, PLACES };

/*
 * STORED            the storage type
 * SINGLE            fp32 in every storage type
 * SINGLE_OF_STORED  fp32, but computed from numbers that were rounded to the storage type
 * STORED_OF_FP8     the storage type, but sums of products of 8 bits, which tensor cores shorten
 * SINGLE_OF_FP8     the same in fp32
 * DOUBLE            float64 in every storage type
 */
enum width { STORED, SINGLE, SINGLE_OF_STORED, STORED_OF_FP8, SINGLE_OF_FP8, DOUBLE };

/* Random numbers of standard deviation `scale`; TOKENS and ROWS are in [0, scale). */
struct arg {
	enum kind kind;
	int64_t count;
	double scale;
	enum width width;
};

enum { ARGS = 11 };

/* Sizes. Each op reads them in its own way. */
struct dims {
	int64_t n, c, d;
	int32_t lo;
	bool with; /* the optional arguments */
	float p;   /* dropout's probability */
	struct attn_shape s;
	/* q, k and v of a token are in one row; positions attend only within their own document */
	bool fused, documents;
};

struct op_random; /* op_vary.h */

struct op_test {
	const char *name;
	/* draws sizes at random; NULL: only `dims` are tested */
	void (*vary)(struct op_random *r, struct dims *d);
	bool any_threads; /* the same bits for any number of threads */
	void (*args)(const struct dims *d, struct arg *a);
	/* computes inputs that are not simply random; may be NULL */
	void (*prepare)(const struct ops *o, struct backend *k, const struct dims *d, void **p);
	void (*run)(const struct ops *o, struct backend *k, const struct dims *d, void **p);
	struct dims dims[24];
};

/* The families; each ends with a row without a name. */
extern const struct op_test layer_ops[], element_ops[], token_ops[], attention_ops[], expert_ops[],
	fp8_ops[];

#endif
