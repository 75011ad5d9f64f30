/*
 * op_test — an op as comm_op_check.c tries it: what its arguments are, how it is called, with which
 * sizes.
 *
 * To add an op: its arguments, its call and its sizes in the file of its family, and a row in that
 * file's table.
 */
#ifndef MUSTER_TESTS_OP_TEST_H
#define MUSTER_TESTS_OP_TEST_H

#include "kernels/ops.h"

/* TOKENS are int32 and ROWS int64, both inputs; CHOICES are int32 and PLACES int64 that the op
 * sets or changes, -1 before. */
enum kind { NONE, IN, SET, ADD, INOUT, TOKENS, ROWS, CHOICES, PLACES };

/* Of numbers: in the storage type; fp32 in every storage; fp32, but computed from what was
 * rounded on its way; float64 in every storage. */
enum width { STORED, SINGLE, SINGLE_OF_STORED, DOUBLE };

/* Random numbers of standard deviation `scale`; for TOKENS and ROWS in [0, scale). */
struct arg {
	enum kind kind;
	int64_t count;
	double scale;
	enum width width;
};

enum { ARGS = 10 };

/* Sizes, as each op reads them. */
struct dims {
	int64_t n, c, d;
	int32_t lo;
	bool with; /* the optional arguments */
	float p;   /* of dropout */
	struct attn_shape s;
	/* q, k, v of a token in one row; positions do not see over the start of their document */
	bool fused, documents;
};

struct op_test {
	const char *name;
	bool any_threads; /* the same bits for any number of threads */
	void (*args)(const struct dims *d, struct arg *a);
	/* derived inputs; may be NULL */
	void (*prepare)(const struct ops *o, struct backend *k, const struct dims *d, void **p);
	void (*run)(const struct ops *o, struct backend *k, const struct dims *d, void **p);
	struct dims dims[24];
};

/* The families; each ends with a row without a name. */
extern const struct op_test layer_ops[], element_ops[], token_ops[], attention_ops[], expert_ops[],
	fp8_ops[];

#endif
