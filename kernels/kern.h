/*
 * kern — what an opened backend consists of. Only files of kernels/ include this.
 *
 * A backend is a row of the list in kern.c: a function that fills the table of
 * ops (and loads what it needs), and the size of its storage type. Scratch is
 * address space reserved at kern_open, one stretch a thread, of which only the
 * touched pages cost memory: an op never allocates and never fails. A storage
 * type of 2 bytes is put over a backend by narrow_open (kernels/narrow/).
 */
#ifndef MUSTER_KERNELS_KERN_H
#define MUSTER_KERNELS_KERN_H

#include "kernels/ops.h"

/* Bytes of scratch a thread: holds the rows of any sensible shape (2 M floats, twice). */
#define KERN_SCRATCH ((size_t)16 << 20)

struct block;  /* one kern_alloc */
struct narrow; /* a storage type of 2 bytes over the backend */

struct kern {
	struct ops ops;
	const char *isa;       /* the instruction set it uses, such as "v3"; "base": any processor's */
	int threads;
	size_t element;        /* bytes of the storage type */
	char *scratch;         /* threads stretches of KERN_SCRATCH bytes */
	struct block *blocks;
	size_t bytes, peak;    /* kern_alloc'ed now, and at most */
	struct narrow *narrow; /* NULL: the backend's own storage type */
};

/* The scratch of thread t; neighbours lie one after the other. */
static inline void *kern_scratch(struct kern *k, int t)
{
	return k->scratch + (size_t)t * KERN_SCRATCH;
}

/* What kern_alloc gave and kern_free did not take back. */
void kern_free_all(struct kern *k);

/* The backends: each fills k's table of ops and says which instruction set that is, or why it cannot work here. `variant`
 * is the word of the backend's row: the instruction set of cpu, NULL for the best that this processor has. */
int plain_fill(struct kern *k, const char *variant, struct err *e);
int plain64_fill(struct kern *k, const char *variant, struct err *e);
int cpu_fill(struct kern *k, const char *variant, struct err *e);

/* Makes an opened fp32 backend store in `storage`, "bf16" or "fp16". */
int narrow_open(struct kern *k, const char *storage, struct err *e);
void narrow_close(struct kern *k);

#endif
