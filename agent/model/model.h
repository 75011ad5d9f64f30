/*
 * model — one pipeline stage of a GPT-2 or LLaMA Transformer, one tensor-parallel
 * shard of it: forward and hand-written backward on the ops table.
 *
 * One code serves both families; struct model_shape says what they are made of.
 * Weights are views into the flat parameter buffer, gradients the same views into the
 * flat gradient buffer, to which every backward adds.
 *
 * A micro-batch lives in a slot: what the backward pass needs of it (activations.c).
 *
 *     model_forward   reads model_input (a stage after the first), leaves model_output (before the last) or the loss;
 *                     with gradients wanted, the head's are computed here, together with the loss
 *     model_backward  reads model_grad (a stage before the last: gradient of the output), leaves there the gradient
 *                     of the input, frees nothing
 *
 * [n, hidden] with n = micro × seq is the shape of all four. Everything that tensor-parallel ranks
 * hold whole (activations between blocks, norms' and positions' gradients) has the same bits on each of them.
 */
#ifndef MUSTER_AGENT_MODEL_MODEL_H
#define MUSTER_AGENT_MODEL_MODEL_H

#include "agent/parallel/tp.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/layout.h"
#include "plan/model.h"

#include <stdint.h>

struct model;

struct model_options {
	const struct model_shape *shape;
	const struct catalogue *catalogue; /* of this stage and tp rank; borrowed */
	struct stage stage;
	struct tp *tp;       /* borrowed */
	struct kern *kern;   /* borrowed */
	float *params;       /* [catalogue.elements]; borrowed */
	float *grads;        /* [catalogue.elements]; borrowed */
	int64_t micro;       /* sequences in a micro-batch */
	int slots;           /* micro-batches whose activations are kept at once */
	float grad_scale;    /* 1 / tokens of the global batch */
};

/* All memory is allocated here. */
int model_open(const struct model_options *opt, struct model **out, struct err *e);
void model_close(struct model *m);

int64_t model_boundary(const struct model *m); /* n × hidden: elements that pass between stages */
float *model_input(struct model *m, int slot);
float *model_output(struct model *m, int slot); /* after model_forward */
float *model_grad(struct model *m, int slot);

/* inputs, targets: [micro, seq]. The last stage adds the sum of its token losses to *loss; the others leave it. With
 * backward false nothing is kept for model_backward and no gradient changes. */
int model_forward(struct model *m, int slot, const int32_t *inputs, const int32_t *targets, bool backward,
		  double *loss, struct err *e);

/* Called while the last backward pass runs: this micro-batch's part of the gradients [from, elements) is in. */
struct model_watch {
	int (*done)(void *arg, int64_t from, struct err *e);
	void *arg;
};
/* watch may be NULL. */
int model_backward(struct model *m, int slot, const int32_t *inputs, const struct model_watch *watch, struct err *e);

/* The initial parameters of a catalogue: Philox normals keyed by (seed, name), counted by the global index, so that
 * whatever the layout the model starts the same to the bit. */
void model_init(const struct catalogue *c, double init_std, int64_t layers, uint64_t seed, float *params);

#endif
