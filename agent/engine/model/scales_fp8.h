/*
 * scales_fp8 — the scales of delayed scaling (precision.fp8_scaling): those of the inputs and the
 * gradients of all linears, from the largest numbers of the last FP8_SCALE_HISTORY steps.
 *
 * Every rank has the scales of all layers of the model. During a step each cast notes the largest
 * number of its tensor in them. Before the next step, or before they are saved, model_scales_settle
 * takes the maximum over the ranks and computes the new scales. A maximum is exact, so that scales
 * are equal on all ranks. Until the next step begins they stay as they are. After that,
 * model_scales_back brings them back, so that the step before can be computed again.
 *
 * The scales are zero until the first update. Before that, passes use current scaling
 * (linear_fp8.h) and only note the largest numbers. Evaluations always use current scaling, and note
 * nothing. A tensor without a finite number other than 0 in its history has the scale 1.
 *
 * A checkpoint holds them as two tensors, fp8.inputs and fp8.gradients: a row for each linear of
 * each layer, which is a struct fp8_scale. The first step after loading computes the scales again
 * from their histories, because the run may have another precision.fp8.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_SCALES_FP8_H
#define MUSTER_AGENT_ENGINE_MODEL_SCALES_FP8_H

#include "agent/engine/parallel/groups.h"
#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/model/activations.h"

#include <stdbool.h>

enum fp8_side { FP8_INPUTS, FP8_GRADIENTS, FP8_SIDES };

struct model_scales;

/* world: the job's ranks, on the backend's memory. layers: of the whole model. gradients: the
 * format of gradients. All pointers are borrowed. model_scales_close takes NULL. */
struct model_scales_options {
	struct backend *backend;
	struct comm *world;
	int layers;
	enum fp8 gradients;
};
int model_scales_open(const struct model_scales_options *o, struct model_scales **out,
		      struct err *e);
void model_scales_close(struct model_scales *s);

/* The scale of a linear of a layer (its number in the model), in the backend's memory. */
struct fp8_scale *model_scales_at(const struct model_scales *s, enum fp8_side side, int layer,
				  enum act_linear l);

/* Collective. Updates the scales if a step has used them since the last update. */
int model_scales_settle(struct model_scales *s, struct err *e);
/* Collective. A step begins, whose casts note the largest numbers. */
int model_scales_begin(struct model_scales *s, struct err *e);
/* The scales become those that the step before the last model_scales_begin had, so that it can be
 * computed again, with model_scales_begin. */
void model_scales_back(struct model_scales *s);
/* Whether there are scales: the step casts with them. */
bool model_scales_known(const struct model_scales *s);
/* Sets all to zero, before other scales are loaded. */
void model_scales_clear(struct model_scales *s);

/* The tensors of a checkpoint: their names, their shape [rows, FP8_SCALE_WORDS] for a model of
 * `layers` layers, and where they are in the backend's memory. */
enum { FP8_SCALE_WORDS = ACT_FP8_SCALE_BYTES / 4 };
extern const char *const model_scales_names[FP8_SIDES];
int model_scales_layers(const struct model_scales *s);
float *model_scales_tensor(const struct model_scales *s, enum fp8_side side);
/* Whether this rank saves them. */
bool model_scales_saves(const struct model_scales *s);

#endif
