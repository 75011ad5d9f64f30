/*
 * plain — the specification of the ops: loops one can read, sums in double.
 *
 * The same files are built twice. As "plain" the storage type is float. As
 * "plain64" it is double, and then every `void *` and every `float *` of the
 * ops points at doubles: with that build tests take finite differences and
 * measure the rounding of the others.
 *
 * Each file holds one family of ops and exports one function, which enters
 * them into the table.
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

/* What dropout multiplies an element of the global tensor with: 0 or 1 / (1 - p). */
double REFERENCE(keep)(const struct dropout *d, uint64_t element);

#endif
