/*
 * op_vary — random sizes of ops, mostly sizes that are not a multiple of a tile. A row of a
 * family's table names the function that draws its sizes.
 */
#ifndef MUSTER_TESTS_OP_VARY_H
#define MUSTER_TESTS_OP_VARY_H

#include "tests/conform/op_test.h"

#include <stdbool.h>

/* The same number gives the same sizes. Returns false if this op is tested only with the sizes of
 * its row. */
bool op_vary(const struct op_test *t, uint64_t number, struct dims *out);

void vary_products(struct op_random *r, struct dims *d);
void vary_groups(struct op_random *r, struct dims *d);
void vary_norms(struct op_random *r, struct dims *d);
void vary_counts(struct op_random *r, struct dims *d);
void vary_rows(struct op_random *r, struct dims *d);
void vary_rope(struct op_random *r, struct dims *d);
void vary_attention(struct op_random *r, struct dims *d);
void vary_embed(struct op_random *r, struct dims *d);
void vary_xent(struct op_random *r, struct dims *d);
void vary_experts(struct op_random *r, struct dims *d);
void vary_places(struct op_random *r, struct dims *d);
void vary_gather(struct op_random *r, struct dims *d);
void vary_combine(struct op_random *r, struct dims *d);

#endif
