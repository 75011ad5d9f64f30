/*
 * cpu — the fast backend for processors: OpenMP over rows, loops that the compiler vectorizes, and
 * matrix products by the machine's BLAS (blas.h).
 *
 * kernels.mk compiles each file of ops once per instruction set. A file exports one function, under
 * the name CPU(family), which enters its ops into the table. Everything else in it is static. To add
 * a family, add its file (the build finds it) and its line in CPU_FAMILIES.
 *
 * Threads: work is split by rows or columns into pieces that share no sums, so most ops give the
 * same bits for any number of threads. The products do not guarantee that, since the BLAS treats the
 * edge of a piece differently. With one thread no OpenMP team is created. The OpenMP runtime reads
 * OMP_WAIT_POLICY when the program starts, which decides how a waiting team waits; "passive" is
 * right for ranks that share cores.
 */
#ifndef MUSTER_KERNELS_CPU_CPU_H
#define MUSTER_KERNELS_CPU_CPU_H

#include "kernels/backend.h"

#define CPU_PASTE(isa, name)  cpu_##isa##_##name
#define CPU_EXPAND(isa, name) CPU_PASTE(isa, name)
#define CPU(name)             CPU_EXPAND(CPU_ISA, name)

/* clang-format off */
/* The families of ops, one file each; X(isa, family). */
#define CPU_FAMILIES(X, isa) \
	X(isa, linear) \
	X(isa, norm) \
	X(isa, act) \
	X(isa, rope) \
	X(isa, attention_fwd) \
	X(isa, attention_bwd) \
	X(isa, embed) \
	X(isa, dropout) \
	X(isa, route) \
	X(isa, rows) \
	X(isa, xent) \
	X(isa, convert) \
	X(isa, optim)
#define CPU_DECLARE(isa, family) void CPU_EXPAND(isa, family)(struct ops *o);
/* clang-format on */

#ifdef CPU_ISA
CPU_FAMILIES(CPU_DECLARE, CPU_ISA)
#endif

/* Sums over rows: columns of a strip, and rows that are summed in float before they are added in
 * double. */
enum { CPU_STRIP = 128, CPU_RUN = 64 };

/* The number of threads for `work` elements: starting a team costs microseconds. */
static inline int cpu_team(const struct backend *k, int64_t work)
{
	return work < 16384 ? 1 : k->threads;
}

#endif
