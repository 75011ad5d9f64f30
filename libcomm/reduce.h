/*
 * reduce — the reduction of n vectors in the documented order (comm.h).
 *
 * All arithmetic on elements is here. An algorithm that has the raw contributions of all ranks
 * calls comm_reduce_tree. One that passes partial results up the same tree calls comm_reduce_load
 * or comm_reduce_partial, comm_reduce_fold and comm_reduce_store. Partial results have the
 * accumulator's type: float for bf16 and f16, otherwise the type itself. Integers wrap; an average
 * of integers is truncated towards zero.
 */
#ifndef MUSTER_LIBCOMM_REDUCE_H
#define MUSTER_LIBCOMM_REDUCE_H

#include "libcomm/comm.h"

/* out[count] = the reduction of src[0..n)[count] along the tree of comm.h. out may be one of
 * src. */
void comm_reduce_tree(enum comm_type type, enum comm_op op, const void *const *src, int n,
		      void *out, size_t count);

/* acc[count] = the reduction of src[0..n)[count] as a partial result: not rounded, and an average
 * is still a sum. */
void comm_reduce_partial(enum comm_type type, enum comm_op op, const void *const *src, int n,
			 void *acc, size_t count);

/* Bytes of one partial result. */
size_t comm_reduce_acc_size(enum comm_type type);
/* acc[count] = in[count]. */
void comm_reduce_load(enum comm_type type, void *acc, const void *in, size_t count);
/* acc = op(acc, right), where right is the partial result of the ranks to the right. */
void comm_reduce_fold(enum comm_type type, enum comm_op op, void *acc, const void *right,
		      size_t count);
/* out[count] = acc[count], rounded once; an average is divided by n, the number of ranks. */
void comm_reduce_store(enum comm_type type, enum comm_op op, void *out, const void *acc,
		       size_t count, int n);

#endif
