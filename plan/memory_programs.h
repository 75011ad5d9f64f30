/*
 * memory_programs — the memory of a rank of another program than muster (plan.engine).
 *
 * What muster's own engine allocates is known to the byte (plan/memory.c). Of other programs the
 * parts below are known, and the rest is the allocator's. Their sizes go into the same struct
 * memory_sizes and struct plan_rank, so that plans and searches sum both alike.
 *
 * A layer that is not recomputed keeps for its backward pass, with 2-byte elements and the shapes of
 * plan/spec/model/activations.h:
 *
 *     2 [s, c]          the residual stream before each norm
 *     2 [s, c]          the inputs of the linears behind the norms
 *     [n, w] + [n, H d] queries, keys and values; the heads' result
 *     [n, u] + [n, f]   what the activation function reads and writes
 *     1 byte [s, c] × 2 the masks of dropout
 *     5 bytes [micro, H, seq, seq] the scores: softmax, its dropped copy and the mask
 *
 * For GPT this is 34 s b h + 5 a s² b bytes: Korthikanti et al., arXiv 2205.05198, section 4.1. A
 * program with fused attention has no scores. A layer that is recomputed keeps its input, [s, c]. A
 * layer between the halves of a split backward pass keeps the inputs of its linears and the
 * gradients of their outputs, for GPT 32 s b h: Qi et al., arXiv 2401.10241, section 2.3 and table 1.
 *
 * The largest of two moments counts: the loss with its logits, or the backward pass of a layer that
 * is computed again.
 */
#ifndef MUSTER_PLAN_MEMORY_PROGRAMS_H
#define MUSTER_PLAN_MEMORY_PROGRAMS_H

#include "plan/memory.h"

/* Whether the job is planned for another program than muster. */
bool plan_memory_foreign(const struct job *job);

/* plan_memory_sizes_of() for such a program; immense is not set. */
void plan_memory_program_sizes(const struct job *job, const struct model_shape *m,
			       const struct layout *l, const struct act_dims *d,
			       struct memory_sizes *out);

/* plan_memory_state() for such a program. */
void plan_memory_program_state(const struct job *job, const struct model_shape *m,
			       const struct layout *l, const struct share *share,
			       const int64_t elements[UNIT_KINDS], const int counts[UNIT_KINDS],
			       const struct zero_cut cuts[ZERO_CLASSES], struct plan_rank *r);

/* The share of all other bytes that the program's allocator holds besides. */
double plan_memory_program_reserve(const struct job *job);

#endif
