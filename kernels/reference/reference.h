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

#include "kernels/kern.h"

#ifdef REFERENCE64
typedef double real;
#define PLAIN(name) plain64_##name
#else
typedef float real;
#define PLAIN(name) plain_##name
#endif

void PLAIN(linear)(struct ops *o);
void PLAIN(norm)(struct ops *o);
void PLAIN(act)(struct ops *o);
void PLAIN(rope)(struct ops *o);
void PLAIN(attention)(struct ops *o);
void PLAIN(embed)(struct ops *o);
void PLAIN(dropout)(struct ops *o);
void PLAIN(route)(struct ops *o);
void PLAIN(xent)(struct ops *o);
void PLAIN(convert)(struct ops *o);
void PLAIN(optim)(struct ops *o);

/* What dropout multiplies an element of the global tensor with: 0 or 1 / (1 - p). */
double PLAIN(keep)(const struct dropout *d, uint64_t element);

#endif
