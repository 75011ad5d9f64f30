/*
 * linear_fp8 — a layer's linear products in 8 bits (precision.fp8). The input x, the weights and
 * the gradient are scaled and cast to 8 bits, and tensor cores multiply these copies. Sums, results
 * and the weights' gradients keep their types.
 *
 * x and the weights are cast to e4m3 (4 bits of exponent, 3 of fraction). Gradients are cast to
 * e4m3, too, or with `hybrid` to e5m2, which has more range (Micikevicius et al., arXiv
 * 2209.05433).
 *
 * A copy exists only while its product is computed, in scratch (SCRATCH_FP8_…). Its scale is that
 * of the whole tensor on this rank at this moment: one pass over the tensor finds the largest
 * value, another one casts. So no state carries over from step to step, and ranks exchange nothing.
 * Scales are powers of 2, so that a different cut of the tensor changes only the numbers that are
 * too small for the format.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_LINEAR_FP8_H
#define MUSTER_AGENT_ENGINE_MODEL_LINEAR_FP8_H

#include "agent/engine/model/stage.h"

/* y[n, out] = x[n, in] · wᵀ + bias; bias may be NULL. */
void model_linear_fp8_forward(struct model *m, const struct linear_view *l, void *y, const void *x,
			      const void *bias);

/* model_linear_fp8_gradient casts the gradient dy[n, out] for the calls that follow: `input` for
 * model_linear_fp8_input, which sets dx[n, in]; `weight` for model_linear_fp8_weight, which adds to
 * the gradients of weights and bias. No product of another linear may come between these calls. */
void model_linear_fp8_gradient(struct model *m, const struct linear_view *l, const void *dy,
			       bool input, bool weight);
void model_linear_fp8_input(struct model *m, const struct linear_view *l, void *dx);
void model_linear_fp8_weight(struct model *m, const struct linear_view *l, const void *dy,
			     const void *x);

#endif
