/*
 * cpu — the fast backend for processors: OpenMP over rows, loops the compiler
 * turns into vectors, matrix products by the machine's BLAS (blas.h).
 *
 * Each file of ops is compiled once for each instruction set (kernels.mk) and
 * exports one function under that set's name, which enters its family into the
 * table; everything else in it is static.
 *
 * Threads: work is cut by rows or columns into pieces that do not share sums, so that most ops give
 * the same bits for any number of threads. The products do not promise that (the BLAS treats the
 * edge of a piece in its own way). With one thread no OpenMP team is made. How a waiting team waits
 * is read by the OpenMP runtime from OMP_WAIT_POLICY when the program starts; "passive" is right
 * for ranks that share cores.
 */
#ifndef MUSTER_KERNELS_CPU_CPU_H
#define MUSTER_KERNELS_CPU_CPU_H

#include "kernels/backend.h"

#define CPU_PASTE(isa, name)  cpu_##isa##_##name
#define CPU_EXPAND(isa, name) CPU_PASTE(isa, name)
#define CPU(name)             CPU_EXPAND(CPU_ISA, name)

/* The families of ops, a file each; X(isa, family). */
#define CPU_FAMILIES(X, isa) \
	X(isa, linear) \
	X(isa, norm) \
	X(isa, act) \
	X(isa, rope) \
	X(isa, attention_fwd) \
	X(isa, attention_bwd) \
	X(isa, embed) \
	X(isa, dropout) X(isa, route) X(isa, rows) X(isa, xent) X(isa, convert) X(isa, optim)
#define CPU_DECLARE(isa, family) void CPU_EXPAND(isa, family)(struct ops * o);

#ifdef CPU_ISA
CPU_FAMILIES(CPU_DECLARE, CPU_ISA)
#endif

/* Columns of a strip in sums over rows, and rows that are summed in float before double takes
 * over. */
enum { CPU_STRIP = 128, CPU_RUN = 64 };

/* How many threads `work` elements are worth: a team costs microseconds. */
static inline int cpu_team(const struct backend *k, int64_t work)
{
	return work < 16384 ? 1 : k->threads;
}

static inline int64_t cpu_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

#endif
