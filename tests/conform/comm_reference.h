/*
 * comm_reference — what ranks give to collectives and what they must get, computed in the plainest
 * way.
 *
 * Rank r's block b is a row of values that depends on r, b and the type, and that repeats after
 * REF_PERIOD elements: so 64 MiB are made and compared as fast as memory goes, and because the
 * period is a prime, a piece that landed elsewhere shows, whatever libcomm cuts the data into.
 *
 * Reductions go element by element up the tree that comm.h documents, in fp32 for bf16 and fp16,
 * and are rounded once: bit for bit what libcomm must give. reference_open holds each of these
 * values against the same reduction in float64.
 */
#ifndef MUSTER_TESTS_COMM_REFERENCE_H
#define MUSTER_TESTS_COMM_REFERENCE_H

#include "libcomm/comm.h"

enum { REF_PERIOD = 4099, REF_RANKS = 8, REF_TYPES = COMM_U8 + 1, REF_REDOPS = COMM_PROD + 1 };

const char *reference_type_name(enum comm_type type);
const char *reference_redop_name(enum comm_op op);

/* out[count] = the reduction of src[0..n-1][count] in the documented order. */
void reference_reduce(enum comm_type type, enum comm_op op, const void *const *src, int n,
		      void *out, size_t count);
/* The value of an element. */
double reference_number(enum comm_type type, const void *at);

struct reference; /* for groups of one size */

/* NULL: no memory, or (with a line on stderr) the exact reduction is not close to the one in
 * float64. */
struct reference *reference_open(int ranks);
void reference_close(struct reference *ref);

/* One period of a rank's block. Factors are chosen so that their products remain in range. */
const char *reference_given(const struct reference *ref, enum comm_type type, bool factors,
			    int rank, int block);
/* One period of the reduction of all ranks' blocks; for products: of factors. */
const char *reference_reduced(const struct reference *ref, enum comm_type type, enum comm_op op,
			      int block);

/* data[bytes] = the period, repeated. */
void reference_spread(const char *period, enum comm_type type, void *data, size_t bytes);
/* Where data[bytes] first differs from the repeated period; bytes: nowhere. */
size_t reference_differs(const char *period, enum comm_type type, const void *data, size_t bytes);

#endif
