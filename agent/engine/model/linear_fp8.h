/*
 * linear_fp8 — a layer's linear products in 8 bits (precision.fp8). The input x, the weights and
 * the gradient are scaled and cast to 8 bits, and tensor cores multiply these copies. Sums, results
 * and the weights' gradients keep their types; only the sums of forward products may keep fewer
 * bits (fast accumulation).
 *
 * x and the weights are cast to e4m3 (4 bits of exponent, 3 of fraction). Gradients are cast to
 * e4m3, too, or with `hybrid` to e5m2, which has more range (Micikevicius et al., arXiv
 * 2209.05433).
 *
 * Each tensor is cast as rarely as possible:
 *
 *     weights   once per step, into copies that the passes of all micro-batches read (below). With
 *               zero 3, which has the parameters only while a pass uses them, each pass casts them
 *               into scratch
 *     x         once, in the forward pass, which also writes the transposed copy that the backward
 *               pass multiplies by. The copy takes the place of x among the activations, unless
 *               other ops read x (attention's output) or x is a gather's result (sp): then the
 *               backward pass casts x again, with the same scale
 *     gradient  once, as it is and transposed. Those of up, o and down are cast, or their largest
 *               value is found, by the op that computes them: the activation's gradient or a norm's,
 *               if no dropout, gather or recomputed product comes between
 *
 * With current scaling, a scale is that of the whole tensor on this rank at this moment. The op that
 * computes the tensor finds the largest value; where no op does, a pass over the tensor finds it.
 * Another pass casts. So no state carries over from step to step, and ranks exchange nothing. The
 * scale of x belongs to the micro-batch (ACT_FP8_SCALES). With delayed scaling, the scales of inputs
 * and gradients come from earlier steps (scales_fp8.h). The op that computes the tensor casts it;
 * where no op does, one pass casts. So a norm, an activation and the activation's gradient leave
 * only their 8-bit copies; a norm's gradient is also that of the residual stream, and is stored too.
 *
 * Weights use current scaling, because they are cast once per step: 6 bytes per parameter, beside 30
 * of AdamW. If the optimizer's kernel found the largest values, one read of 2 bytes would be saved:
 * for a layer stack of 1 G parameters 2 GB, or 0.5 ms of a step, on an H100. But an update is a range
 * of a flat shard, which begins and ends inside of matrices: ranks would have to exchange the values
 * after each step, each optimizer would need them in the kernel that rounds to the storage type, and
 * weights that were loaded, or updated on the host, would still need the pass. So it is not done.
 *
 * A bias's gradient is the sum of the columns of dy. The op that casts dy computes it, so that no
 * other pass over dy is needed.
 *
 * Scales are powers of 2, so that a different cut of the tensor changes only the numbers that are
 * too small for the format.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_LINEAR_FP8_H
#define MUSTER_AGENT_ENGINE_MODEL_LINEAR_FP8_H

#include "agent/engine/model/stage.h"

/* Allocates the scales of delayed scaling. model_linear_fp8_pass comes before each pass; trains: it
 * is not an evaluation. */
int model_linear_fp8_open(struct model *m, struct comm *world, struct err *e);
void model_linear_fp8_pass(struct model *m, bool trains);

/* Call before the first product of a layer's forward pass, and again if that pass is repeated; and
 * before the first product of its backward pass. They do nothing without FP8. */
void model_linear_fp8_enter(struct model *m, const struct block_saved *k);
void model_linear_fp8_enter_backward(struct model *m);

/* The copies that the op which computes a linear's input makes of it (the ops named _cast): with
 * delayed scaling those of the product that follows, otherwise none, and the op only finds the
 * largest number. Fills and returns `to`, or returns NULL if no single op computes the input: it is
 * attention's output or a gather's result. Likewise for the op that computes its gradient. */
const struct fp8_copies *model_linear_fp8_input_copies(const struct pass *p,
						       const struct linear_view *l,
						       const struct block_saved *k,
						       struct fp8_copies *to);
