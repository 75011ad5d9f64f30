/*
 * reference — the specification of the ops: simple loops, with sums in double.
 *
 * The same files are built twice. In "reference" the storage type is float. In "reference64" it is
 * double, and every `void *` and every `float *` of the ops points to doubles. Tests use that build
 * to take finite differences and to measure the rounding of other backends.
 *
 * Each file holds one family of ops and exports one function, which enters them into the table. To
 * add a family, add its file (the build finds it), declare its function here, and call it in
 * reference.c.
 */
#ifndef MUSTER_KERNELS_REFERENCE_REFERENCE_H
#define MUSTER_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/backend.h"

#ifdef REFERENCE64
typedef double real;
#define REFERENCE(name) reference64_##name
#else
typedef float real;
#define REFERENCE(name) reference_##name
#endif

void REFERENCE(linear)(struct ops *o);
void REFERENCE(norm)(struct ops *o);
void REFERENCE(act)(struct ops *o);
void REFERENCE(rope)(struct ops *o);
void REFERENCE(attention)(struct ops *o);
void REFERENCE(embed)(struct ops *o);
void REFERENCE(dropout)(struct ops *o);
void REFERENCE(route)(struct ops *o);
void REFERENCE(xent)(struct ops *o);
void REFERENCE(convert)(struct ops *o);
void REFERENCE(optim)(struct ops *o);

/* The factor of an element of the global tensor: 0 if it is dropped, otherwise 1 / (1 - p). */
double REFERENCE(keep)(const struct dropout *d, uint64_t element);

#endif
