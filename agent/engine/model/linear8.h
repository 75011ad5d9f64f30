/*
 * linear8 — a layer's linear products in 8 bits (precision.fp8): of x, of the weights and of the
 * gradient a copy of 8 bits is made, times a scale, and tensor cores multiply those. Sums, results
 * and the weights' gradients are as ever.
 *
 * e4m3 (4 bits of exponent, 3 of fraction) is what x and the weights become; gradients too, or
 * under `hybrid` e5m2, which reaches further (Micikevicius et al., arXiv 2209.05433).
 *
 * A copy exists while its product is computed, in scratch (SCRATCH_8_…). Its scale is of the whole
 * tensor as this rank multiplies it, and by what the tensor holds now: a pass over it measures,
 * another one casts. So nothing is carried from step to step, and no rank asks another. Scales are
 * powers of 2: how a layout cuts a tensor changes nothing but the numbers that are too small for
 * the format.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_LINEAR8_H
#define MUSTER_AGENT_ENGINE_MODEL_LINEAR8_H

#include "agent/engine/model/stage.h"

/* y[n, out] = x[n, in] · wᵀ + bias; bias may be NULL. */
void model_linear8_forward(struct model *m, const struct linear_view *l, void *y, const void *x,
			   const void *bias);

/* The gradient dy[n, out] for what comes next of the two: model_linear8_input sets dx[n, in],
 * model_linear8_weight adds to the gradients of weights and bias. Between them no other linear's.
 */
void model_linear8_gradient(struct model *m, const struct linear_view *l, const void *dy,
			    bool input, bool weight);
void model_linear8_input(struct model *m, const struct linear_view *l, void *dx);
void model_linear8_weight(struct model *m, const struct linear_view *l, const void *dy,
			  const void *x);

#endif
