/*
 * kern — what an opened backend consists of. Only files of kernels/ include this.
 *
 * A backend is a row of the list in kern.c: a function that fills the table of
 * ops (and loads what it needs), and the size of its storage type. Scratch is
 * address space reserved at kern_open, one stretch a thread, of which only the
 * touched pages cost memory: an op never allocates and never fails.
 */
#ifndef MUSTER_KERNELS_KERN_H
#define MUSTER_KERNELS_KERN_H

#include "kernels/ops.h"

/* Bytes of scratch a thread: holds the rows of any sensible shape (2 M floats, twice). */
#define KERN_SCRATCH ((size_t)16 << 20)

struct block; /* one kern_alloc */

struct kern {
	struct ops ops;
	int threads;
	size_t element;        /* bytes of the storage type */
	char *scratch;         /* threads stretches of KERN_SCRATCH bytes */
	struct block *blocks;
	size_t bytes, peak;    /* kern_alloc'ed now, and at most */
};

/* The scratch of thread t; neighbours lie one after the other. */
static inline void *kern_scratch(struct kern *k, int t)
{
	return k->scratch + (size_t)t * KERN_SCRATCH;
}

/* What kern_alloc gave and kern_free did not take back. */
void kern_free_all(struct kern *k);

/* The backends: each fills `o`, or says why it cannot work here. `variant` is the word of the
 * backend's row: the instruction set of cpu, NULL for the best that this processor has. */
int plain_fill(struct ops *o, const char *variant, struct err *e);
int plain64_fill(struct ops *o, const char *variant, struct err *e);
int cpu_fill(struct ops *o, const char *variant, struct err *e);

#endif
