/*
 * model — the Transformer on one rank: its chunks (pipeline stages), its tensor-parallel shard and
 * its part of each sequence. Forward and hand-written backward passes on the ops table.
 *
 * The same code computes all families; struct model_shape holds their traits
 * (plan/spec/model/family.h). The parameter store provides weights and gradients, unit by unit
 * (agent/engine/parallel/param_store.h). Every backward pass adds to the gradients.
 *
 * A micro-batch occupies a slot of each chunk, which keeps what its backward pass needs
 * (activations.c).
 *
 *     model_forward   reads model_input (except on the first stage); leaves model_output (except on
 *                     the last stage) or adds to the loss. The last stage also computes the head's
 *                     gradients, if a backward pass follows
 *     model_backward  reads model_grad, the gradient of the output (except on the last stage), and
 *                     leaves there the gradient of the input. It can run in two halves (zero
 *                     bubble, Qi et al., arXiv 2401.10241): BACKWARD_INPUT computes all but the
 *                     weights' gradients, BACKWARD_WEIGHT computes those later
 *
 * Stages exchange tensors [n / tp with sp, otherwise n; hidden] with n = micro × seq / cp, in the
 * storage type. Tensors that all tensor-parallel ranks hold whole have the same bits on each of
 * them.
 *
 * One thread calls a model.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_MODEL_H
#define MUSTER_AGENT_ENGINE_MODEL_MODEL_H

#include "agent/engine/parallel/cp.h"
#include "agent/engine/parallel/ep.h"
#include "agent/engine/parallel/param_store.h"
#include "agent/engine/parallel/tp.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"
#include "plan/spec/rank_view.h"

#include <stdbool.h>
#include <stdint.h>

struct model;
struct model_scales; /* scales_fp8.h */

struct model_options {
	/* all pointers are borrowed, and must outlive the model */
	const struct rank_view *view;
	const struct catalogue *catalogue; /* this rank's */
	/* [layout.chunks] how many micro-batches' activations are kept at once */
	const int *slots;
	struct param_store *store;
	struct tp *tp;
	struct cp *cp;
	struct ep *ep;
	struct comm *world; /* the job's ranks, on the backend's memory */
	struct backend *backend;
	/* in the backend's memory; its logit_scale is the factor of each token's loss */
	const struct step_numbers *numbers;
	const char *spill_dir; /* for offloaded activations, if TMPDIR is not set */
	/* of what tp's group exchanges; NULL: the backend's own */
	const struct backend_source *memory;
};

/* Allocates all memory. model_close takes NULL. */
int model_open(const struct model_options *opt, struct model **out, struct err *e);
void model_close(struct model *m);
/* Frees the recorded passes (graphs.h), before the groups whose operations they hold are closed.
 * Takes NULL. */
void model_forget_passes(struct model *m);

/* Collective over world. A step begins. A step that is computed again in check mode keeps its
 * scales. */
int model_step_begin(struct model *m, struct err *e);
/* The scales that a checkpoint holds; NULL: none. */
struct model_scales *model_scales_of(const struct model *m);

/* Seconds since model_open that backward passes spent on recomputation, with its transfers. */
double model_recompute_s(const struct model *m);
int64_t model_boundary(const struct model *m); /* elements of a tensor between stages */
void *model_input(struct model *m, int chunk, int slot);
void *model_output(struct model *m, int chunk, int slot); /* after model_forward */
void *model_grad(struct model *m, int chunk, int slot);

/* One micro-batch. It holds whole sequences, even if this rank computes only a part of them. */
struct model_batch {
	const int32_t *inputs, *targets; /* [micro, seq] */
	/* [micro, seq] first position that each token attends to; NULL: 0 */
	const int32_t *starts;
	/* global number of the first sequence; it selects dropout's random numbers */
	int64_t sample;
	/* the step's last micro-batch on this rank: its backward pass completes the gradients */
	bool last;
	int number; /* of the micro-batch in the step, for check mode */
};

/* The last stage adds the sum of its tokens' losses to the model's. Layers with experts add their
 * router's losses times the tokens of the micro-batch, on any stage. With `backward` false, nothing
 * is kept for model_backward, no gradient changes and dropout is off. The batch's arrays are read
 * before this returns. */
int model_forward(struct model *m, int chunk, int slot, const struct model_batch *b, bool backward,
		  struct err *e);
/* Sums of losses: the loss that is trained on, and its parts that are not cross-entropy. */
enum model_loss { LOSS_ALL, LOSS_BALANCE, LOSS_Z, LOSSES };

/* model_loss_begin sets the sums to 0. model_loss returns them in losses [LOSSES]; it waits for the
 * device. */
void model_loss_begin(struct model *m);
int model_loss(struct model *m, double *losses, struct err *e);
/* The sums themselves, in the backend's memory. */
const double *model_losses(const struct model *m);

enum model_pass { BACKWARD_BOTH, BACKWARD_INPUT, BACKWARD_WEIGHT };
int model_backward(struct model *m, int chunk, int slot, const struct model_batch *b,
		   enum model_pass pass, struct err *e);

/* --- Check mode: finds where numbers that are NaN or infinite begin ---------------------- */

/* The place of a tensor in a step. */
struct model_place {
	int micro; /* number of the micro-batch in the step */
	bool backward;
	int layer; /* -1: the embedding; the model's number of layers: the head */
	/* how many tensors of the layer were computed before it; the same on all ranks that share
	 * the layer */
	int order;
};

/* The first tensor on this rank that has such numbers. */
struct model_finding {
	int64_t bad,
		count; /* of its `count` numbers, `bad` are NaN or infinite; bad 0: nothing found */
	struct model_place at;
	bool gradient; /* `what` is a parameter, and the tensor its gradient */
	char what[64]; /* a parameter's name, or the tensor's name inside its layer */
};
/* Between the two calls, passes check each tensor, also inside a layer and before it is reduced
 * over ranks. They compute the same bits, but wait for the device after each tensor. */
int model_check_begin(struct model *m, struct err *e);
void model_check_end(struct model *m, struct model_finding *out);

/* Tallies of the tensors that the last step has left in the slots. After another computation of the
 * step they must be equal. Their places do not tell the micro-batch. */
struct model_kept {
	struct tally *tallies;      /* [n] */
	struct model_place *places; /* [n] */
	int n;
};
int model_retained(struct model *m, struct model_kept *out, struct err *e);
void model_kept_fini(struct model_kept *k);

/* For drills: a number that becomes NaN in the first micro-batch of each step, until the next call:
 * of the input of this rank's stages, or of the gradient of each of its layers. */
enum model_plant { PLANT_NOTHING, PLANT_INPUT, PLANT_GRADIENT };
void model_plant(struct model *m, enum model_plant what);

/* Sets `out` to the initial values of elements [first, first + count) of a parameter's box. They
 * are Philox normals with the key (seed, name), counted by the global index, so that the initial
 * model has the same bits in every layout and with any number of threads. Uses at most `threads`
 * threads, which end before this returns. */
void model_init(const struct param *p, const struct model_shape *shape, uint64_t seed,
		int64_t first, int64_t count, int threads, float *out);

#endif