const struct fp8_copies *model_linear_fp8_gradient_copies(const struct pass *p,
							  const struct linear_view *l,
							  struct fp8_copies *to);
/* As model_linear_fp8_gradient_copies, for the gradient of the stream, which a norm's backward pass
 * computes. It is that of the row-parallel linear whose backward pass comes next: o, or down of the
 * layer below. model_linear_fp8_stream_copies(): of down in layer i - 1 of the chunk. NULL: the
 * product has another gradient (dropout, a gather), comes in another pass, or comes after products
 * that need the same scratch. */
const struct fp8_copies *model_linear_fp8_row_copies(const struct pass *p,
						     const struct linear_view *l,
						     struct fp8_copies *to);
const struct fp8_copies *model_linear_fp8_stream_copies(const struct pass *p, int i,
							struct fp8_copies *to);
/* As model_linear_fp8_input_copies, for an op that computes an input again in the backward pass,
 * where only the transposed copy is needed. scaled: the forward pass kept the input's scale. NULL:
 * the layer keeps no copy, or this pass does not need it. */
const struct fp8_copies *model_linear_fp8_restored_copies(const struct pass *p,
							  const struct linear_view *l,
							  const struct block_saved *k, bool scaled,
							  struct fp8_copies *to);

/* y[n, out] = x[n, in] · wᵀ + bias; bias may be NULL. Keeps what model_linear_fp8_weight needs of
 * x. */
void model_linear_fp8_forward(const struct pass *p, const struct linear_view *l,
			      const struct block_saved *k, void *y, const void *x,
			      const void *bias);
/* x was computed again with the copies of model_linear_fp8_restored_copies, not `scaled`: restores
 * the copy that the forward pass kept of x, where that op could not. */
void model_linear_fp8_restore(const struct pass *p, const struct linear_view *l,
			      const struct block_saved *k, const void *x);
/* Whether the backward pass reads x itself, and not only what the forward pass kept of it. */
bool model_linear_fp8_needs_input(const struct linear_view *l, const struct block_saved *k);

/* model_linear_fp8_gradient casts the gradient dy[n, out] for the calls that follow: if
 * p->input for model_linear_fp8_input, which sets dx[n, in]; if p->weight for
 * model_linear_fp8_weight, which adds to the gradient of the weights. It adds to that of the bias
 * itself. No product of another linear may come between these calls. */
void model_linear_fp8_gradient(const struct pass *p, const struct linear_view *l, const void *dy);
void model_linear_fp8_input(struct model *m, const struct linear_view *l, void *dx);
void model_linear_fp8_weight(struct model *m, const struct linear_view *l,
			     const struct block_saved *k, const void *x);

/* --- Copies of the weights (weights_fp8.c) ------------------------------------------------- */

/* A linear's weights in 8 bits. Their memory is activations_fp8_weights(). */
struct weight_copy {
	uint8_t *at, *transposed; /* [out, in], [in, activations_fp8_row(out)] */
	struct fp8_scale *scale;
};
struct layer_copies {
	uint64_t version; /* param_store_version() of the weights that they have */
	struct weight_copy linears[ACT_LINEARS];
};

int model_weights_fp8_open(struct model *m, struct err *e);
void model_weights_fp8_close(struct model *m);
/* The layer's unit is held: casts its weights if they have changed. */
void model_weights_fp8_refresh(struct model *m, const struct block_view *v);
/* As model_weights_fp8_refresh for all layers of the pass's chunk, whose units need not be held.
 * Call it before a pass that is recorded, because casts are done once per step and must not be
 * replayed. The exception is a pass that waits for parameters and in which all layers have to cast:
 * it casts each layer where it holds it, so it does not wait for all of them at once.
 * model_weights_fp8_stale(): whether all layers of the chunk have to cast.
 * model_weights_fp8_refreshed(): a replay of such a pass has cast them. */
int model_weights_fp8_refresh_all(struct pass *p, struct err *e);
bool model_weights_fp8_stale(const struct pass *p);
void model_weights_fp8_refreshed(const struct pass *p);

#endif
