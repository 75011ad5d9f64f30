/*
 * diagnosis — decides, from what each rank has found, where wrong numbers of a step began.
 *
 * A step is computed twice: as training does it, and again in check mode
 * (agent/engine/model/model.h). Both computations start from the same weights and samples, because
 * a step with wrong numbers updates nothing. They must therefore agree to the bit. Hence:
 *
 *     numbers of the state are bad before the step     an earlier step or a fault left them there
 *     the second computation has bad numbers           the earliest tensor in the order of the
 *                                                      computation is their origin: data, weights, or
 *                                                      hardware that fails each time
 *     each rank's own numbers are finite, their sum    the reduction over ranks overflows
 *     is not
 *     the two computations differ                      hardware failed in the first one
 *     they agree and are finite                        the numbers come from the data or the weights
 *
 * Bad means NaN or infinite.
 *
 * With job.deterministic = any-order, backward passes have other bits each time (kernels/ops.h,
 * backend_allow_any_order). Then only forward passes are compared bit by bit. In backward
 * passes only bad numbers count, so a fault that leaves finite numbers there is not found.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_DIAGNOSIS_H
#define MUSTER_AGENT_ENGINE_TRAIN_DIAGNOSIS_H

#include "agent/engine/model/model.h"
#include "agent/engine/train/blame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor of the state, or a reduced gradient, that has bad numbers. bad 0: none has. */
struct bad_tensor {
	int64_t bad, count;
	int layer;    /* as in struct model_finding */
	int ordinal;  /* its number among the rank's tensors */
	bool state;   /* of the optimizer */
	uint64_t key; /* of the tensor and the part of it: equal on ranks that hold the same */
	char name[BLAME_NAME];
};

/* What one rank has found. */
struct rank_findings {
	char node[BLAME_NAME];
	int dp; /* its replica of the pipeline */
	/* of the gradients that it holds: equal on ranks that hold the same ones */
	uint64_t pieces;
	struct bad_tensor before;   /* in the state before the step */
	struct model_finding again; /* in the second computation */
	struct bad_tensor reduced;  /* in the gradients that the first computation left */
	bool reduced_again;         /* such gradients are bad after the second one too */
	/* tensors of its own that differ between the two computations, and the place of the
	 * first */
	bool differs;
	struct model_place differs_at;
	bool gradients_differ; /* the gradients after the reduction do */
	bool loss_differs;     /* its part of the loss does */
};

/* Whether a rank holds the tensor that is bad in the state before the step. */
enum witness { WITNESS_NONE, WITNESS_GOOD, WITNESS_BAD };

/* The results of the two computations, which all ranks know. */
struct step_results {
	double loss, norm, loss_again, norm_again;
	int layers;     /* of the model */
	bool any_order; /* backward passes have sums in any order, and other bits each time */
};

/* Whether a comes before b in the step: by micro-batch, forward before backward, then along the
 * pass.
 */
bool train_diagnosis_before(const struct model_place *a, const struct model_place *b);

/* The rank with the first tensor of the state that was bad before the step. -1: no rank has any.
 * The other ranks then say what they hold of that tensor. */
int train_diagnosis_suspected(const struct rank_findings *all, int world);

/* all, witnesses: [world]. Writes a clause for people to text, and sets ranks, suspect, kind and
 * tensor of *blame. */
void train_diagnosis_decide(const struct rank_findings *all, const enum witness *witnesses,
			    int world, const struct step_results *r, struct train_blame *blame,
			    char *text, size_t size);

#endif
