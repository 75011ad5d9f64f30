/*
 * model — a rank's chunks (pipeline stages) of a GPT-2, LLaMA or Mixtral Transformer, its
 * tensor-parallel shard and its part of each sequence: forward and hand-written backward on the ops
 * table.
 *
 * One code serves all families; struct shape_of_job says what they are made of. Weights and
 * gradients are asked of the store, unit by unit (agent/engine/parallel/store.h); every backward
 * adds to the gradients.
 *
 * A micro-batch lives in a slot of each chunk: what the backward pass needs of it (activations.c).
 *
 *     model_forward   reads model_input (a stage after the first), leaves model_output (before the
 *                     last) or the loss; with gradients wanted, the head's are computed here,
 *                     together with the loss
 *     model_backward  reads model_grad (a stage before the last: gradient of the output), leaves
 *                     there the gradient of the input, frees nothing. In two halves (zero bubble,
 *                     Qi et al., arXiv 2401.10241): BACKWARD_INPUT does all but the weights'
 *                     gradients, which BACKWARD_WEIGHT does later.
 *
 * What passes between stages is [n / tp under sp, else n; hidden] with n = micro × seq / cp, in the
 * storage type. Everything that tensor-parallel ranks hold whole has the same bits on each of them.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_MODEL_H
#define MUSTER_AGENT_ENGINE_MODEL_MODEL_H

#include "agent/engine/parallel/cp.h"
#include "agent/engine/parallel/ep.h"
#include "agent/engine/parallel/store.h"
#include "agent/engine/parallel/tp.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct model;

struct model_options {
	const struct job *job; /* batch.micro, dropout, recompute, offload, router */
	const struct model_shape *shape;
	const struct catalogue *catalogue; /* of this rank; borrowed, as all here */
	const struct stage *chunks;
	int n_chunks;
	/* [n_chunks] micro-batches whose activations are kept at once */
	const int *slots;
	bool split; /* backward passes come in two halves */
	struct layout layout;
	int tp_rank;
	struct store *store;
	struct tp *tp;
	struct cp *cp;
	struct ep *ep;
	struct backend *backend;
	const char *spill_dir; /* of offloaded activations, unless TMPDIR is set */
};

/* All memory is allocated here. */
int model_open(const struct model_options *opt, struct model **out, struct err *e);
void model_close(struct model *m);

/* Seconds, ever growing, that backward passes spent on computing again, with the transfers of
 * it. */
double model_recompute_s(const struct model *m);
int64_t model_boundary(const struct model *m); /* elements that pass between stages */
void *model_input(struct model *m, int chunk, int slot);
void *model_output(struct model *m, int chunk, int slot); /* after model_forward */
void *model_grad(struct model *m, int chunk, int slot);

/* One micro-batch: whole sequences, whatever part of them this rank has. */
struct model_batch {
	const int32_t *inputs, *targets; /* [micro, seq] */
	/* [micro, seq] first position that the token attends to; NULL: 0 */
	const int32_t *starts;
	/* global number of its first sequence: counts dropout's numbers */
	int64_t sample;
	/* of each token's loss in the gradient: 1 / tokens of the global batch, times a loss
	 * scale */
	float grad_scale;
	/* the step's last micro-batch here: its backward pass completes the gradients */
	bool last;
};

/* The last stage adds the sum of its token losses to the model's; the others leave it. (MoE layers
 * add their router's losses, in the same unit: times the tokens of the micro-batch.) With backward
 * false nothing is kept for model_backward, no gradient changes, nothing is dropped. The batch's
 * arrays are read before this returns. */
int model_forward(struct model *m, int chunk, int slot, const struct model_batch *b, bool backward,
		  struct err *e);
/* What a model adds up: everything that is trained on; and the parts of it that are not
 * cross-entropy. */
enum model_loss { LOSS_ALL, LOSS_BALANCE, LOSS_Z, LOSSES };

/* The losses that were added up begin at 0 again; and their sums [LOSSES], for which a device is
 * waited. */
void model_loss_begin(struct model *m);
int model_loss(struct model *m, double *losses, struct err *e);

enum model_pass { BACKWARD_BOTH, BACKWARD_INPUT, BACKWARD_WEIGHT };
int model_backward(struct model *m, int chunk, int slot, const struct model_batch *b,
		   enum model_pass pass, struct err *e);

/* The initial value of elements [first, first + count) of a parameter's box: Philox normals keyed
 * by (seed, name), counted by the global index, so that whatever the layout and the number of
 * threads the model starts the same to the bit. threads: at most so many, which have ended when
 * this returns. */
void model_init(const struct param *p, const struct model_shape *shape, uint64_t seed,
		int64_t first, int64_t count, int threads, float *out);

#endif
