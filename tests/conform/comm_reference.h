/*
 * comm_reference — the inputs that ranks give to collectives, and the results that they must get,
 * computed in the simplest way.
 *
 * Rank r's block b is a row of values that depends on r, b and the type. It repeats after
 * REF_PERIOD elements, so 64 MiB are generated and compared at the speed of memory. The period is a
 * prime: a piece at a wrong place is detected, however libcomm splits the data.
 *
 * Reductions are computed element by element up the tree that comm.h documents, in fp32 for bf16
 * and fp16, and are rounded once. libcomm must give the same bits. reference_open compares each of
 * these values with the same reduction in float64.
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
/* The value of an element, as a double. */
double reference_number(enum comm_type type, const void *at);

struct reference; /* for groups of one size */

/* Returns NULL if there is no memory, or (with a line on stderr) if the exact reduction is not
 * close to the one in float64. */
struct reference *reference_open(int ranks);
void reference_close(struct reference *ref);

/* One period of a rank's block. Factors are chosen so that their products remain in range. */
const char *reference_given(const struct reference *ref, enum comm_type type, bool factors,
			    int rank, int block);
/* One period of the reduction of all ranks' blocks. Products use the blocks of factors. */
const char *reference_reduced(const struct reference *ref, enum comm_type type, enum comm_op op,
			      int block);

/* Fills data[bytes] with the repeated period. */
void reference_spread(const char *period, enum comm_type type, void *data, size_t bytes);
/* The first byte where data[bytes] differs from the repeated period; `bytes` if there is none. */
size_t reference_differs(const char *period, enum comm_type type, const void *data, size_t bytes);

#endif
